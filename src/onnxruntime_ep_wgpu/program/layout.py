"""Everything of a Program that depends on shapes, as plain numbers. A host computes it before it uses its device.

In: a Program, and the values of its symbols. Out: a `Layout`, or the message of a failed check of the Program. A Layout has:

- shapes, bytes, and the elements of values known on the host.
- slots of intermediate memory, from liveness.
- the steps that run, each with its variant, grid, uniforms and ranges.

Invariant: a pure function of these inputs. It uses no device, and imports at most numpy. Native and browser hosts do the same,
and are tested with the same files (`tests/program/golden`).
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
MOST_STEPS = 1 << 20  # per run: a million dispatches take minutes to submit
_PADDED = 3  # bytes: buffers end with a whole word
_SHOWN = 12  # sizes in a message

Range = tuple[int, int]  # (first byte, number of bytes)
Grid = tuple[int, int, int]


@dataclass(frozen=True)
class Step:
    """One run of a dispatch of the Program: the kernel's variant, the workgroups, and the numbers of its uniform block (u32).

    `ranges` has the bound bytes per argument, None for all of it. It is empty if all are bound whole. A repeated dispatch is
    one step per repetition, numbered by `repetition`.
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
    """A Program for certain values of its symbols. Lists are by value number unless stated otherwise."""

    symbols: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    nbytes: tuple[int, ...]
    elements: dict[int, tuple[int, ...]]  # elements of HOST values, row-major
    slots: tuple[int, ...]  # bytes of each
    slot_of: dict[int, int]  # of TEMP values that a step uses
    steps: tuple[Step, ...]  # in execution order, without those that write nothing
    allowed: tuple[tuple[int, int], ...]  # per assertion of the Program: the least and the largest number
    aliases: tuple[tuple[int, int], ...]  # (output, input that it begins as), without empty ones
    basis: Basis = field(repr=False, compare=False)

    def changed_since(self, other: Layout, moved: Iterable[int] = ()) -> frozenset[int]:
        """Returns the dispatches that differ from those in another layout of the Program. Objects of all others can be reused.

        A dispatch differs if its steps do, if one of its values has another number of bytes, or if it uses one of `moved`,
        values that the caller has moved. Only this method decides that. It is cheap for the base of this layout.
        """
        here, there = self.basis, other.basis
        if other is self:
            found: frozenset[int] = frozenset()
        elif here.base is not None and here.base() is other:
            found = here.changed
        else:
            resized = [v for v, (now, then) in enumerate(zip(self.nbytes, other.nbytes, strict=True)) if now != then]
            found = _changed(here.users, here.steps, there.steps, range(len(here.steps)), resized)
        return found.union(*(here.users[v] for v in moved))

    def places(self, dispatch: int) -> slice:
        """Returns the range of a dispatch's steps in `steps`."""
        end = self.basis.ends[dispatch]
        return slice(end - len(self.basis.steps[dispatch]), end)

    def places_with(self, values: Iterable[int]) -> set[int]:
        """Returns the places of the steps that use one of these values."""
        basis = self.basis
        numbers = {k for v in values for k in basis.users[v]}
        return {place for k in numbers for place in range(basis.ends[k] - len(basis.steps[k]), basis.ends[k])}


@dataclass(frozen=True, eq=False)
class Basis:
    """The data of a layout from which a similar layout is made."""

    numbers: list[int]  # of all expressions
    steps: list[tuple[Step, ...]]  # by dispatch
    ends: list[int]  # by dispatch: the number of steps up to its end
    users: Sequence[Sequence[int]]  # by value: the dispatches that use it
    base: weakref.ref[Layout] | None = None  # the layout that this one was derived from
    changed: frozenset[int] = frozenset()  # the dispatches that differ from that one


def _changed(
    users: Sequence[Sequence[int]],
    now: Sequence[tuple[Step, ...]],
    before: Sequence[tuple[Step, ...]],
    among: Iterable[int],
    resized: Iterable[int],
) -> frozenset[int]:
    """See `Layout.changed_since`. Steps differ at most `among` these dispatches; `resized` values have other numbers of bytes."""
    return frozenset([k for k in among if now[k] != before[k]]).union(*(users[v] for v in resized))


