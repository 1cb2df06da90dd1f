"""Where the tensors of a run's caller lie: its inputs and outputs.

In: a place for each of them, or what is remembered of an earlier run. Out: the place of a value, and of all of them what bindings
are found again by and end with. Invariant: what is remembered keeps no buffer; who binds it holds all of them meanwhile, so that
none goes in between.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ..device import Buffer, Place

Held = Sequence[Buffer | None]  # the buffers of tensors, None for an empty one
At = tuple[tuple[int, int] | None, ...]  # the number of a buffer and an offset, None for an empty tensor


class Places:
    """Of a run, inputs before outputs: where they are, and which buffers that is. `as_they_are` is the `Layout.begins` with which
    tensors there are bound without copies, where that has been found out."""

    __slots__ = ("as_they_are", "at", "buffers")

    def __init__(self, places: Sequence[Place | None]) -> None:
        self.at: At = tuple([None if it is None else (it.buffer.number, it.offset) for it in places])
        self.buffers = [None if it is None else weakref.ref(it.buffer) for it in places]
        self.as_they_are: object = None

    def held(self) -> Held | None:
        """The buffers, or None when one has gone."""
        held = [None if reference is None else reference() for reference in self.buffers]
        return held if held.count(None) == self.buffers.count(None) else None

    def within(self, held: Held) -> list[Place | None]:
        """The places in these buffers."""
        both = zip(self.at, held, strict=True)
        return [None if at is None or buffer is None else Place(buffer, at[1]) for at, buffer in both]


class ByValue(Protocol):
    """The tensors of a run as dispatches bind them: none is empty."""

    def __getitem__(self, value: int, /) -> Place:
        """Where a tensor lies."""


class Bindable(ByValue, Protocol):
    """The same with what a recording of them is found again by."""

    @property
    def at(self) -> At:
        """The same exactly where all tensors lie in the same places."""

    @property
    def buffers(self) -> Sequence[weakref.ref[Buffer] | None]:
        """Their buffers."""

    def __iter__(self) -> Iterator[int]:
        """The values that they are, in this order."""


class Callers(dict[int, Place]):
    """Those that a run was given: places by value."""

    @property
    def at(self) -> At:
        return tuple([(buffer.number, offset) for buffer, offset in self.values()])

    @property
    def buffers(self) -> list[weakref.ref[Buffer] | None]:
        return [weakref.ref(buffer) for buffer, _ in self.values()]


class Remembered:
    """Those of a run at the same places as an earlier one, bound there as they are, in the buffers that it holds. `numbers` has the
    place in these by value."""

    def __init__(self, numbers: Mapping[int, int], places: Places, held: Held) -> None:
        self._numbers, self._held = numbers, held
        self.at, self.buffers = places.at, places.buffers

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __getitem__(self, value: int) -> Place:
        number = self._numbers[value]
        at, buffer = self.at[number], self._held[number]
        assert at is not None
        assert buffer is not None
        return Place(buffer, at[1])
