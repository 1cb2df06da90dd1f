"""Running a Program: plans per input shapes, callers' buffers checked and bound, one submit per run.

Invariant: a plan that a run is using keeps its buffers; others lose them when nothing has used them for some runs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from ..device import Buffer, Copy, Device, Pipeline, Recording, let_go
from ..errors import InputError, LimitError
from ..program.dtypes import DType, packed, unpacked
from ..program.postfix import Postfix, compile_dims
from ..program.program import Program, check_target, weight_array, weight_bytes, weight_names
from ..trace import Scope, listeners, span
from . import checks
from .describe import Descriptions
from .plan import Dims, Evaluator, Plan, Slice, Variant, dispatch_label
from .replay import Capture
from .settings import RunSettings
from .stepwise import Stepwise
from .temps import Temps

MAX_PLANS = 32  # sets of input shapes whose plans are kept
MAX_SPECIALISED = 8  # sets of input shapes beyond a limit whose programs are kept


class Specialise(Protocol):
    """Compiles the graph of a Program for values of its symbols; `constants` names the weights that are the model's own."""

    constants: frozenset[str]

    def __call__(self, values: Mapping[str, int]) -> Program: ...


Allocate = Callable[[int, DType, tuple[int, ...]], Slice | None]


@dataclass(frozen=True)
class DeviceTensor:
    """An input: elements at a byte offset of a buffer. `host` gives the value as numpy, for integers that set shapes."""

    dtype: DType
    shape: tuple[int, ...]
    buffer: Buffer | None  # None for an empty tensor
    offset: int = 0
    host: Callable[[], Any] | None = None

    @property
    def place(self) -> Slice | None:
        """Where it lies; None when it is empty."""
        return None if self.buffer is None else (self.buffer, self.offset)


class PlannedRun:
    """A run that is about to be submitted: its plan keeps its buffers until the `with` ends, or nobody holds this."""

    __slots__ = ("__weakref__", "_executable", "plan")

    def __init__(self, executable: Executable, plan: Plan) -> None:
        self._executable, self.plan = executable, plan
        plan.runs.add(self)

    def __enter__(self) -> Plan:
        return self.plan

    def __exit__(self, *_: object) -> None:
        self._executable._ran(self)