class Layouts:
    """The layouts of one Program: an immutable function of its symbols.

    All expressions are compiled to one straight-line function, which calculates each once. `dims` are the expressions. Their
    values have the same places in `Basis.numbers`: `shape_places` of each value, `guard_places` of each dispatch and so on.
    Dispatches that are `repeated` or bind ranges have further numbers per repetition.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._names = [*(s.name for s in program.symbols), REPETITION]
        # The dispatches that are repeated or bind ranges. They have further numbers for each repetition.
        self.repeated = {number for number, it in enumerate(program.dispatches) if it.repeats != 1 or any(it.ranges)}
        places: dict[Postfix, int] = {}

        def of(dims: Sequence[Postfix]) -> tuple[int, ...]:
            return tuple([places.setdefault(dim, len(places)) for dim in dims])

        # The places of the numbers of each value, dispatch, check and assertion.
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
        # The reverse: the values and dispatches that use a number, by its place.
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

    def layout(self, symbols: Sequence[int], base: Layout | None = None) -> Layout:
        """Returns the layout for `symbols`, a value for each of the Program's.

        `base` is another layout of the Program. It does not affect the result, but saves work. Parts that depend only on equal
        numbers are taken from it: `slots` and `slot_of` as a whole, and the steps of each dispatch. So a sequence that is
        longer by one costs little. Raises InputError, or LimitError for a limit of the target, if a check of the Program fails.
        """
        program, before = self.program, base.basis if base else None
        numbers = [*map(int, self._evaluate([*symbols, 0]))]  # a comparison is a bool
        values: Iterable[int] = range(len(program.values))
        dispatches: Iterable[int] = range(len(program.dispatches))
        if base is None or before is None:
            shapes: list[tuple[int, ...]] = [()] * len(program.values)
            nbytes = [0] * len(program.values)
            by_dispatch: list[tuple[Step, ...]] = [()] * len(program.dispatches)
        else:
            changed = [*itertools.compress(itertools.count(), map(operator.ne, numbers, before.numbers))]
            shapes, nbytes, by_dispatch = list(base.shapes), list(base.nbytes), list(before.steps)
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
        if base is not None and before is not None:
            resized = frozenset([v for v in values if nbytes[v] != base.nbytes[v]])
            if all(nbytes[v] and base.nbytes[v] for v in resized):  # otherwise other dispatches may become empty
                dispatches = self.repeated.union(*(self._dispatches_with[k] for k in changed))
            same_slots = not any(program.values[v].storage is Storage.TEMP for v in resized)
        ends = None if before is None else before.ends
        left = MOST_STEPS
        for number in dispatches:
            steps, known = self._steps(number, numbers, nbytes, symbols, left), by_dispatch[number]
            left -= len(steps)
            if steps != known:  # equal parts stay the same objects
                by_dispatch[number] = steps
                ends = ends if len(steps) == len(known) else None
                same_slots = same_slots and bool(steps) == bool(known)
        ends = ends or list(itertools.accumulate(map(len, by_dispatch)))
        since: frozenset[int] = frozenset()
        if before is not None:
            since = _changed(self._users, by_dispatch, before.steps, dispatches, resized)
        basis = Basis(numbers, by_dispatch, ends, self._users, None if base is None else weakref.ref(base), since)
        if base is not None and same_slots:
            slots, slot_of = base.slots, base.slot_of
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
            base.aliases if base is not None and self._aliased.isdisjoint(values) else self._aliases(shapes, nbytes),
            basis,
        )

    def _aliases(self, shapes: Sequence[tuple[int, ...]], nbytes: Sequence[int]) -> tuple[tuple[int, int], ...]:
        return tuple([(a, b) for a, b in self.program.aliases if shapes[a] == shapes[b] and nbytes[a]])

    def _steps(
        self, number: int, numbers: Sequence[int], nbytes: Sequence[int], symbols: Sequence[int], most: int
    ) -> tuple[Step, ...]:
        """Returns the runs of a dispatch, `most` at most; none if all its results are empty."""
        variant = next((k for k, place in enumerate(self.guard_places[number]) if numbers[place]), None)
        if variant is None:
            raise self._dispatch_error(number, "has no variant", symbols)
        count = numbers[self.workgroup_places[number][variant]]
        if not count or not any(map(nbytes.__getitem__, self._written[number])):
            return ()
        if not 0 < count <= MAX_GROUPS * MAX_GROUPS:
            raise self._dispatch_error(number, f"would be {count} workgroups", symbols)
        grid = fold_grid(count)
        if number in self.repeated:
            return tuple(self._repetitions(number, variant, grid, nbytes, symbols, most))
        return (Step(number, variant, grid, _words([numbers[place] for place in self.uniform_places[number]])),)

    def _dispatch_error(self, number: int, problem: str, symbols: Sequence[int]) -> LimitError:
        """Returns the error of a dispatch. Programs of our compiler have a check that fails before."""
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
            raise self._dispatch_error(
                number, f"would run {repeats} times, in a run of {MOST_STEPS} dispatches at most", symbols
            )
        for k in range(repeats):
            _, *values = evaluate([*symbols, k]) if k else first
            rest = iter(values[own:])
            ranges = tuple(None if it is None else (next(rest), next(rest)) for it in dispatch.ranges)
            for arg, it in zip(dispatch.args, ranges, strict=False):
                if it is not None and nbytes[arg] and not 0 <= it[0] <= it[0] + it[1] <= nbytes[arg] + _PADDED:
                    name = self.program.values[arg].name
                    raise self._dispatch_error(
                        number, f"would bind the bytes {it} of the {nbytes[arg]} of {name!r}", symbols
                    )
            steps.append(Step(number, variant, grid, _words(values[:own]), ranges if any(ranges) else (), k, repeats))
        return steps

    def _check_shapes(
        self, holds: Sequence[int], shapes: Sequence[tuple[int, ...]], values: Iterable[int], symbols: Sequence[int]
    ) -> None:
        """Checks the conditions, and the shapes of `values`, which were not checked before."""
        program = self.program
        failed = [] if all(holds) else [check for check, it in zip(program.checks, holds, strict=True) if not it]
        # First the faults of any program, then limits of elements, and last limits of sizes.
        for check in sorted(failed, key=lambda it: (it.limit, not program.is_of_elements(it))):
            message = f"{self._message(check, symbols)}; {self._given(symbols)}"
            if not check.limit:
                raise InputError(message)
            sizes = program.sizes(symbols)
            if program.is_of_elements(check):  # a Program for these elements works for all sizes
                sizes = {name: sizes[name] for name in sorted(program.decisive)}
            raise LimitError(message, sizes)
        wrong = min((k for k in values if shapes[k] and min(shapes[k]) < 0), default=None)
        if wrong is not None:
            name = program.values[wrong].name or "a result"
            raise InputError(f"{name} would have shape {list(shapes[wrong])}; {self._given(symbols)}")

    def _message(self, check: Check, symbols: Sequence[int]) -> str:
        """Formats the message of a check with the sizes of this run."""
        definitions = (*self.program.definitions, *self.program.message_definitions)
        return check.text.format(*compile_dims(check.dims, self._names, definitions)([*symbols, 0]))

    def _given(self, symbols: Sequence[int]) -> str:
        """The sizes and the elements of the inputs of this run, in words."""
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
    """Returns the values that a dispatch writes whole or in part."""
    bindings = program.kernels[dispatch.kernel].bindings
    return tuple(dict.fromkeys(arg for arg, kind in zip(dispatch.args, bindings, strict=True) if kind == "read_write"))


def finished(program: Program, steps: Sequence[Step]) -> list[tuple[int, ...]]:
    """Returns, per step, the values that no later step writes.

    Before their last step, elements of a value are undefined: a repeated dispatch writes its results repeatedly, and several
    dispatches may store the parts of one value.
    """
    out: list[tuple[int, ...]] = []
    later: set[int] = set()
    for step in reversed(steps):
        values = written(program, program.dispatches[step.dispatch])
        out.append(tuple(value for value in values if value not in later))
        later.update(values)
    return out[::-1]


def fold_grid(workgroups: int) -> Grid:
    """Returns a grid of at least this many workgroups within 65,535 per dimension. Kernels ignore the surplus."""
    rows = -(-workgroups // MAX_GROUPS)
    return (-(-workgroups // rows), rows, 1)
