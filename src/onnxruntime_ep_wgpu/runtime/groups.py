"""Bind groups with callers' buffers, by dispatch and places: plans of other shapes share dispatches, and then these too.

In: a dispatch as planned, where the callers' tensors lie. Out: the group that was made for them, or None. Invariant: a
caller's buffer is not kept alive, and a group, which keeps its memory, is let go when one of its buffers dies.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from ..device import BindGroup, Buffer, depend
from .planned import PlannedDispatch

Places = tuple[tuple[int, int], ...]  # the numbers of buffers, and byte offsets


class BindGroups:
    """Thread safe; takes no lock, because buffers end in finalisers too."""

    def __init__(self, most: int) -> None:
        """With more than `most` groups it begins anew."""
        self._most = most
        # The dispatch is kept with its group, so that its identity is nobody else's.
        self._known: dict[tuple[int, Places], tuple[PlannedDispatch, BindGroup, tuple[weakref.ref[Buffer], ...]]] = {}
        depend(self)

    def get(self, planned: PlannedDispatch, places: Places) -> BindGroup | None:
        known = self._known.get((id(planned), places))
        return None if known is None else known[1]

    def keep(self, planned: PlannedDispatch, places: Places, group: BindGroup, buffers: Iterable[Buffer]) -> None:
        if len(self._known) >= self._most:
            self._known = {}
        self._known[id(planned), places] = planned, group, tuple(map(weakref.ref, buffers))

    def clear(self) -> None:
        """Lets go of all, and of what they keep."""
        self._known = {}

    def buffers_ended(self) -> None:
        for key, (_, _, buffers) in self._known.copy().items():
            if any(buffer() is None for buffer in buffers):
                self._known.pop(key, None)
