"""One layout for sizes that grow by constant steps, such as a sequence that is longer by one in every run.

In: a Program, the values of its symbols, and their steps. Out: a `Series`: the layout of the last, largest sizes, and the
numbers that dispatches read for each of the sizes. Memory and grids of the last sizes are used for all; kernels ignore surplus
workgroups.

Invariant: every number is calculated for each of the sizes. The series ends before the first sizes with a layout that differs in
anything else. Examples are the variant of a kernel, the set of dispatches, a size that shrinks, and a check that fails.
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
_QUARTER, _LEAST = 4, 1 << 20  # intermediate values may take a quarter more memory in the last one, or this many bytes


@dataclass(frozen=True, eq=False)
class Block:
    """A uniform block of a series, shared by dispatches: `words` (sizes, numbers of a block), u32."""

    words: Numbers


@dataclass(frozen=True, eq=False)
class Series:
    """`count` sets of sizes, with the layout of the `last`.

    - `blocks`: by dispatch, for those with numbers that differ.
    - `elements` (sizes, elements): by HOST value.
    - `outputs`: the first shape of each, and the steps of its extents.
    """

    count: int
    last: Layout
    blocks: dict[int, Block]
    elements: dict[int, Numbers]
    outputs: tuple[tuple[Shape, Shape], ...]


class AllSeries:
    """The series of one Program."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self._changing: dict[frozenset[str], _Changing | None] = {}  # by the symbols that grow

    def series(self, symbols: Sequence[int], more: Sequence[int], base: Layout, most: int = LONGEST) -> Series | None:
        """Returns the series that begins with these values of the symbols and grows by `more`: `most` sets of sizes at most.

        `base` is another layout of the Program, of any sizes. Returns None if the series would have a single element.
        """
        names = frozenset(it.name for it, by in zip(self._layouts.program.symbols, more, strict=True) if by)
        if names not in self._changing:
            self._changing[names] = _changing(self._layouts, names)
        changing = self._changing[names]
        found = None if changing is None else changing.numbers(symbols, more, most)
        if changing is None or found is None:
            return None
        if any(a != b for a, b, by in zip(symbols, base.symbols, more, strict=True) if not by):
            try:
                base = self._layouts.layout(symbols, base)  # with the sizes that do not grow
            except (InputError, LimitError):
                return None
        alike = _Alike(changing, found, base.basis.numbers)
        count, memory = alike.count(), sum(base.slots)
        while count > 1:
            last = [it + by * (count - 1) for it, by in zip(symbols, more, strict=True)]
            try:
                layout = self._layouts.layout(last, base)
            except (InputError, LimitError):
                return None
            if sum(layout.slots) <= memory + max(memory // _QUARTER, _LEAST):
                return alike.series(count, layout)
            count //= 2
        return None


@dataclass(frozen=True)
class _Changing:
    """The numbers of a Program that depend on certain symbols: by place, the column of each in the result of `evaluate`."""

    layouts: Layouts
    columns: dict[int, int]
    evaluate: Callable[[Sequence[int]], list[int]]

    def numbers(self, symbols: Sequence[int], more: Sequence[int], most: int) -> Numbers | None:
        """Returns the numbers (sizes, columns); None if they exceed 64-bit integers."""
        both = [*zip(symbols, more, strict=True)]
        try:
            return np.array([self.evaluate([*(it + by * k for it, by in both), 0]) for k in range(most)], np.int64)
        except (LimitError, OverflowError):
            return None


def _changing(layouts: Layouts, names: frozenset[str]) -> _Changing | None:
    """Returns None if repetitions or ranges of a dispatch depend on these symbols."""
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
    """Sets of sizes. `found` has the numbers that change, and `others` all numbers of another layout."""

    def __init__(self, changing: _Changing, found: Numbers, others: Sequence[int]) -> None:
        self._layouts, self._columns, self._found, self._others = changing.layouts, changing.columns, found, others

    def _change(self, places: Iterable[int]) -> bool:
        return not self._columns.keys().isdisjoint(places)

    def _of(self, places: Sequence[int]) -> Numbers:
        """Returns the numbers at these places (sizes, places)."""
        found, columns = self._found, self._columns
        out = np.empty((len(found), len(places)), np.int64)
        for k, place in enumerate(places):
            out[:, k] = found[:, columns[place]] if place in columns else self._others[place]
        return out

    def count(self) -> int:
        """Returns how many sets of sizes, from the first on, have layouts that differ in numbers only."""
        layouts, program = self._layouts, self._layouts.program
        good = (self._of(layouts.condition_places) != 0).all(1)
        for places in filter(self._change, set(layouts.shape_places)):
            extents = self._of(places)
            good &= _grow(extents) & ((extents > 0) | (extents == extents[-1])).all(1)
        for value in (*program.inputs, *program.outputs):
            extents = self._of(layouts.shape_places[value])
            good &= (extents == extents[0] + np.arange(len(extents))[:, None] * (extents[1] - extents[0])).all(1)
        for value in layouts.element_places:
            good &= _equal_first(self._of(layouts.shape_places[value]))
        for a, b in program.aliases:
            here, there = layouts.shape_places[a], layouts.shape_places[b]
            if len(here) == len(there) and self._change((*here, *there)):
                good &= _equal_first((self._of(here) == self._of(there)).all(1, keepdims=True))
        reads = map(self._change, layouts.uniform_places)
        for guards, workgroups, reads_it in set(
            zip(layouts.guard_places, layouts.workgroup_places, reads, strict=True)
        ):
            if self._change((*guards, *workgroups)):
                good &= self._same_variant(guards, workgroups, reads_it)
        return len(good) if good.all() else int(good.argmin())

    def _same_variant(self, guards: Sequence[int], workgroups: Sequence[int], reads_it: bool) -> Numbers:
        """Returns for which sizes a dispatch runs as for the first: the same variant with no fewer workgroups, or not at all.

        More workgroups are allowed only if the kernel reads their number.
        """
        true = self._of(guards) != 0
        variant = true.argmax(1)
        groups = self._of(workgroups[variant[0] : variant[0] + 1])
        count = groups[:, 0]
        good: Numbers = true.any(1) & (variant == variant[0]) & (_grow(groups) if reads_it else _equal_first(groups))
        good &= ((count > 0) == (count[0] > 0)) & (count <= MAX_GROUPS * MAX_GROUPS)
        return good

    def series(self, count: int, last: Layout) -> Series:
        """Returns the series of the first `count` sizes."""
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
    """Whether each row is elementwise at least as large as the row before; True for the first."""
    return np.concatenate([[True], (np.diff(numbers, axis=0) >= 0).all(1)])


def _equal_first(numbers: Numbers) -> Numbers:
    """Whether each row equals the first one."""
    same: Numbers = (numbers == numbers[0]).all(1)
    return same
