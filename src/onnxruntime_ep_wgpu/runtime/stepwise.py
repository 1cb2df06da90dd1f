"""Runs a plan one dispatch at a time and checks every result, for validationMode full.

In: a plan and callers' buffers. Out: the results, or an error that names the ONNX nodes of the faulty kernel:

- DeviceError: WebGPU refuses the work.
- NonFiniteError: NaN or infinity from finite inputs.
- OutOfRangeError: indices that violate an assertion of the program.

A kernel is not faulty if one of its inputs, constants included, was not finite already. Infinities are allowed if the kernel's
own text has one, as masks do. Invariant: one run at a time, because only the order of the queue separates runs that share
intermediate buffers.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ..device import Buffer, BufferBinding, Copy, Device, Place
from ..device.sizes import GRAIN, padded
from ..errors import NonFiniteError, OutOfRangeError
from ..program.dtypes import DType
from ..program.layout import MAX_GROUPS, finished, written
from ..program.program import Program, Storage
from ..records import dataclass
from .plan import Plan
from .planned import PlannedDispatch

_LOOK = Path(__file__).with_name("nonfinite.wgsl")
_BINDINGS = ("read", "read_write", "uniform")
_WATCHED = (DType.FLOAT32, DType.FLOAT16)
_SHOWN_NODES = 4


@dataclass(frozen=True)
class _Found:
    """The values of a tensor that are not finite: the first index, and their numbers."""

    index: int
    infinities: int
    nans: int


class Stepwise:
    """Runs the plans of one Executable. Thread safe."""

    def __init__(self, program: Program, device: Device, weights: Sequence[Buffer | None]) -> None:
        self._program, self._device = program, device
        self._lock = threading.Lock()
        self._pipeline = device.pipeline(_LOOK.read_text("utf-8"), _BINDINGS, "look for NaN and infinity")
        self._result = device.buffer(16, "what was found")
        self._weights: dict[int, bool] = {}  # whether a weight is finite, by value number
        self._weight_buffers = weights
        self._range_bytes = program.target.max_binding_bytes // GRAIN * GRAIN

    def run(self, plan: Plan, callers: Mapping[int, Place], before: Sequence[Copy], after: Sequence[Copy]) -> None:
        """Runs `before`, every dispatch and `after`. Raises DeviceError, NonFiniteError, OutOfRangeError."""
        with self._lock:
            self._device.submit((), before)
            finite = self._weights_of(plan)
            for value in self._program.inputs:
                finite[value] = self._nonfinite(plan, value, callers[value]) is None
                self._check_numbers(plan, value, callers[value])
            makers: dict[int, list[PlannedDispatch]] = {}  # the dispatches that wrote a value, or parts of it
            done = finished(self._program, plan.layout.steps)
            for planned, bound, values in zip(plan.dispatches, plan.bound(dict(callers)), done, strict=True):
                self._device.submit_alone(bound, f"the kernel {planned.label!r} of {self._nodes([planned])}")
                for value in written(self._program, self._program.dispatches[planned.step.dispatch]):
                    makers.setdefault(value, []).append(planned)
                for value in values:
                    self._check_value(plan, value, makers[value], callers, finite)
            self._device.submit((), (), after)

    def _weights_of(self, plan: Plan) -> dict[int, bool]:
        for number, value in enumerate(self._program.values):
            if value.storage is Storage.WEIGHT and number not in self._weights:
                buffer = self._weight_buffers[value.weight]
                self._weights[number] = buffer is None or self._nonfinite(plan, number, Place(buffer, 0)) is None
        return dict(self._weights)

    def _check_value(
        self,
        plan: Plan,
        value: int,
        makers: Sequence[PlannedDispatch],
        callers: Mapping[int, Place],
        finite: dict[int, bool],
    ) -> None:
        """Checks a value that `makers` have written. `finite` has the results for what they read."""
        kernels = [self._program.kernels[self._program.dispatches[it.step.dispatch].kernel] for it in makers]
        clean = all(finite.get(arg, True) for it in makers for arg in it.args)
        clean = clean and all(finite[source] for output, source in plan.layout.aliases if output == value)
        masks = any(kernel.makes_infinity for kernel in kernels)
        where = callers.get(value)
        if where is None:
            own = plan.buffers[value]
            assert own is not None
            where = Place(own, 0)
        found = self._nonfinite(plan, value, where)
        self._check_numbers(plan, value, where)
        finite[value] = found is None
        if found is not None and clean and (found.nans or not masks):
            raise NonFiniteError(self._message(plan, makers, value, where, found))

    def _check_numbers(self, plan: Plan, value: int, where: Place) -> None:
        """Raises OutOfRangeError for the first number of a tensor that an assertion of a node does not allow."""
        asked = [(it, plan.layout.allowed[k]) for k, it in enumerate(self._program.assertions) if it.value == value]
        dtype, shape = self._program.values[value].dtype, plan.shapes[value]
        if not asked or 0 in shape:
            return
        numbers = np.empty(shape, dtype.numpy)
        self._device.download(*where, numbers.reshape(-1).view(np.uint8).data)
        for it, (low, high) in asked:
            wrong = np.argwhere((numbers < low) | (numbers > high))
            if len(wrong):
                place = tuple(map(int, wrong[0]))
                at = f" at {list(place)}" if place else ""
                raise OutOfRangeError(
                    f"{_named(it.origin)}: the index {numbers[place]}{at} is outside {it.what}, which allows {low} to"
                    f" {high}; {len(wrong)} of {numbers.size} indices are. Look at what makes the indices"
                )

    def _nonfinite(self, plan: Plan, value: int, where: Place) -> _Found | None:
        """Returns the values of a tensor that are not finite; None if all are finite, or the type has no others."""
        dtype, shape = self._program.values[value].dtype, plan.shapes[value]
        count = int(np.prod(shape, dtype=np.int64))
        if dtype not in _WATCHED or not count:
            return None
        nbytes, step = dtype.nbytes(count), self._range_bytes
        first, infinities, nans = count, 0, 0
        for start in range(0, nbytes, step):
            index, *more = self._count_nonfinite(
                dtype, min(step, nbytes - start), Place(where.buffer, where.offset + start)
            )
            if any(more):
                first = min(first, index + start * 8 // dtype.bits)
            infinities, nans = infinities + more[0], nans + more[1]
        return _Found(first, infinities, nans) if infinities or nans else None

    def _count_nonfinite(self, dtype: DType, nbytes: int, where: Place) -> tuple[int, int, int]:
        """Returns the first such index in a range of a tensor, and the numbers of infinities and NaN."""
        device, (buffer, offset) = self._device, where
        count, words = nbytes * 8 // dtype.bits, -(-nbytes // 4)
        size = device.memory.uniform(np.array([count, words, dtype is DType.FLOAT16, 0], np.uint32).tobytes())
        device.upload(self._result, 0, np.array([0xFFFFFFFF, 0, 0, 0], np.uint32).tobytes())
        bound = min(padded(nbytes), buffer.size - offset)
        bindings = [
            BufferBinding(buffer, offset, bound),
            BufferBinding(self._result, 0, 16),
            BufferBinding(size, 0, 16),
        ]
        group = device.bind_group(self._pipeline, bindings)
        device.submit([(self._pipeline, group, (min(-(-words // 64), MAX_GROUPS), 1, 1))])
        device.caches.uniform.give(size)
        result = np.empty(4, np.uint32)
        device.download(self._result, 0, result.view(np.uint8).data)
        return int(result[0]), int(result[1]), int(result[2])

    def _message(self, plan: Plan, makers: Sequence[PlannedDispatch], value: int, where: Place, found: _Found) -> str:
        it, shape = self._program.values[value], plan.shapes[value]
        first = np.empty(1, it.dtype.numpy)
        self._device.download(where[0], where[1] + it.dtype.nbytes(found.index), first.view(np.uint8).data)
        place = [int(i) for i in np.unravel_index(found.index, shape)]
        name = repr(it.name) if it.name else "an intermediate result"
        kernels = ", ".join(dict.fromkeys(repr(made.label) for made in makers))
        return (
            f"{self._nodes(makers)} made {float(first[0])} from finite inputs: {name} {list(shape)} ({it.dtype.label}) has"
            f" {found.nans} NaN and {found.infinities} infinite values, the first at {place};"
            f" kernel {kernels}. Look at the inputs of this node (a division by zero, an overflow of the type), or"
            " leave validationMode=full when the model means it"
        )

    def _nodes(self, dispatches: Sequence[PlannedDispatch]) -> str:
        origins = (name for it in dispatches for name in self._program.dispatches[it.step.dispatch].origin)
        return _named(tuple(dict.fromkeys(origins)))


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN_NODES]))
    more = f" and {len(names) - _SHOWN_NODES} more" if len(names) > _SHOWN_NODES else ""
    return f"{'node' if len(names) == 1 else 'the fused nodes'} {shown}{more}"
