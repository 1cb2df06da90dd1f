"""Everything of a Program that depends on shapes, as plain numbers: what a host does before it asks its device for anything.

In: a Program, and the values of its symbols. Out: a `Layout`: shapes, bytes, the elements of values known on the host, slots
of intermediate memory from liveness, and the steps that run, each with its variant, grid, uniforms and ranges. Or a check of
the Program that fails, with its message. Invariant: a function of these two alone; knows no device and imports numpy at
most. Native and browser hosts do the same, and are held to the same files (`tests/program/golden`).
"""

from __future__ import annotations

import itertools
import math
import operator
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import field

from ..errors import InputError, LimitError
from ..records import dataclass
from .postfix import Postfix, compile_dims
from .program import REPETITION, Check, Dispatch, Program, Storage
from .slots import slots_of

MAX_GROUPS = 65535  # WebGPU's limit per dimension of a grid
MOST_STEPS = 1 << 20  # of a run: a million dispatches take minutes to submit
_PADDED = 3  # bytes: a buffer ends with a whole word
_SHOWN = 12  # sizes that a message names

Range = tuple[int, int]  # the first byte and the number of bytes
Grid = tuple[int, int, int]


@dataclass(frozen=True)
class Step:
    """One run of a dispatch, `dispatch` in the Program: the variant of its kernel, workgroups, and numbers of its block (u32).

    `ranges` says per argument which bytes are bound, None for all of it; it is empty where all are bound whole. A
    repeated dispatch is a step for each time, counted by `repetition`.
    """

    dispatch: int
    variant: int
    grid: Grid
    uniforms: tuple[int, ...]
    ranges: tuple[Range | None, ...] = ()
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
    slot_of: dict[int, int]  # of TEMP values that a step has
    steps: tuple[Step, ...]  # in the order in which they run; those that write nothing are left out
    allowed: tuple[tuple[int, int], ...]  # per assertion of the Program: the least and the largest number
    aliases: tuple[tuple[int, int], ...]  # an output, and the input that it begins as; none that is empty
    basis: Basis = field(repr=False, compare=False)

    def changed_since(self, other: Layout, moved: Iterable[int] = ()) -> frozenset[int]:
        """The dispatches that are others than in another layout of the Program: their steps are, a value of theirs has more or
        fewer bytes there, or is one of `moved`, which the caller has elsewhere. What was made of all others there is right here.

        The one place where that is decided. It costs little for the layout that this one was made like.
        """
        here, there = self.basis, other.basis
        if other is self:
            found: frozenset[int] = frozenset()
        elif here.like is not None and here.like() is other:
            found = here.changed
        else:
            resized = [v for v, (now, then) in enumerate(zip(self.nbytes, other.nbytes, strict=True)) if now != then]
            found = _changed(here.users, here.steps, there.steps, range(len(here.steps)), resized)
        return found.union(*(here.users[v] for v in moved))

    def places(self, dispatch: int) -> slice:
        """Where among `steps` those of a dispatch are."""
        end = self.basis.ends[dispatch]
        return slice(end - len(self.basis.steps[dispatch]), end)

    def places_with(self, values: Iterable[int]) -> set[int]:
        """The places of the steps that have one of these values."""
        basis = self.basis
        numbers = {k for v in values for k in basis.users[v]}
        return {place for k in numbers for place in range(basis.ends[k] - len(basis.steps[k]), basis.ends[k])}


@dataclass(frozen=True, eq=False)
class Basis:
    """What a layout that is like another one begins with."""

    numbers: list[int]  # of all expressions
    steps: list[tuple[Step, ...]]  # by dispatch
    ends: list[int]  # by dispatch: how many steps it and those before it have
    users: Sequence[Sequence[int]]  # by value: the dispatches that have it
    like: weakref.ref[Layout] | None = None  # the layout that this one is like
    changed: frozenset[int] = frozenset()  # since that one


