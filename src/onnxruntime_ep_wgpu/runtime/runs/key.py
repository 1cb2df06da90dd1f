"""The identity of a run: its sizes and values (`Key`, which decides the plan), and where its tensors lie (`At`, which decides what
is bound).

In: places of the inputs and outputs of a run. Out: the same by value, for dispatches. Invariant: what is remembered of a run
keeps no buffer.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import cached_property

from ...device import Buffer, Place

REMEMBERED_RUNS = 8
"""How many runs are known: recordings of a plan, tensors and memos of a node, captures of a node under an id."""

Key = tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]  # the shapes of the inputs, and the elements that set a shape
At = tuple[tuple[int, int] | None, ...]  # the number of a buffer and an offset, None for an empty tensor


class Callers(dict[int, Place]):
    """The tensors of a run as dispatches bind them, by value: none is empty."""

    @cached_property
    def at(self) -> At:
        """The same exactly where all tensors lie in the same places."""
        return tuple([(buffer.number, offset) for buffer, offset in self.values()])

    @cached_property
    def buffers(self) -> Sequence[weakref.ref[Buffer] | None]:
        """Their buffers."""
        return [weakref.ref(buffer) for buffer, _ in self.values()]
