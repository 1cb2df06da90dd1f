"""The identity of a run: its sizes and values (`Key`, which selects the plan), and the places of its tensors (`At`, which
determines the bindings).

In: places of the inputs and outputs of a run. Out: the same by value, for dispatches. Invariant: a key keeps no buffer alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import cached_property

from ...device import Buffer, Place

REMEMBERED_RUNS = 8
"""How many runs are kept: recordings of a plan, tensors and memos of a node, captures of a node under an id."""

Key = tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]  # the shapes of the inputs, and the elements that set a shape
At = tuple[tuple[int, int] | None, ...]  # (number of a buffer, offset); None for an empty tensor


class Callers(dict[int, Place]):
    """The places of a run's tensors by value, as dispatches bind them. None is empty."""

    @cached_property
    def at(self) -> At:
        """Equal exactly if all tensors are at the same places."""
        return tuple([(buffer.number, offset) for buffer, offset in self.values()])

    @cached_property
    def buffers(self) -> Sequence[weakref.ref[Buffer] | None]:
        """Weak references to the buffers."""
        return [weakref.ref(buffer) for buffer, _ in self.values()]
