"""Everything of a Program that depends on shapes, as plain numbers: what a host does before it asks its device for anything.

In: a Program, and the values of its symbols. Out: a `Layout`: shapes, bytes, the elements of values known on the host, slots
of intermediate memory from liveness, and the steps that run, each with its variant, grid, uniforms and windows. Or a check of
the Program that fails, with its message. Invariant: a function of these two alone; knows no device and imports numpy at
most. Native and browser hosts do the same, and are held to the same files (`tests/program/golden`).
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import InputError, LimitError
from .postfix import Postfix, compile_dims
from .program import REPETITION, Check, Dispatch, Program, Storage

MAX_GROUPS = 65535  # WebGPU's limit per dimension of a grid
_SHOWN = 12  # sizes that a message names

Range = tuple[int, int]  # the first byte and the number of bytes
Grid = tuple[int, int, int]


@dataclass(frozen=True)
class Step:
    """One run of a dispatch, `dispatch` in the Program: the variant of its kernel, workgroups, and numbers of its block (u32).

    `windows` says per argument which bytes are bound, None for all of it; it is empty where all are bound whole. A
    repeated dispatch is a step for each time, counted by `repetition`.
    """

    dispatch: int
    variant: int
    grid: Grid
    uniforms: tuple[int, ...]
    windows: tuple[Range | None, ...] = ()
    repetition: int = 0
    repeats: int = 1


@dataclass(frozen=True)
class Layout:
    """A Program for certain values of its symbols; lists are by value number unless they say otherwise."""

    symbols: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    nbytes: tuple[int, ...]
    elements: dict[int, tuple[int, ...]]  # what HOST values hold, row-major
    slots: tuple[int, ...]  # bytes of each
    slot_of: dict[int, int]  # of TEMP values that a dispatch has
    steps: tuple[Step, ...]  # in the order in which they run; those that write nothing are left out
    allowed: tuple[tuple[int, int], ...]  # per assertion of the Program: the least and the largest number
    begins: tuple[tuple[int, int], ...] = ()  # an output, and the input that it begins as; none that is empty
    made_of: MadeOf | None = field(default=None, repr=False, compare=False)

    def changes_since(self, other: Layout) -> frozenset[int] | None:
        """The places of the steps that are others than those of a layout that this one was made like, that have a value whose
        bytes are more or fewer, or one whose elements the host knows; all other steps are the same objects. None where that is
        not known, or where these are more or fewer steps."""
        made = self.made_of
        known = made is not None and made.like is not None and made.like() is other
        return made.changes if made is not None and known else None


@dataclass(frozen=True)
class MadeOf:
    """What a layout that is like another one begins with: the numbers of its expressions, and its steps by dispatch."""

    numbers: list[int]
    steps: list[tuple[Step, ...]]
    like: weakref.ref[Layout] | None = None  # see `Layout.changes_since`
    changes: frozenset[int] | None = None


class Layouts:
    """Layouts of one Program: a function of its symbols, of which nothing changes when it is called. All expressions become one
    straight-line function, once, in which each is calculated once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._names = [*(s.name for s in program.symbols), REPETITION]
        # What is the same each time, and what a repeated or windowed dispatch has for each time.
        self._repeated = {number for number, it in enumerate(program.dispatches) if it.repeats != 1 or any(it.windows)}
        places: dict[Postfix, int] = {}

        def of(dims: Sequence[Postfix]) -> tuple[int, ...]:
            return tuple([places.setdefault(dim, len(places)) for dim in dims])

        # Places of numbers: of each value, dispatch, check and assertion.
        self._shapes = [of(v.shape) for v in program.values]
        self._elements = {k: of(v.elements) for k, v in enumerate(program.values) if v.storage is Storage.HOST}
        self._guards = [of(it.guards) for it in program.dispatches]
        self._workgroups = [of(it.workgroups) for it in program.dispatches]
        self._uniforms = [() if k in self._repeated else of(it.uniforms) for k, it in enumerate(program.dispatches)]
        self._conditions = of([c.condition for c in program.checks])
        self._bounds = [of((a.low, a.high)) for a in program.assertions]
        self._evaluate = compile_dims(list(places), self._names, program.definitions)
        self._each = {
            number: compile_dims(
                [it.repeats, *it.uniforms, *(dim for window in it.windows if window for dim in window)],
                self._names,
                program.definitions,
            )
            for number, it in enumerate(program.dispatches)
            if number in self._repeated
        }
        # The other way round: by the place of a number who has it.
        self._values_with: list[list[int]] = [[] for _ in places]
        self._dispatches_with: list[list[int]] = [[] for _ in places]
        for number, own in enumerate(self._shapes):
            for place in set(own):
                self._values_with[place].append(number)
        for number in range(len(program.dispatches)):
            for place in {*self._guards[number], *self._workgroups[number], *self._uniforms[number]}:
                self._dispatches_with[place].append(number)
        self._written = [written(program, it) for it in program.dispatches]
        self._dispatches_of: list[list[int]] = [[] for _ in program.values]
        for number, it in enumerate(program.dispatches):
            for arg in set(it.args):
                self._dispatches_of[arg].append(number)

    def layout(self, symbols: Sequence[int], like: Layout | None = None) -> Layout:
        """`symbols` has a value for each of the Program's.

        `like` is another layout of the Program, and changes no number of this one, which takes from it what depends on none
        of the numbers that differ: `slots` and `slot_of` as wholes, and of `steps` each. So a sequence that is one longer
        than another one costs little. Raises InputError, or LimitError for a limit of the target, when a check of the
        Program fails.
        """
        program, before = self.program, like.made_of if like else None
        numbers = [int(it) for it in self._evaluate([*symbols, 0])]  # a comparison is a bool
        values: Iterable[int] = range(len(program.values))
        dispatches: Iterable[int] = range(len(program.dispatches))
        if like is None or before is None:
            shapes: list[tuple[int, ...]] = [()] * len(program.values)
            nbytes = [0] * len(program.values)
            by_dispatch: list[tuple[Step, ...]] = [()] * len(program.dispatches)
        else:
            changed = [k for k, (now, then) in enumerate(zip(numbers, before.numbers, strict=True)) if now != then]
            shapes, nbytes, by_dispatch = list(like.shapes), list(like.nbytes), list(before.steps)
            values = {v for k in changed for v in self._values_with[k]}
        for number in values:
            shapes[number] = tuple([numbers[k] for k in self._shapes[number]])
            nbytes[number] = program.values[number].dtype.nbytes(math.prod(shapes[number]))
        self._check_shapes([numbers[k] for k in self._conditions], shapes, values, symbols)
        slots_of = None
        resized: frozenset[int] = frozenset()
        if like is not None and before is not None:
            resized = frozenset([v for v in values if nbytes[v] != like.nbytes[v]])
            if all(nbytes[v] and like.nbytes[v] for v in resized):  # otherwise others may have nothing to write
                dispatches = self._repeated.union(*(self._dispatches_with[k] for k in changed))
            if not any(program.values[v].storage is Storage.TEMP for v in resized):
                slots_of = like.slots, like.slot_of
        for number in dispatches:
            by_dispatch[number] = self._steps(number, numbers, nbytes, symbols)
        slots, slot_of = slots_of or _slots(program, nbytes)
        made_of = MadeOf(numbers, by_dispatch)
        if like is not None and before is not None:
            changes = self._changes(before.steps, by_dispatch, dispatches, resized)
            made_of = MadeOf(numbers, by_dispatch, weakref.ref(like), changes)
        return Layout(
            tuple(symbols),
            tuple(shapes),
            tuple(nbytes),
            {k: tuple([numbers[place] for place in own]) for k, own in self._elements.items()},
            slots,
            slot_of,
            tuple(itertools.chain.from_iterable(by_dispatch)),
            tuple([(numbers[low], numbers[high]) for low, high in self._bounds]),
            tuple((a, b) for a, b in program.aliases if shapes[a] == shapes[b] and nbytes[a]),
            made_of,
        )

    def _changes(
        self,
        before: Sequence[tuple[Step, ...]],
        now: Sequence[tuple[Step, ...]],
        made: Iterable[int],
        resized: Iterable[int],
    ) -> frozenset[int] | None:
        """See `Layout.changes_since`; `made` are the dispatches whose steps were made anew, `resized` the values."""
        if any(len(before[k]) != len(now[k]) for k in made):
            return None
        numbers = set(made).union(*(self._dispatches_of[v] for v in (*resized, *self._elements)))
        if len(numbers) > len(now) // 2:
            return None  # nothing is saved
        ends = list(itertools.accumulate(map(len, now)))
        return frozenset([place for k in numbers for place in range(ends[k] - len(now[k]), ends[k])])

    def _steps(
        self, number: int, numbers: Sequence[int], nbytes: Sequence[int], symbols: Sequence[int]
    ) -> tuple[Step, ...]:
        """The runs of a dispatch: none when all its results are empty, whatever the kernel would look at to find that out."""
        variant = next(k for k, place in enumerate(self._guards[number]) if numbers[place])
        count = numbers[self._workgroups[number][variant]]
        if not count or not any(map(nbytes.__getitem__, self._written[number])):
            return ()
        grid = fold_grid(count)
        if number in self._repeated:
            return tuple(self._repetitions(number, variant, grid, symbols))
        return (Step(number, variant, grid, _words([numbers[place] for place in self._uniforms[number]])),)

    def _repetitions(self, number: int, variant: int, grid: Grid, symbols: Sequence[int]) -> list[Step]:
        evaluate, dispatch = self._each[number], self.program.dispatches[number]
        own = len(dispatch.uniforms)
        first = evaluate([*symbols, 0])
        repeats, steps = max(first[0], 1), []
        for k in range(repeats):
            _, *values = evaluate([*symbols, k]) if k else first
            rest = iter(values[own:])
            windows = tuple(None if it is None else (next(rest), next(rest)) for it in dispatch.windows)
            steps.append(Step(number, variant, grid, _words(values[:own]), windows if any(windows) else (), k, repeats))
        return steps

    def _check_shapes(
        self, holds: Sequence[int], shapes: Sequence[tuple[int, ...]], values: Iterable[int], symbols: Sequence[int]
    ) -> None:
        """`values` are those whose shapes have not been looked at."""
        program = self.program
        failed = [] if all(holds) else [check for check, it in zip(program.checks, holds, strict=True) if not it]
        for check in sorted(failed, key=lambda check: check.limit):  # first what would be wrong for any program
            message = f"{self._said(check, symbols)}; {self._given(symbols)}"
            raise LimitError(message, program.sizes(symbols)) if check.limit else InputError(message)
        wrong = min((k for k in values if shapes[k] and min(shapes[k]) < 0), default=None)
        if wrong is not None:
            name = program.values[wrong].name or "a result"
            raise InputError(f"{name} would have shape {list(shapes[wrong])}; {self._given(symbols)}")

    def _said(self, check: Check, symbols: Sequence[int]) -> str:
        """What is wrong, with the sizes of this run."""
        definitions = (*self.program.definitions, *self.program.said)
        return check.text.format(*compile_dims(check.dims, self._names, definitions)([*symbols, 0]))

    def _given(self, symbols: Sequence[int]) -> str:
        """The sizes and the elements of inputs that this run was given."""
        names = [self.program.values[v].name for v in self.program.inputs]
        given = []
        for symbol, value in zip(self.program.symbols, symbols, strict=True):
            name = names[symbol.input]
            if symbol.is_element:
                given.append(f"{name}[{symbol.index}] = {value}")
            elif symbol.name == f"{name}.{symbol.index}":
                given.append(f"axis {symbol.index} of {name} = {value}")
            else:
                given.append(f"{symbol.name} = {value}")
        more = [f"and {len(given) - _SHOWN} more"] if len(given) > _SHOWN else []
        return f"the inputs have {', '.join(given[:_SHOWN] + more)}"


