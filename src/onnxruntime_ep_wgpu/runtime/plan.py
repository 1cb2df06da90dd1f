"""A Program for one set of input shapes: sizes, buffers from liveness, bind groups and the list of dispatches.

A Plan owns what depends on shapes alone. Buffers that the caller owns (inputs, outputs) arrive with each run; bind groups
that mention them are cached for a few sets of callers' buffers, all others are made once.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..device import BindGroup, Bound, Buffer, Device, Pipeline, Recording
from ..device.sizes import padded
from ..errors import InputError, LimitError
from ..live import LiveSet
from ..program.dtypes import DType
from ..program.postfix import Postfix, compile_dims
from ..program.program import REPETITION, Check, Dispatch, Program, Storage
from . import checks
from .checks import Entry
from .temps import Temps
from .uniforms import Uniforms

if TYPE_CHECKING:
    from .replay import Capture

MAX_GROUPS = 65535  # WebGPU's limit per dimension of a grid
_SHOWN = 12  # sizes that a message names
MAX_BOUND_SETS = 8  # sets of callers' buffers whose bind groups are kept

Slice = tuple[Buffer, int]  # a buffer and a byte offset
Variant = tuple[int, int]  # a kernel of the program, and a variant of it
Range = tuple[int, int]  # the first byte and the number of bytes


@dataclass
class Step:
    """A dispatch of this plan, `number` in the program. `entries` has None where a caller's buffer goes.

    A repeated dispatch is a step for each time; it `finishes` with the last.
    """

    number: int
    pipeline: Pipeline
    groups: tuple[int, int, int]
    args: tuple[int, ...]
    windows: Sequence[Range | None]
    entries: list[Entry | None]
    bound: BindGroup | None
    label: str
    repeats: int = 1
    finishes: bool = True


class Plan:
    """Ready to run for the dims it was made for.

    `pipelines` has those of all variants that `dims` take, by kernel and variant; `check` looks at limits, sizes and
    aliasing (see `checks`). `runs`, `last_run` and `captures` belong to the Executable: the runs that are using the plan,
    the number of the last one that did, and the captures that replay it.
    """

    def __init__(
        self,
        program: Program,
        device: Device,
        temps: Temps,
        weights: Sequence[Buffer | None],
        dims: Dims,
        pipelines: Mapping[Variant, Pipeline],
        check: bool = True,
    ) -> None:
        self.program, self.device, self.check = program, device, check
        self.last_run = 0
        # Whoever uses the plan holds an object for as long; nothing has to be counted down, which an interrupt could prevent.
        self.runs: LiveSet[object] = LiveSet()
        self.captures: LiveSet[Capture] = LiveSet()
        self.shapes, self.symbols, self.allowed = dims.shapes, dims.symbols, dims.allowed
        self.output_shapes = tuple(dims.shapes[v] for v in program.outputs)
        self.nbytes = dims.nbytes
        if check:
            checks.limits(device, program, self.shapes, self.nbytes)
        self._lock = threading.Lock()
        self._bound: OrderedDict[tuple[tuple[int, int], ...], Bound] = OrderedDict()
        self._scratch: dict[int, Buffer] = {}
        # Taken from the device's caches for as long as the plan lives.
        self._uniforms = Uniforms(device, [values for repeated in dims.uniforms for values in repeated])
        self._host_values: list[Buffer] = []
        buffers = self._temps(temps)
        self.temps = frozenset(buffer for buffer in buffers.values() if buffer is not None)
        for index, value in enumerate(program.values):
            if value.storage is Storage.WEIGHT:
                buffers[index] = weights[value.weight]
            elif value.storage is Storage.HOST:
                buffers[index] = self._host_value(value.dtype, dims.elements[index])
        self.buffers = buffers
        self.steps = self._steps(dims, pipelines)

    @property
    def in_use(self) -> bool:
        """Whether its buffers have to stay: a run uses them, or a capture will."""
        return bool(self.runs) or bool(self.captures)

    # ---- sizes and memory

    def _temps(self, temps: Temps) -> dict[int, Buffer | None]:
        """Slots from liveness: a slot is free again after the last dispatch that reads its value."""
        program = self.program
        last = {arg: k for k, d in enumerate(program.dispatches) for arg in d.args}
        slots: list[int] = []
        labels: list[str] = []  # the largest value of each slot, for messages
        free: list[int] = []
        slot_of: dict[int, int] = {}
        for k, dispatch in enumerate(program.dispatches):
            args = [a for a in dispatch.args if program.values[a].storage is Storage.TEMP]
            for arg in args:
                if arg not in slot_of:
                    slot_of[arg] = slot = _best_slot(slots, free, self.nbytes[arg])
                    labels += [""] * (slot - len(labels) + 1)
                    if slots[slot] == self.nbytes[arg]:
                        labels[slot] = f"the intermediate result {program.values[arg].name!r}"
            for arg in dict.fromkeys(args):
                if last[arg] == k:
                    free.append(slot_of[arg])
        buffers = temps.take(slots, labels)
        return {arg: buffers[slot] for arg, slot in slot_of.items()}

    def _host_value(self, dtype: DType, elements: Sequence[int]) -> Buffer:
        data = np.array([int(e) for e in elements], dtype.numpy).tobytes()
        buffer = self.device.caches.storage.take(max(len(data), 16), "a shape or other small value")
        self._host_values.append(buffer)
        if data:
            self.device.upload(buffer, 0, data)
        return buffer

    def retire(self) -> None:
        """Gives back what the plan alone uses; it must not run again. Its intermediate buffers belong to `Temps`."""
        storage = self.device.caches.storage
        with self._lock:
            own = [*self._host_values, *self._scratch.values()]
            # First it lets go, then the next one may have them: an interrupt in between costs a buffer that is made anew.
            self._host_values, self._scratch, self.steps = [], {}, []
            self._bound.clear()
            for buffer in own:
                storage.give(buffer)
            self._uniforms.give_back()

    # ---- dispatches

    def _steps(self, dims: Dims, pipelines: Mapping[Variant, Pipeline]) -> list[Step]:
        program = self.program
        steps = []
        for number, (dispatch, (variant, count)) in enumerate(zip(program.dispatches, dims.variants, strict=True)):
            if not count or not self._writes(dispatch):
                continue
            kernel, pipeline = program.kernels[dispatch.kernel], pipelines[dispatch.kernel, variant]
            repeats, args = len(dims.uniforms[number]), dispatch.args
            for repetition, values in enumerate(dims.uniforms[number]):
                windows: Sequence[Range | None] = (None,) * len(args)
                if dims.windows[number]:
                    windows = dims.windows[number][repetition]
                entries = [self._entry(arg, window) for arg, window in zip(args, windows, strict=True)]
                if kernel.uniforms:
                    entries.append(self._uniforms.entry(values))
                grid, finishes = fold_grid(count), repetition == repeats - 1
                step = Step(number, pipeline, grid, args, windows, entries, None, kernel.label, repeats, finishes)
                if None not in entries:
                    step.bound = self._bind(step, entries)
                steps.append(step)
        return steps

    def _writes(self, dispatch: Dispatch) -> bool:
        """False when all results are empty, whatever the kernel would look at to find that out."""
        bindings = self.program.kernels[dispatch.kernel].bindings
        results = (arg for arg, kind in zip(dispatch.args, bindings, strict=True) if kind == "read_write")
        return any(self.nbytes[arg] for arg in results)

    def _entry(self, arg: int, window: Range | None) -> Entry | None:
        buffer = self.buffers.get(arg)
        return None if buffer is None else self._bound_part(arg, window, (buffer, 0))

    def _bound_part(self, arg: int, window: Range | None, where: Slice) -> Entry:
        """What is bound of a tensor that lies at `where`."""
        (buffer, offset), (first, nbytes) = where, window or (0, self.nbytes[arg])
        return buffer, offset + first, min(padded(nbytes), buffer.size - offset - first)

    def scratch(self, value: int) -> Buffer:
        """A buffer that stands in for a caller's, the same in every run: the queue runs one after another."""
        with self._lock:
            if value not in self._scratch:
                self._scratch[value] = self.device.caches.storage.take(
                    max(16, self.nbytes[value]), f"a copy of {self.program.values[value].name!r}"
                )
            return self._scratch[value]

    def bind(self, callers: dict[int, Slice]) -> Recording:
        """The dispatches with the callers' buffers in place; `callers` maps value numbers to (buffer, byte offset)."""
        key = tuple((buffer.number, offset) for buffer, offset in callers.values())
        with self._lock:
            found = self._bound.get(key)
            recording = None if found is None else found.recording
            if recording is not None:
                self._bound.move_to_end(key)
                return recording
        recording = self.device.record(self.dispatches(callers))
        # Only what memory the callers keep is worth keeping this for: it goes with the first of their buffers.
        bound = Bound(recording, (buffer for buffer, _ in callers.values()))
        with self._lock:
            self._bound[key] = bound
            while len(self._bound) > MAX_BOUND_SETS:
                self._bound.popitem(last=False)
        return recording

    def dispatches(self, callers: dict[int, Slice]) -> list[tuple[Pipeline, BindGroup, tuple[int, int, int]]]:
        """Pipeline, bind group and grid of every step, with the callers' buffers in place."""
        out = []
        for step in self.steps:
            group = step.bound
            if group is None:
                entries = [
                    entry or self._bound_part(arg, window, callers[arg])
                    for arg, window, entry in zip(step.args, step.windows, step.entries, strict=False)
                ]
                entries += [e for e in step.entries[len(step.args) :] if e is not None]
                group = self._bind(step, entries)
            out.append((step.pipeline, group, step.groups))
        return out

    def _bind(self, step: Step, entries: Sequence[Entry | None]) -> BindGroup:
        given = [entry for entry in entries if entry is not None]
        if self.check:
            tensors = given[: len(step.args)]  # without the uniforms
            names = [self.program.values[arg].name or "an intermediate result" for arg in step.args]
            wanted = [w[1] if w else self.nbytes[arg] for arg, w in zip(step.args, step.windows, strict=True)]
            checks.sizes(names, tensors, wanted)
            checks.aliasing(step.label, names, tensors, [kind == "read_write" for kind in step.pipeline.bindings])
        return self.device.bind_group(step.pipeline, given)