def _changed(
    users: Sequence[Sequence[int]],
    now: Sequence[tuple[Step, ...]],
    before: Sequence[tuple[Step, ...]],
    among: Iterable[int],
    resized: Iterable[int],
) -> frozenset[int]:
    """See `Layout.changed_since`; steps differ `among` these dispatches at most, and the bytes of the values that are `resized`."""
    return frozenset([k for k in among if now[k] != before[k]]).union(*(users[v] for v in resized))


class Layouts:
    """Layouts of one Program: a function of its symbols, of which nothing changes when it is called. All expressions become one
    straight-line function, once, in which each is calculated once.

    `dims` are all expressions, which have numbers at the same places in `Basis.numbers`: `shape_places` of each value,
    `guard_places` of each dispatch and so on. Dispatches that are `repeated`, or bind ranges, have more numbers."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._names = [*(s.name for s in program.symbols), REPETITION]
        # What is the same each time, and what a dispatch that is repeated, or binds ranges, has for each time.
        self.repeated = {number for number, it in enumerate(program.dispatches) if it.repeats != 1 or any(it.ranges)}
        places: dict[Postfix, int] = {}

        def of(dims: Sequence[Postfix]) -> tuple[int, ...]:
            return tuple([places.setdefault(dim, len(places)) for dim in dims])

        # Places of numbers: of each value, dispatch, check and assertion.
        self.shape_places = [of(v.shape) for v in program.values]
        self.element_places = {k: of(v.elements) for k, v in enumerate(program.values) if v.storage is Storage.HOST}
        self.guard_places = [of(it.guards) for it in program.dispatches]
        self.workgroup_places = [of(it.workgroups) for it in program.dispatches]
        self.uniform_places = [() if k in self.repeated else of(it.uniforms) for k, it in enumerate(program.dispatches)]
        self.condition_places = of([c.condition for c in program.checks])
        self._bounds = [of((a.low, a.high)) for a in program.assertions]
        self.dims = list(places)
        self._evaluate = compile_dims(self.dims, self._names, program.definitions)
        self._each = {
            number: compile_dims(
                [it.repeats, *it.uniforms, *(dim for byte_range in it.ranges if byte_range for dim in byte_range)],
                self._names,
                program.definitions,
            )
            for number, it in enumerate(program.dispatches)
            if number in self.repeated
        }
        # The other way round: by the place of a number, what has it.
        self._values_with: list[list[int]] = [[] for _ in places]
        self._dispatches_with: list[list[int]] = [[] for _ in places]
        for number, own in enumerate(self.shape_places):
            for place in set(own):
                self._values_with[place].append(number)
        for number in range(len(program.dispatches)):
            for place in {*self.guard_places[number], *self.workgroup_places[number], *self.uniform_places[number]}:
                self._dispatches_with[place].append(number)
        self._written = [written(program, it) for it in program.dispatches]
        self._aliased = frozenset(itertools.chain.from_iterable(program.aliases))
        self._users: list[list[int]] = [[] for _ in program.values]
        for number, it in enumerate(program.dispatches):
            for arg in set(it.args):
                self._users[arg].append(number)

    def layout(self, symbols: Sequence[int], like: Layout | None = None) -> Layout:
        """`symbols` has a value for each of the Program's.

        `like` is another layout of the Program, and changes no number of this one, which takes from it what depends on none
        of the numbers that differ: `slots` and `slot_of` as wholes, and the steps of each dispatch. So a sequence that is
        one longer than another one costs little. Raises InputError, or LimitError for a limit of the target, when a check of the
        Program fails.
        """
        program, before = self.program, like.basis if like else None
        numbers = [*map(int, self._evaluate([*symbols, 0]))]  # a comparison is a bool
        values: Iterable[int] = range(len(program.values))
        dispatches: Iterable[int] = range(len(program.dispatches))
        if like is None or before is None:
            shapes: list[tuple[int, ...]] = [()] * len(program.values)
            nbytes = [0] * len(program.values)
            by_dispatch: list[tuple[Step, ...]] = [()] * len(program.dispatches)
        else:
            changed = [*itertools.compress(itertools.count(), map(operator.ne, numbers, before.numbers))]
            shapes, nbytes, by_dispatch = list(like.shapes), list(like.nbytes), list(before.steps)
            values = {v for k in changed for v in self._values_with[k]}
        for number in values:
            shapes[number] = tuple([numbers[k] for k in self.shape_places[number]])
            nbytes[number] = program.values[number].dtype.nbytes(math.prod(shapes[number]))
            if number in self.element_places and math.prod(shapes[number]) != len(self.element_places[number]):
                name = program.values[number].name
                raise InputError(
                    f"{name!r} has {len(self.element_places[number])} elements and the shape {list(shapes[number])}"
                )
        self._check_shapes([numbers[k] for k in self.condition_places], shapes, values, symbols)
        same_slots = False
        resized: frozenset[int] = frozenset()
        if like is not None and before is not None:
            resized = frozenset([v for v in values if nbytes[v] != like.nbytes[v]])
            if all(nbytes[v] and like.nbytes[v] for v in resized):  # otherwise others may have nothing to write
                dispatches = self.repeated.union(*(self._dispatches_with[k] for k in changed))
            same_slots = not any(program.values[v].storage is Storage.TEMP for v in resized)
        ends = None if before is None else before.ends
        left = MOST_STEPS
        for number in dispatches:
            steps, known = self._steps(number, numbers, nbytes, symbols, left), by_dispatch[number]
            left -= len(steps)
            if steps != known:  # what is the same stays the same objects
                by_dispatch[number] = steps
                ends = ends if len(steps) == len(known) else None
                same_slots = same_slots and bool(steps) == bool(known)
        ends = ends or list(itertools.accumulate(map(len, by_dispatch)))
        since: frozenset[int] = frozenset()
        if before is not None:
            since = _changed(self._users, by_dispatch, before.steps, dispatches, resized)
        basis = Basis(numbers, by_dispatch, ends, self._users, None if like is None else weakref.ref(like), since)
        if like is not None and same_slots:
            slots, slot_of = like.slots, like.slot_of
        else:
            slots, slot_of = slots_of(program, nbytes, [k for k, steps in enumerate(by_dispatch) if steps])
        return Layout(
            tuple(symbols),
            tuple(shapes),
            tuple(nbytes),
            {k: tuple([numbers[place] for place in own]) for k, own in self.element_places.items()},
            slots,
            slot_of,
            tuple(itertools.chain.from_iterable(by_dispatch)),
            tuple([(numbers[low], numbers[high]) for low, high in self._bounds]),
            like.aliases if like is not None and self._aliased.isdisjoint(values) else self._aliases(shapes, nbytes),
            basis,
        )

    def _aliases(self, shapes: Sequence[tuple[int, ...]], nbytes: Sequence[int]) -> tuple[tuple[int, int], ...]:
        return tuple([(a, b) for a, b in self.program.aliases if shapes[a] == shapes[b] and nbytes[a]])

    def _steps(
        self, number: int, numbers: Sequence[int], nbytes: Sequence[int], symbols: Sequence[int], most: int
    ) -> tuple[Step, ...]:
        """The runs of a dispatch, `most` at most: none when all its results are empty, whatever the kernel would look at to find
        that out."""
        variant = next((k for k, place in enumerate(self.guard_places[number]) if numbers[place]), None)
        if variant is None:
            raise self._no_way(number, "has no variant", symbols)
        count = numbers[self.workgroup_places[number][variant]]
        if not count or not any(map(nbytes.__getitem__, self._written[number])):
            return ()
        if not 0 < count <= MAX_GROUPS * MAX_GROUPS:
            raise self._no_way(number, f"would be {count} workgroups", symbols)
        grid = fold_grid(count)
        if number in self.repeated:
            return tuple(self._repetitions(number, variant, grid, nbytes, symbols, most))
        return (Step(number, variant, grid, _words([numbers[place] for place in self.uniform_places[number]])),)

    def _no_way(self, number: int, problem: str, symbols: Sequence[int]) -> LimitError:
        """The error about a dispatch for which a Program that the compiler made has a check."""
        label = self.program.kernels[self.program.dispatches[number].kernel].label
        return LimitError(f"the kernel {label!r} {problem}; {self._given(symbols)}", self.program.sizes(symbols))

    def _repetitions(
        self,
        number: int,
        variant: int,
        grid: Grid,
        nbytes: Sequence[int],
        symbols: Sequence[int],
        most: int,
    ) -> list[Step]:
        evaluate, dispatch = self._each[number], self.program.dispatches[number]
        own = len(dispatch.uniforms)
        first = evaluate([*symbols, 0])
        repeats, steps = max(first[0], 1), []
        if repeats > most:
            raise self._no_way(
                number, f"would run {repeats} times, in a run of {MOST_STEPS} dispatches at most", symbols
            )
        for k in range(repeats):
            _, *values = evaluate([*symbols, k]) if k else first
            rest = iter(values[own:])
            ranges = tuple(None if it is None else (next(rest), next(rest)) for it in dispatch.ranges)
            for arg, it in zip(dispatch.args, ranges, strict=False):
                if it is not None and nbytes[arg] and not 0 <= it[0] <= it[0] + it[1] <= nbytes[arg] + _PADDED:
                    name = self.program.values[arg].name
                    raise self._no_way(number, f"would bind the bytes {it} of the {nbytes[arg]} of {name!r}", symbols)
            steps.append(Step(number, variant, grid, _words(values[:own]), ranges if any(ranges) else (), k, repeats))
        return steps

    def _check_shapes(
        self, holds: Sequence[int], shapes: Sequence[tuple[int, ...]], values: Iterable[int], symbols: Sequence[int]
    ) -> None:
        """`values` are those whose shapes have not been looked at."""
        program = self.program
        failed = [] if all(holds) else [check for check, it in zip(program.checks, holds, strict=True) if not it]
        # First what would be wrong for any program, and what needs numbers of elements before what needs those of all sizes.
        for check in sorted(failed, key=lambda it: (it.limit, not program.is_of_elements(it))):
            message = f"{self._message(check, symbols)}; {self._given(symbols)}"
            if not check.limit:
                raise InputError(message)
            sizes = program.sizes(symbols)
            if program.is_of_elements(check):  # a Program for these does for all sizes
                sizes = {name: sizes[name] for name in sorted(program.decisive)}
            raise LimitError(message, sizes)
        wrong = min((k for k in values if shapes[k] and min(shapes[k]) < 0), default=None)
        if wrong is not None:
            name = program.values[wrong].name or "a result"
            raise InputError(f"{name} would have shape {list(shapes[wrong])}; {self._given(symbols)}")

    def _message(self, check: Check, symbols: Sequence[int]) -> str:
        """What is wrong, with the sizes of this run."""
        definitions = (*self.program.definitions, *self.program.message_definitions)
        return check.text.format(*compile_dims(check.dims, self._names, definitions)([*symbols, 0]))

    def _given(self, symbols: Sequence[int]) -> str:
        """The sizes and the elements of inputs that this run was given."""
        names = [self.program.values[v].name for v in self.program.inputs]
        given = []
        for symbol, value in zip(self.program.symbols, symbols, strict=True):
            name = names[symbol.input]
            if symbol.is_element:
                given.append(f"{name}[{symbol.index}] = {value}")
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


def fold_grid(workgroups: int) -> Grid:
    """A grid of at least this many workgroups within 65,535 per dimension; kernels ignore the surplus."""
    rows = -(-workgroups // MAX_GROUPS)
    return (-(-workgroups // rows), rows, 1)