def _words(values: Sequence[int]) -> tuple[int, ...]:
    return tuple([value & 0xFFFFFFFF for value in values])


def written(program: Program, dispatch: Dispatch) -> tuple[int, ...]:
    """The values that a dispatch writes, or of which it writes a part."""
    bindings = program.kernels[dispatch.kernel].bindings
    return tuple(dict.fromkeys(arg for arg, kind in zip(dispatch.args, bindings, strict=True) if kind == "read_write"))


def finished(program: Program, steps: Sequence[Step]) -> list[tuple[int, ...]]:
    """Per step the values that none after it writes. Until then some of their elements may be anything: a repeated dispatch
    writes its results again and again, and several dispatches may store the parts of one value."""
    out: list[tuple[int, ...]] = []
    later: set[int] = set()
    for step in reversed(steps):
        values = written(program, program.dispatches[step.dispatch])
        out.append(tuple(value for value in values if value not in later))
        later.update(values)
    return out[::-1]


def _slots(program: Program, nbytes: Sequence[int]) -> tuple[tuple[int, ...], dict[int, int]]:
    """Slots from liveness: a slot is free again after the last dispatch that has its value."""
    last = {arg: k for k, it in enumerate(program.dispatches) for arg in it.args}
    slots: list[int] = []
    free: list[int] = []
    slot_of: dict[int, int] = {}
    for k, dispatch in enumerate(program.dispatches):
        args = dict.fromkeys(arg for arg in dispatch.args if program.values[arg].storage is Storage.TEMP)
        for arg in args:
            if arg not in slot_of:
                slot_of[arg] = _best_slot(slots, free, nbytes[arg])
        free += [slot_of[arg] for arg in args if last[arg] == k]
    return tuple(slots), slot_of


def _best_slot(slots: list[int], free: list[int], nbytes: int) -> int:
    """The free slot that wastes least, growing the largest when none is large enough; a new one when none is free."""
    if not free:
        slots.append(nbytes)
        return len(slots) - 1
    fitting = [s for s in free if slots[s] >= nbytes]
    slot = min(fitting, key=lambda s: slots[s]) if fitting else max(free, key=lambda s: slots[s])
    free.remove(slot)
    slots[slot] = max(slots[slot], nbytes)
    return slot


def fold_grid(workgroups: int) -> Grid:
    """A grid of at least this many workgroups within 65,535 per dimension; kernels ignore the surplus."""
    rows = -(-workgroups // MAX_GROUPS)
    return (-(-workgroups // rows), rows, 1)