@dataclass
class Dims:
    """Everything of a program that depends on shapes, as integers."""

    shapes: list[tuple[int, ...]]
    nbytes: list[int]
    elements: dict[int, list[int]]
    uniforms: list[list[list[int]]]  # per dispatch, for each time it runs
    windows: list[list[list[Range | None]]]  # per dispatch, for each time it runs; nothing where all is bound whole
    variants: list[tuple[int, int]]  # per dispatch: the variant taken and its number of workgroups
    symbols: tuple[int, ...]
    allowed: list[tuple[int, int]]  # per assertion: the least and the largest number


class Evaluator:
    """Evaluates all expressions of a program with one straight-line function."""

    def __init__(self, program: Program) -> None:
        self.program = program
        flat = [d for v in program.values for d in v.shape]
        flat += [d for v in program.values for d in v.elements]
        flat += [d for x in program.dispatches for d in (*x.uniforms, *x.guards, *x.workgroups)]
        flat += [c.condition for c in program.checks]
        flat += [d for a in program.assertions for d in (a.low, a.high)]
        names = [*(s.name for s in program.symbols), REPETITION]
        self._evaluate = compile_dims(flat, names, program.definitions)
        self._repeated = {
            number: compile_dims([it.repeats, *it.uniforms, *_flat(it.windows)], names, program.definitions)
            for number, it in enumerate(program.dispatches)
            if it.repeats != 1 or any(it.windows)
        }

    def __call__(self, symbols: Sequence[int]) -> Dims:
        """Raises InputError or LimitError when a check of the program fails for these values of its symbols."""
        numbers = iter(self._evaluate([*symbols, 0]))
        program = self.program
        shapes = [tuple(next(numbers) for _ in v.shape) for v in program.values]
        elements = {k: [next(numbers) for _ in v.elements] for k, v in enumerate(program.values)}
        uniforms, variants = [], []
        windows: list[list[list[Range | None]]] = []
        for number, dispatch in enumerate(program.dispatches):
            uniforms.append([[next(numbers) for _ in dispatch.uniforms]])
            windows.append([])
            if number in self._repeated:
                evaluate, own = self._repeated[number], len(dispatch.uniforms)
                each = [evaluate([*symbols, 0])]
                each += [evaluate([*symbols, k]) for k in range(1, each[0][0])]
                uniforms[-1] = [it[1 : own + 1] for it in each]
                if any(dispatch.windows):
                    windows[-1] = [_ranges(dispatch.windows, it[own + 1 :]) for it in each]
            guards = [next(numbers) for _ in dispatch.guards]
            counts = [next(numbers) for _ in dispatch.workgroups]
            variant = next(k for k, g in enumerate(guards) if g)
            variants.append((variant, counts[variant]))
        failed = [check for check in program.checks if not next(numbers)]
        for check in sorted(failed, key=lambda check: check.limit):  # first what would be wrong for any program
            raise (LimitError if check.limit else InputError)(f"{self._said(check, symbols)}; {self._given(symbols)}")
        if any(d < 0 for s in shapes for d in s):
            wrong = next(k for k, s in enumerate(shapes) if any(d < 0 for d in s))
            raise InputError(
                f"{program.values[wrong].name or 'a result'} would have shape {list(shapes[wrong])}; {self._given(symbols)}"
            )
        allowed = [(next(numbers), next(numbers)) for _ in program.assertions]
        nbytes = [v.dtype.nbytes(math.prod(s)) for v, s in zip(program.values, shapes, strict=True)]
        return Dims(shapes, nbytes, elements, uniforms, windows, variants, tuple(symbols), allowed)

    def _said(self, check: Check, symbols: Sequence[int]) -> str:
        """What is wrong, with the sizes of this run."""
        program = self.program
        names = [*(s.name for s in program.symbols), REPETITION]
        dims = compile_dims(list(check.dims), names, (*program.definitions, *program.said))([*symbols, 0])
        return check.text.format(*dims)

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


def _flat(windows: Sequence[tuple[Postfix, Postfix] | None]) -> list[Postfix]:
    return [dim for window in windows if window is not None for dim in window]


def _ranges(windows: Sequence[tuple[Postfix, Postfix] | None], numbers: Sequence[int]) -> list[Range | None]:
    """The windows with the values of their dims, which `_flat` has put in a row."""
    rest = iter(numbers)
    return [None if window is None else (next(rest), next(rest)) for window in windows]


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


def fold_grid(workgroups: int) -> tuple[int, int, int]:
    """A grid of at least this many workgroups within 65,535 per dimension; kernels ignore the surplus."""
    rows = -(-workgroups // MAX_GROUPS)
    return (-(-workgroups // rows), rows, 1)


def dispatch_label(kernel: str, dispatch: Dispatch) -> str:
    return f"{kernel}: {', '.join(dispatch.origin[:4])}{'...' if len(dispatch.origin) > 4 else ''}"
