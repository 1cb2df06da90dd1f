"""The recordings of a plan and the bind groups of dispatches, by the places of tensors. Plans of other shapes share the bind
groups with the dispatches.

In: a recording or a bind group for a run, and its callers' buffers. Out: the same for a later run with these places, or None.
Invariant: no buffer of a caller is kept alive. A recording or a bind group keeps the memory of its buffers, and is released
when the first of them dies.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...device import BindGroup, BoundRecording, Buffer, Recording, depend
from ..planned import PlannedDispatch
from .key import REMEMBERED_RUNS, At, Callers


class LastRun(NamedTuple):
    """The run that was bound last: its dispatches, and its places."""

    dispatches: Sequence[PlannedDispatch]
    at: At
    bound: BoundRecording


class Recordings:
    """The recordings of a plan, for the last runs. Thread safe.

    `last` is the one that was bound last, by this plan or by the one that it is like. Most of its rows are reused by the next
    one.
    """

    def __init__(self, last: LastRun | None) -> None:
        self.last = last
        self.kept: OrderedDict[At, BoundRecording] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, at: At) -> Recording | None:
        """Returns the recording for tensors at these places."""
        with self._lock:
            found = self.kept.get(at)
            recording = None if found is None else found.recording
            if recording is not None:
                self.kept.move_to_end(at)
            return recording

    def keep(self, dispatches: Sequence[PlannedDispatch], callers: Callers, recording: Recording) -> None:
        """Keeps the recording of these dispatches for later runs, until the first of the callers' buffers dies."""
        bound = BoundRecording(recording, callers.buffers)
        with self._lock:
            self.kept[callers.at] = bound
            self.last = LastRun(dispatches, callers.at, bound)
            while len(self.kept) > REMEMBERED_RUNS:
                self.kept.popitem(last=False)

    def clear(self) -> None:
        """Drops all of them."""
        with self._lock:
            self.kept.clear()
            self.last = None


class BindGroups:
    """The bind groups with callers' buffers, by dispatch and places.

    Thread safe. It takes no lock, because buffers may die in finalisers.
    """

    def __init__(self, most: int) -> None:
        """At `most` groups all are dropped."""
        self._most = most
        # The entry keeps the dispatch alive, so that its id is not reused.
        self._known: dict[tuple[int, At], tuple[PlannedDispatch, BindGroup, tuple[weakref.ref[Buffer], ...]]] = {}
        depend(self)

    def get(self, planned: PlannedDispatch, at: At) -> BindGroup | None:
        known = self._known.get((id(planned), at))
        return None if known is None else known[1]

    def keep(self, planned: PlannedDispatch, at: At, group: BindGroup, buffers: Iterable[Buffer]) -> None:
        if len(self._known) >= self._most:
            self._known = {}
        self._known[id(planned), at] = planned, group, tuple(map(weakref.ref, buffers))

    def clear(self) -> None:
        """Drops all of them, and the memory that they keep."""
        self._known = {}

    def buffers_ended(self) -> None:
        for key, (_, _, buffers) in self._known.copy().items():
            if any(buffer() is None for buffer in buffers):
                self._known.pop(key, None)