class Executable:
    """A Program on a device, with its weights uploaded. Many threads may run it at once."""

    def __init__(
        self,
        program: Program,
        device: Device,
        settings: RunSettings | None = None,
        specialise: Specialise | None = None,
        shared: Mapping[str, Buffer] | None = None,
    ) -> None:
        """`specialise` compiles the program for certain sizes; `shared` are weights by name that the device has."""
        check_target(program.target, device.target, f"the program {program.name!r}")
        shared = shared or {}
        self._weight_names = weight_names(program)
        self._weights: list[Buffer | None] = [
            shared.get(name) or self._upload(device, weight, name)
            for weight, name in zip(program.weights, self._weight_names, strict=True)
        ]
        self._specialise = specialise if program.symbols else None
        self._specialised: OrderedDict[tuple[Any, ...], Executable] = OrderedDict()
        self._specialising = threading.Lock()
        # The arrays may be large, or views of memory that the caller frees; from here on the device has them.
        program = replace(program, weights=())
        self.program, self.device, self.settings = program, device, settings or RunSettings()
        self.plans: OrderedDict[tuple[Any, ...], Plan] = OrderedDict()
        self.copied_inputs = 0  # inputs that had to be copied because they shared a buffer with an output
        self._lock = threading.Lock()
        self._runs = 0
        self._pipelines: dict[Variant, Pipeline] = {}  # what has been compiled, kept as long as the program
        self._temps = Temps(device.caches.storage, self.settings.temp_generations)
        self._stepwise = Stepwise(program, device, self._weights) if self.settings.stepwise else None
        self._evaluator = Evaluator(program)
        self._descriptions = Descriptions(program)
        self._elements = [s for s in program.symbols if s.is_element]
        self._expected = _InputShapes(program)
        self._empty = device.buffer(256, "empty tensor")

    @staticmethod
    def _upload(device: Device, weight: Any, name: str) -> Buffer:
        array = np.ascontiguousarray(weight_array(weight))
        buffer = device.buffer(max(array.nbytes, 16), f"the weight {name!r}")
        if array.nbytes:
            device.upload(buffer, 0, weight_bytes(array))
        return buffer

    # ---- plans

    def plan(self, inputs: Sequence[DeviceTensor]) -> Plan:
        """The plan for these inputs, made when it is new; raises InputError or LimitError before anything runs."""
        return self.planned(inputs).plan

    def planned(self, inputs: Sequence[DeviceTensor]) -> PlannedRun:
        """The plan for these inputs, which keeps its buffers during a `with` that submits a run; raises like `plan`."""
        elements = self._element_values(inputs)
        key = (tuple(t.shape for t in inputs), elements)
        with self._lock:
            found = self.plans.get(key)
            if found is not None:
                self.plans.move_to_end(key)
                return PlannedRun(self, found)
        with span("plan", self.program.name, inputs=_shapes(inputs)):
            dims = self._dims(inputs, elements)
            # Compiling takes long: outside the lock, so that runs of other shapes go on.
            self._compile(dims)
            with self._lock:
                return PlannedRun(self, self.plans.get(key) or self._make(key, dims))

    def _make(self, key: tuple[Any, ...], dims: Dims) -> Plan:
        plan = Plan(
            self.program, self.device, self._temps, self._weights, dims, self._pipelines, self.settings.plan_checks
        )
        plan.last_run = self._runs
        self.plans[key] = plan
        for old in list(self.plans)[:-MAX_PLANS]:
            if not self.plans[old].in_use:
                self.plans.pop(old).retire()
        return plan

    def _compile(self, dims: Dims) -> None:
        """The pipelines for a new set of shapes. With the second set, those of all variants: shapes change, so sooner or
        later each is wanted, and later shapes then compile nothing."""
        program = self.program
        labels = {
            (dispatch.kernel, variant): dispatch_label(program.kernels[dispatch.kernel].label, dispatch)
            for dispatch, (variant, count) in zip(program.dispatches, dims.variants, strict=True)
            if count
        }
        if self._pipelines:
            labels |= {
                (number, variant): kernel.label
                for number, kernel in enumerate(program.kernels)
                for variant in range(len(kernel.wgsl))
                if (number, variant) not in labels
            }
        new = [it for it in labels if it not in self._pipelines]
        if new:
            kernels = [(program.kernels[k].wgsl[v], program.kernels[k].all_bindings, labels[k, v]) for k, v in new]
            made = self.device.prepare(kernels, self.settings.bounds_checks)
            self._pipelines.update(zip(new, made, strict=True))

    def _ran(self, run: PlannedRun) -> None:
        """The work of a run is submitted. An interrupt leaves it to the next run to give back what is not needed."""
        with self._lock:
            run.plan.runs.discard(run)
            self._runs += 1
            run.plan.last_run = self._runs
            if len(run.plan.temps) < len(self._temps) or not self._temps.generations:
                self._give_back()
        self.device.caches.end_of_run()
        let_go()

    def _give_back(self) -> None:
        """Lets go of intermediate buffers that no run has used lately, and of the plans that were made with them.

        The plans first: others may have a buffer as soon as it is given back.
        """
        oldest = self._runs - self._temps.generations
        kept = {buffer for it in self.plans.values() if it.in_use or it.last_run > oldest for buffer in it.temps}
        gone = self._temps.others(kept)
        for key, it in list(self.plans.items()):
            if not gone.isdisjoint(it.temps):
                del self.plans[key]
                it.retire()
        self._temps.give_back(gone)

    def _element_values(self, inputs: Sequence[DeviceTensor]) -> tuple[int, ...]:
        """The elements of inputs that set a shape; they may have to be read back, which waits for the GPU."""
        return tuple(self._element(inputs[s.input], s.index) for s in self._elements)

    def _element(self, tensor: DeviceTensor, index: int) -> int:
        if tensor.host is None:
            raise InputError("an integer input that sets a shape has no value on the host")
        return int(tensor.host().reshape(-1)[index])

    def _dims(self, inputs: Sequence[DeviceTensor], elements: tuple[int, ...]) -> Any:
        shapes = [t.shape for t in inputs]
        self._expected.check_ranks(shapes, [t.dtype for t in inputs])
        symbols = self._symbols(inputs, elements)
        self._expected.check(shapes, symbols)
        return self._evaluator(symbols)

    def _symbols(self, inputs: Sequence[DeviceTensor], elements: tuple[int, ...]) -> list[int]:
        values = iter(elements)
        return [next(values) if s.is_element else inputs[s.input].shape[s.index] for s in self.program.symbols]

    # ---- sizes beyond a limit

    def fitting(self, inputs: Sequence[DeviceTensor]) -> Executable:
        """This program, or where these inputs take it beyond a limit of the device, the same compiled for their sizes.

        Raises InputError; LimitError when nothing helps.
        """
        if self._specialise is None:
            return self
        elements = self._element_values(inputs)
        key = (tuple(t.shape for t in inputs), elements)
        with self._lock:
            if key in self.plans:
                return self
        with self._specialising:
            if key not in self._specialised:
                try:
                    dims = self._dims(inputs, elements)
                    checks.limits(self.device, self.program, dims.shapes, dims.nbytes)
                    return self
                except LimitError:
                    self._specialised[key] = self._specialised_for(self._symbols(inputs, elements))
                if len(self._specialised) > MAX_SPECIALISED:
                    self._specialised.popitem(last=False)
            self._specialised.move_to_end(key)
            return self._specialised[key]

    def _specialised_for(self, symbols: Sequence[int]) -> Executable:
        assert self._specialise is not None
        values = {s.name: value for s, value in zip(self.program.symbols, symbols, strict=True)}
        with span("compile", self.program.name, **{k.lstrip("@"): v for k, v in values.items()}):
            program = self._specialise(values)
        names = zip(self._weight_names, self._weights, strict=True)
        shared = {name: buffer for name, buffer in names if buffer is not None and name in self._specialise.constants}
        return Executable(program, self.device, self.settings, shared=shared)

    # ---- runs

    def run(self, inputs: Sequence[DeviceTensor], allocate: Allocate) -> None:
        """Runs once. `allocate(i, dtype, shape)` gives output i's (buffer, byte offset), None for an empty one.

        The work is submitted when this returns, not finished: the queue orders it before later copies and runs.
        """
        fitting = self.fitting(inputs)
        with fitting.planned(inputs) as plan:
            fitting.submit(plan, [tensor.place for tensor in inputs] + fitting.outputs(plan, allocate))

    def outputs(self, plan: Plan, allocate: Allocate) -> list[Slice | None]:
        """Where the caller wants the outputs of this plan: asked once for each, in order."""
        values = self.program.values
        return [
            allocate(index, values[value].dtype, shape)
            for index, (value, shape) in enumerate(zip(self.program.outputs, plan.output_shapes, strict=True))
        ]

    def submit(self, plan: Plan, places: Sequence[Slice | None]) -> None:
        """Runs a plan once on these places: inputs, then outputs, None for empty ones."""
        callers, before, after = self._place(plan, places)
        self._submit(plan, callers, None, before, after)

    def capture(self, plan: Plan, places: Sequence[Slice | None], kept: Sequence[bool]) -> Capture:
        """What `submit` would run, to be replayed. Runs nothing.

        `kept` says for each place whether the caller keeps the tensor there. The others get buffers of the capture's
        own, which a replay copies from and to. The plan stays while the capture does.
        """
        values = (*self.program.inputs, *self.program.outputs)
        bound = list(places)
        staged: dict[int, Buffer] = {}
        for number, value in enumerate(values):
            if places[number] is not None and not kept[number]:
                staged[number] = self.device.buffer(max(16, plan.nbytes[value]), "staging")
                bound[number] = (staged[number], 0)
        callers, before, after = self._place(plan, bound)
        recording = self.device.record(plan.dispatches(callers))

        def submit(in_front: Sequence[Copy], behind: Sequence[Copy]) -> None:
            self._submit(plan, callers, recording, [*before, *in_front], [*after, *behind])

        made = Capture(plan, bound, staged, len(recording), submit)
        plan.captures.add(made)
        return made

    def _place(self, plan: Plan, places: Sequence[Slice | None]) -> tuple[dict[int, Slice], list[Copy], list[Copy]]:
        """What the dispatches bind for the callers' tensors, with the copies before and after that this needs."""
        count = len(self.program.inputs)
        # An empty result beside others of a kernel needs a buffer that no other of its tensors has.
        bound = [
            place or (self._empty if k < count else self.device.buffer(16, "empty tensor"), 0)
            for k, place in enumerate(places)
        ]
        callers = dict(zip(self.program.inputs, bound[:count], strict=True))
        results = dict(zip(self.program.outputs, bound[count:], strict=True))
        before = self._separate(plan, callers, {id(b) for b, _ in results.values()})
        after = self._align(plan, results)
        return callers | results, before, after

    def _submit(
        self,
        plan: Plan,
        callers: dict[int, Slice],
        recording: Recording | None,
        before: Sequence[Copy],
        after: Sequence[Copy],
    ) -> None:
        """Queues copies, dispatches and copies; `recording` is what `callers` are bound to, when that is known."""
        scopes = listeners()
        # Stepwise runs make bind groups dispatch by dispatch.
        if recording is None and self._stepwise is None:
            recording = plan.bind(callers)
        with self.device.captured() if self.settings.debugger_capture else nullcontext():
            if self._stepwise is not None:
                with span("submit", self.program.name, dispatches=len(plan.steps)):
                    self._stepwise.run(plan, callers, before, after)
                return
            assert recording is not None
            if scopes:
                self._submit_recorded(scopes, plan, recording, before, after)
            else:
                self.device.submit(recording, before, after, self.settings.per_submission)

    def _submit_recorded(
        self,
        scopes: Sequence[Scope],
        plan: Plan,
        recording: Recording,
        before: Sequence[Copy],
        after: Sequence[Copy],
    ) -> None:
        """Submits a run that somebody listens to; its dispatches leave timestamps where the adapter has them."""
        with span("submit", self.program.name, dispatches=len(plan.steps)):
            work = recording, before, after, self.settings.per_submission
            if not self.device.has_timestamps:
                self.device.submit(*work)
                return
            timed = self.device.submit_timed(*work)
        described = self._descriptions.of(plan)
        for scope in scopes:
            scope.dispatched(timed, described)

    def trace(
        self, inputs: Sequence[DeviceTensor], replace: Callable[[int, Any], Any] = lambda _value, _array: None
    ) -> Iterator[tuple[int, dict[int, Any]]]:
        """Runs dispatch by dispatch, for inspection: (number of the dispatch, what it wrote by value number), in order.

        `replace(value, array)` may give another array of the same type and shape, which later dispatches read instead.
        """
        with self.planned(inputs) as plan:
            yield from self._trace(plan, inputs, replace)

    def _trace(
        self, plan: Plan, inputs: Sequence[DeviceTensor], replace: Callable[[int, Any], Any]
    ) -> Iterator[tuple[int, dict[int, Any]]]:
        program, device = self.program, self.device
        callers: dict[int, Slice] = {
            v: (t.buffer or self._empty, t.offset) for v, t in zip(program.inputs, inputs, strict=True)
        }
        callers |= {v: (device.buffer(max(16, plan.nbytes[v])), 0) for v in program.outputs}
        for step, dispatch in zip(plan.steps, plan.dispatches(callers), strict=True):
            device.submit([dispatch])
            if not step.finishes:
                continue
            written = {}
            kernel = program.kernels[program.dispatches[step.number].kernel]
            for value, access in zip(step.args, kernel.bindings, strict=True):
                if access == "read_write":
                    data = np.empty(plan.nbytes[value], np.uint8)
                    buffer = plan.buffers.get(value) or callers[value][0]
                    if data.size:
                        device.download(buffer, 0, data.data)
                    written[value] = unpacked(data, program.values[value].dtype, plan.shapes[value])
                    instead = replace(value, written[value])
                    if data.size and instead is not None:
                        device.upload(buffer, 0, packed(np.asarray(instead)).data)
            yield step.number, written

    def _separate(self, plan: Plan, callers: dict[int, Slice], written: set[int]) -> list[Copy]:
        """Copies for inputs that share a buffer with an output (WebGPU forbids reading and writing one buffer in a
        dispatch, even disjoint ranges) or whose offset the adapter cannot bind."""
        copies = []
        alignment = self.device.target.offset_alignment
        for value, (buffer, offset) in list(callers.items()):
            if buffer is not self._empty and (id(buffer) in written or offset % alignment):
                nbytes = plan.nbytes[value]
                copy = plan.scratch(value)
                copies.append((buffer, offset, copy, 0, -(-nbytes // 4) * 4))
                callers[value] = (copy, 0)
                self.copied_inputs += 1
        return copies

    def _align(self, plan: Plan, results: dict[int, Slice]) -> list[Copy]:
        """Outputs at an offset the adapter cannot bind are computed elsewhere and copied."""
        copies = []
        for value, (buffer, offset) in list(results.items()):
            if offset % self.device.target.offset_alignment:
                temporary = plan.scratch(value)
                copies.append((temporary, 0, buffer, offset, plan.nbytes[value]))
                results[value] = (temporary, 0)
        return copies


def _shapes(inputs: Sequence[DeviceTensor]) -> str:
    return ", ".join(f"{t.dtype.label}{list(t.shape)}" for t in inputs)


class _InputShapes:
    """Checks that the inputs of a run are what the program was compiled for."""

    def __init__(self, program: Program) -> None:
        self.values = [program.values[v] for v in program.inputs]
        self.dims: list[tuple[int, int, Postfix]] = [
            (k, axis, d) for k, v in enumerate(self.values) for axis, d in enumerate(v.shape)
        ]
        self.evaluate = compile_dims([d for _, _, d in self.dims], [s.name for s in program.symbols])

    def check_ranks(self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[DType]) -> None:
        if len(shapes) != len(self.values):
            raise InputError(f"{len(shapes)} inputs are given, the program has {len(self.values)}")
        for value, shape, dtype in zip(self.values, shapes, dtypes, strict=True):
            if len(shape) != len(value.shape):
                raise InputError(
                    f"input {value.name!r} has rank {len(shape)} {list(shape)}, the model wants rank {len(value.shape)}"
                )
            if dtype is not value.dtype:
                raise InputError(f"input {value.name!r} is {dtype.label}, the model wants {value.dtype.label}")

    def check(self, shapes: Sequence[tuple[int, ...]], symbols: Sequence[int]) -> None:
        for (k, axis, dim), wanted in zip(self.dims, self.evaluate(symbols), strict=True):
            if shapes[k][axis] != wanted:
                name = dim if isinstance(dim, int) else " ".join(map(str, dim)).replace("$", "")
                raise InputError(
                    f"input {self.values[k].name!r} has {shapes[k][axis]} elements along axis {axis}, "
                    f"the model wants {wanted} ({name})"
                )
