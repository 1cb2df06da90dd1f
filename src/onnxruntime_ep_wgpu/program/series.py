"""Layouts of sizes that grow by as much from each to the next, as of a sequence that is longer by one in every run: as one.

In: a Program, the values of its symbols, and how much more they are each time. Out: a `Series`: the layout of the last, largest
sizes, and the numbers that dispatches read for each. Memory and grids of the last do for all: kernels end surplus workgroups.
Invariant: nothing is guessed. Each number is calculated for each of the sizes, and the series ends before the first of them whose
layout differs in anything else: another variant of a kernel, a dispatch more or less, a size that shrinks, a check that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError, LimitError
from .layout import MAX_GROUPS, Layout, Layouts
from .postfix import Postfix, compile_dims
from .program import REPETITION

Numbers = np.ndarray[Any, Any]
Shape = tuple[int, ...]

LONGEST = 128  # sizes of a series
_QUARTER, _LEAST = 4, 1 << 20  # intermediate values may take a quarter more memory in the last one, or so many bytes


@dataclass(frozen=True, eq=False)
class Block:
    """The uniforms of dispatches that read the same ones: `words` (sizes, numbers of a block), u32."""

    words: Numbers


@dataclass(frozen=True, eq=False)
class Series:
    """`count` sets of sizes, with the layout of the `last`. `blocks` are by dispatch, of those whose numbers differ, and `elements`
    (sizes, elements) by HOST value. `outputs` has the first shape of each, and how much more its extents are each time."""

    count: int
    last: Layout
    blocks: dict[int, Block]
    elements: dict[int, Numbers]
    outputs: tuple[tuple[Shape, Shape], ...]


class AllSeries:
    """Those of one Program."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self._changing: dict[frozenset[str], _Changing | None] = {}  # by the symbols that grow

    def series(self, symbols: Sequence[int], more: Sequence[int], like: Layout, most: int = LONGEST) -> Series | None:
        """The series that begins with these values of the symbols, which are `more` each time: `most` sets of sizes at most. `like`
        is another layout of the Program, of any sizes. None where it would be of one."""
        names = frozenset(it.name for it, by in zip(self._layouts.program.symbols, more, strict=True) if by)
        if names not in self._changing:
            self._changing[names] = _changing(self._layouts, names)
        changing = self._changing[names]
        found = None if changing is None else changing.numbers(symbols, more, most)
        if changing is None or found is None:
            return None
        if any(a != b for a, b, by in zip(symbols, like.symbols, more, strict=True) if not by):
            try:
                like = self._layouts.layout(symbols, like)  # what does not grow is of these sizes
            except (InputError, LimitError):
                return None
        alike = _Alike(changing, found, like.basis.numbers)
        count, memory = alike.count(), sum(like.slots)
        while count > 1:
            last = [it + by * (count - 1) for it, by in zip(symbols, more, strict=True)]
            try:
                layout = self._layouts.layout(last, like)
            except (InputError, LimitError):
                return None
            if sum(layout.slots) <= memory + max(memory // _QUARTER, _LEAST):
                return alike.series(count, layout)
            count //= 2
        return None


@dataclass(frozen=True)
class _Changing:
    """The numbers of a Program that certain symbols change: by place, the column of each in what `evaluate` gives."""

    layouts: Layouts
    columns: dict[int, int]
    evaluate: Callable[[Sequence[int]], list[int]]

    def numbers(self, symbols: Sequence[int], more: Sequence[int], most: int) -> Numbers | None:
        """(sizes, columns). None where they are no integers of 64 bits."""
        both = [*zip(symbols, more, strict=True)]
        try:
            return np.array([self.evaluate([*(it + by * k for it, by in both), 0]) for k in range(most)], np.int64)
        except (LimitError, OverflowError):
            return None


def _changing(layouts: Layouts, names: frozenset[str]) -> _Changing | None:
    """None where a dispatch is repeated, or binds ranges, as these symbols say."""
    program, tokens = layouts.program, {f"${name}" for name in names}

    def changes(dim: Postfix) -> bool:
        return not isinstance(dim, int) and not tokens.isdisjoint(dim)

    for name, dim in program.definitions:
        if changes(dim):
            tokens.add(f"${name}")
    for number in layouts.repeated:
        it = program.dispatches[number]
        if any(map(changes, (it.repeats, *it.uniforms, *(dim for pair in it.ranges if pair for dim in pair)))):
            return None
    places = [place for place, dim in enumerate(layouts.dims) if changes(dim)]
    dims = [layouts.dims[place] for place in places]
    symbols = [*(it.name for it in program.symbols), REPETITION]
    columns = {place: column for column, place in enumerate(places)}
    return _Changing(layouts, columns, compile_dims(dims, symbols, program.definitions))


class _Alike:
    """Sets of sizes, of which `found` has the numbers that change, and those of another layout all others."""

    def __init__(self, changing: _Changing, found: Numbers, others: Sequence[int]) -> None:
        self._layouts, self._columns, self._found, self._others = changing.layouts, changing.columns, found, others

    def _change(self, places: Iterable[int]) -> bool:
        return not self._columns.keys().isdisjoint(places)

    def _of(self, places: Sequence[int]) -> Numbers:
        """The numbers at these places (sizes, places)."""
        found, columns = self._found, self._columns
        out = np.empty((len(found), len(places)), np.int64)
        for k, place in enumerate(places):
            out[:, k] = found[:, columns[place]] if place in columns else self._others[place]
        return out

    def count(self) -> int:
        """How many sets of sizes from the first one on have layouts that differ in numbers alone."""
        layouts, program = self._layouts, self._layouts.program
        good = (self._of(layouts.condition_places) != 0).all(1)
        for places in filter(self._change, set(layouts.shape_places)):
            extents = self._of(places)
            good &= _grow(extents) & ((extents > 0) | (extents == extents[-1])).all(1)
        for value in (*program.inputs, *program.outputs):
            extents = self._of(layouts.shape_places[value])
            good &= (extents == extents[0] + np.arange(len(extents))[:, None] * (extents[1] - extents[0])).all(1)
        for value in layouts.element_places:
            good &= _stay(self._of(layouts.shape_places[value]))
        for a, b in program.aliases:
            here, there = layouts.shape_places[a], layouts.shape_places[b]
            if len(here) == len(there) and self._change((*here, *there)):
                good &= _stay((self._of(here) == self._of(there)).all(1, keepdims=True))
        reads = map(self._change, layouts.uniform_places)
        for guards, workgroups, reads_it in set(
            zip(layouts.guard_places, layouts.workgroup_places, reads, strict=True)
        ):
            if self._change((*guards, *workgroups)):
                good &= self._one_way(guards, workgroups, reads_it)
        return len(good) if good.all() else int(good.argmin())

    def _one_way(self, guards: Sequence[int], workgroups: Sequence[int], reads_it: bool) -> Numbers:
        """For which sizes a dispatch runs as for the first ones: the same variant, with no fewer workgroups, or not at all. With
        more of them only if it reads how many there are."""
        true = self._of(guards) != 0
        variant = true.argmax(1)
        groups = self._of(workgroups[variant[0] : variant[0] + 1])
        count = groups[:, 0]
        good: Numbers = true.any(1) & (variant == variant[0]) & (_grow(groups) if reads_it else _stay(groups))
        good &= ((count > 0) == (count[0] > 0)) & (count <= MAX_GROUPS * MAX_GROUPS)
        return good

    def series(self, count: int, last: Layout) -> Series:
        """The first `count` of them."""
        layouts = self._layouts
        known: dict[tuple[int, ...], Block] = {}
        blocks: dict[int, Block] = {}
        for number, places in enumerate(layouts.uniform_places):
            if last.basis.steps[number] and self._change(places):
                if places not in known:
                    known[places] = Block((self._of(places)[:count] & 0xFFFFFFFF).astype(np.uint32))
                blocks[number] = known[places]
        elements = {v: self._of(it)[:count] for v, it in layouts.element_places.items() if self._change(it)}
        outputs = []
        for value in layouts.program.outputs:
            first, second, *_ = self._of(layouts.shape_places[value]).tolist()
            outputs.append((tuple(first), tuple([b - a for a, b in zip(first, second, strict=True)])))
        return Series(count, last, blocks, elements, tuple(outputs))


def _grow(numbers: Numbers) -> Numbers:
    """Whether each row has numbers at least as large as the row before; the first one has."""
    return np.concatenate([[True], (np.diff(numbers, axis=0) >= 0).all(1)])


def _stay(numbers: Numbers) -> Numbers:
    """Whether each row is the first one."""
    same: Numbers = (numbers == numbers[0]).all(1)
    return same
