"""Running a Program: plans per input shapes, callers' buffers checked and bound, one submit per run."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .device import Buffer, Device
from .dims import Postfix, compile_dims
from .dtypes import DType
from .errors import InputError
from .plan import Evaluator, Plan, Slice, TempPool
from .program import Program, check_target, weight_array, weight_bytes, weight_names

MAX_PLANS = 32  # sets of input shapes whose plans are kept


@dataclass(frozen=True)
class DeviceTensor:
    """An input: elements at a byte offset of a buffer. `host` gives the value as numpy, for integers that set shapes."""

    dtype: DType
    shape: tuple[int, ...]
    buffer: Buffer | None  # None for an empty tensor
    offset: int = 0
    host: Callable[[], Any] | None = None


class Executable:
    """A Program on a device, with its weights uploaded. Many threads may run it at once."""

    def __init__(self, program: Program, device: Device, checked: bool = False) -> None:
        check_target(program.target, device.target, f"the program {program.name!r}")
        self._weights: list[Buffer | None] = [
            self._upload(device, weight, name)
            for weight, name in zip(program.weights, weight_names(program), strict=True)
        ]
        # The arrays may be large, or views of memory that the caller frees; from here on the device has them.
        program = replace(program, weights=())
        self.program, self.device, self.checked = program, device, checked
        self.plans: OrderedDict[tuple[Any, ...], Plan] = OrderedDict()
        self.copied_inputs = 0  # inputs that had to be copied because they shared a buffer with an output
        self._lock = threading.Lock()
        self._made = 0
        self._pool = TempPool(device)
        self._evaluator = Evaluator(program)
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
        elements = tuple(self._element(inputs[s.input], s.index) for s in self._elements)
        key = (tuple(t.shape for t in inputs), elements)
        with self._lock:
            found = self.plans.get(key)
            if found is not None:
                self.plans.move_to_end(key)
                return found
            plan = Plan(
                self.program, self.device, self._pool, self._weights, self._dims(inputs, elements), self.checked
            )
            self.plans[key] = plan
            self._made += 1
            if self._made == 2:
                self._compile_variants()
            while len(self.plans) > MAX_PLANS:
                self.plans.popitem(last=False)
            return plan

    def _compile_variants(self) -> None:
        """Shapes change, so sooner or later every variant is wanted: later shapes then compile nothing."""
        kernels = self.program.kernels
        self.device.prepare([(wgsl, k.all_bindings, k.label) for k in kernels for wgsl in k.wgsl], self.checked)

    def _element(self, tensor: DeviceTensor, index: int) -> int:
        if tensor.host is None:
            raise InputError("an integer input that sets a shape has no value on the host")
        return int(tensor.host().reshape(-1)[index])

    def _dims(self, inputs: Sequence[DeviceTensor], elements: tuple[int, ...]) -> Any:
        values = iter(elements)
        shapes = [t.shape for t in inputs]
        self._expected.check_ranks(shapes, [t.dtype for t in inputs])
        symbols = [next(values) if s.is_element else shapes[s.input][s.index] for s in self.program.symbols]
        self._expected.check(shapes, symbols)
        return self._evaluator(symbols)

    # ---- runs

    def run(
        self, inputs: Sequence[DeviceTensor], allocate: Callable[[int, DType, tuple[int, ...]], Slice | None]
    ) -> None:
        """Runs once. `allocate(i, dtype, shape)` gives output i's (buffer, byte offset), None for an empty one.

        The work is submitted when this returns, not finished: the queue orders it before later copies and runs.
        """
        program = self.program
        plan = self.plan(inputs)
        callers: dict[int, Slice] = {}
        for value, tensor in zip(program.inputs, inputs, strict=True):
            callers[value] = (tensor.buffer, tensor.offset) if tensor.buffer is not None else (self._empty, 0)
        results: dict[int, Slice] = {}
        for index, (value, shape) in enumerate(zip(program.outputs, plan.output_shapes, strict=True)):
            results[value] = allocate(index, program.values[value].dtype, shape) or (self._empty, 0)
        before = self._separate(plan, callers, {id(b) for b, _ in results.values()})
        after = self._align(plan, results)
        callers.update(results)
        self.device.submit(plan.bind(callers), before)
        for source, target, offset, nbytes in after:
            self.device.copy(source, 0, target, offset, nbytes)

    def trace(
        self, inputs: Sequence[DeviceTensor], replace: Callable[[int, Any], Any] = lambda _value, _array: None
    ) -> Iterator[tuple[int, dict[int, Any]]]:
        """Runs dispatch by dispatch, for inspection: (number of the dispatch, what it wrote by value number), in order.

        `replace(value, array)` may give another array of the same type and shape, which later dispatches read instead.
        """
        program, device = self.program, self.device
        plan = self.plan(inputs)
        callers: dict[int, Slice] = {
            v: (t.buffer or self._empty, t.offset) for v, t in zip(program.inputs, inputs, strict=True)
        }
        callers |= {v: (device.buffer(max(16, plan.nbytes[v])), 0) for v in program.outputs}
        for step, dispatch in zip(plan.steps, plan.dispatches(callers), strict=True):
            device.submit([dispatch])
            written = {}
            kernel = program.kernels[program.dispatches[step.number].kernel]
            for value, access in zip(step.args, kernel.bindings, strict=True):
                if access == "read_write":
                    array = np.empty(plan.shapes[value], program.values[value].dtype.numpy)
                    buffer = plan.buffers.get(value) or callers[value][0]
                    if array.nbytes:
                        device.download(buffer, 0, array.reshape(-1).view(np.uint8).data)
                        instead = replace(value, array)
                        if instead is not None:
                            device.upload(buffer, 0, np.asarray(instead, order="C").reshape(-1).view(np.uint8).data)
                    written[value] = array
            yield step.number, written

    def _separate(
        self, plan: Plan, callers: dict[int, Slice], written: set[int]
    ) -> list[tuple[Buffer, int, Buffer, int, int]]:
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

    def _align(self, plan: Plan, results: dict[int, Slice]) -> list[tuple[Buffer, Buffer, int, int]]:
        """Outputs at an offset the adapter cannot bind are computed elsewhere and copied."""
        copies = []
        for value, (buffer, offset) in list(results.items()):
            if offset % self.device.target.offset_alignment:
                temporary = plan.scratch(value)
                copies.append((temporary, buffer, offset, plan.nbytes[value]))
                results[value] = (temporary, 0)
        return copies


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
