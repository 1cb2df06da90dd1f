"""The identity of a run: its sizes and values (`Key`, which decides the plan), and where its tensors lie (`At`, which decides what
is bound).

In: places of the inputs and outputs of a run. Out: the same by value, for dispatches, or as they are remembered for a later run.
Invariant: what is remembered keeps no buffer. Code that binds it holds all of them meanwhile, so none ends in between.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from functools import cached_property

from ...device import Buffer, Place

REMEMBERED_RUNS = 8
"""How many runs are known: recordings of a plan, places of tensors, tensors and memos of a node, captures of a node under an id."""

Key = tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]  # the shapes of the inputs, and the elements that set a shape
At = tuple[tuple[int, int] | None, ...]  # the number of a buffer and an offset, None for an empty tensor
Held = Sequence[Buffer | None]  # the buffers of tensors, None for an empty one


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


class Places:
    """Where the tensors of a run lie, inputs before outputs, and in which buffers. `bound_without_copies` is the `Layout.begins`
    with which tensors there are bound as they are, where that is known."""

    __slots__ = ("at", "bound_without_copies", "buffers")

    def __init__(self, places: Sequence[Place | None]) -> None:
        self.at: At = tuple([None if it is None else (it.buffer.number, it.offset) for it in places])
        self.buffers = [None if it is None else weakref.ref(it.buffer) for it in places]
        self.bound_without_copies: object = None

    def held(self) -> Held | None:
        """The buffers, or None when one has gone."""
        held = [None if reference is None else reference() for reference in self.buffers]
        return held if held.count(None) == self.buffers.count(None) else None

    def within(self, held: Held) -> list[Place | None]:
        """The places in these buffers."""
        both = zip(self.at, held, strict=True)
        return [None if at is None or buffer is None else Place(buffer, at[1]) for at, buffer in both]

    def bound(self, values: Iterable[int], held: Held) -> Callers:
        """The tensors in these buffers, which are these values, as they are bound without copies."""
        found = Callers({value: it for value, it in zip(values, self.within(held), strict=True) if it is not None})
        found.at, found.buffers = self.at, self.buffers
        return found
