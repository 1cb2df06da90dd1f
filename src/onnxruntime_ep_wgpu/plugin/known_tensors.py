"""Tensors of a compiled node's earlier runs, so that a run does not inspect unchanged tensors again.

In: tensors of a run with their addresses. Out: these tensors for later runs, and the same for C code (csrc/runs.c), which
compares addresses, shapes and marks of memory. Invariant: the records keep no memory alive, and one run uses them at a time.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .._ort import ffi, lib
from ..program.dtypes import DType
from ..runtime.inputs import DeviceTensor
from ..runtime.runs.key import REMEMBERED_RUNS
from .memory import space as memory

if TYPE_CHECKING:
    from ..device import Buffer, Device
    from .memory.allocation import Marked


class _KnownTensor(NamedTuple):
    """A tensor on the device in an earlier run. The address is ONNX Runtime's."""

    dtype: DType
    shape: tuple[int, ...]
    buffer: weakref.ref[Buffer]
    offset: int
    address: int


class KnownTensors:
    """The tensors of a node's earlier run on a device. One run uses it at a time.

    `repeatable`: all tensors of this run are known now, or empty. `newest`: the number of the newest inspected allocation that
    does not stay in its buffer.
    """

    def __init__(self, signature: FusedNode, device: Device) -> None:
        self.device, self.repeatable, self.newest = device, True, 0
        inputs, outputs = len(signature.input_names), len(signature.outputs)
        self.inputs: list[_KnownTensor | None] = [None] * inputs
        self.outputs: list[_KnownTensor | None] = [None] * outputs
        self.shapes: tuple[tuple[int, ...], ...] = ()  # of the outputs
        self.c_inputs, self.c_outputs = ffi.new("Tensor[]", inputs or 1), ffi.new("Tensor[]", outputs or 1)
        self.others = ffi.new("size_t[]", max(inputs, outputs, 1))
        self.numbers = ffi.new("size_t[]", signature.outputs or (0,))
        self.data = ffi.new("void *[]", outputs or 1)
        self.dims: Any = None
        self.ranks = ffi.new("size_t[]", outputs or 1)

    def set_shapes(self, shapes: tuple[tuple[int, ...], ...]) -> None:
        """Sets the shapes of the outputs in this run."""
        if shapes == self.shapes and self.dims is not None:
            return
        self.dims = None  # set in the last step: an interrupt leaves None, and not the dims of other shapes
        for number, shape in enumerate(shapes):
            self.ranks[number] = len(shape)
        if shapes != self.shapes:
            for number, known in enumerate(self.shapes):
                if known != shapes[number]:
                    self.c_outputs[number].data = ffi.NULL
        self.shapes = shapes
        self.dims = ffi.new("int64_t[]", [extent for shape in shapes for extent in shape] or (0,))

    def rows(self, signature: FusedNode) -> Any:
        """Returns what C code compares with the tensors of the node, inputs before outputs."""
        inputs, outputs = signature.counts
        made = ffi.new("Tensor[]", max(1, inputs + outputs))
        ffi.memmove(made, self.c_inputs, inputs * ffi.sizeof("Tensor"))
        for k, number in enumerate(signature.outputs):
            made[inputs + number] = self.c_outputs[k]
        return made

    def note_empty(self, row: Any, dtype: DType, shape: tuple[int, ...]) -> None:
        """Records a tensor of this run without elements."""
        self.repeatable &= len(shape) <= lib.MOST_AXES
        if self.repeatable:
            row.marks, row.type, row.rank = ffi.NULL, dtype.code, len(shape)
            row.dims[0 : len(shape)] = shape

    def note_input(self, number: int, tensor: DeviceTensor, at: int) -> None:
        """Records an input of the fused node for later runs. `at`: its address."""
        mark = self._note(self.inputs, self.c_inputs[number], number, tensor, at)
        if tensor.value is not None:  # the contents matter, and must equal a host copy
            value, self.c_inputs[number].valued = tensor.value.tobytes(), True
            self.repeatable &= mark.mirror is not None and mark.mirror[: len(value)] == value

    def note_output(self, number: int, tensor: DeviceTensor, at: int) -> None:
        """Records an output of the group for later runs. `at`: its address."""
        mark = self._note(self.outputs, self.c_outputs[number], number, tensor, at)
        self.c_outputs[number].valued = True  # the value mark must match: C code drops no host copies
        self.repeatable &= not mark.mirrored

    def _note(self, known: list[_KnownTensor | None], row: Any, number: int, tensor: DeviceTensor, at: int) -> Marked:
        dtype, shape, place = tensor.dtype, tensor.shape, tensor.place
        mark = memory.space().marked(at, dtype.nbytes(math.prod(shape)))
        if not mark.stays:
            self.newest = max(self.newest, mark.number)
        if place is None or len(shape) > lib.MOST_AXES or mark.at is None or mark.at.place != place:
            self.repeatable = False
            return mark
        row.type, row.rank, row.valued = dtype.code, len(shape), False
        row.marks = ffi.cast("uint64_t *", mark.marks.buffer_info()[0])
        row.place, row.value = mark.place, mark.value
        row.dims[0 : len(shape)] = shape
        known[number] = _KnownTensor(dtype, shape, weakref.ref(place.buffer), place.offset, at)
        row.data = ffi.cast("void *", at)  # the last step: an interrupt leaves no incomplete row
        return mark


class FusedNode:
    """The node that ONNX Runtime put in place of a group: the names of its inputs and outputs.

    `inputs` and `outputs`: the index in the node of each input and output of the group. The node keeps the known tensors of its
    runs. `warn` writes a line to the session's log.
    """

    def __init__(
        self,
        *,
        inputs: list[int],
        outputs: list[int],
        input_names: list[str],
        output_names: list[str],
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.inputs, self.outputs, self.input_names, self.output_names = inputs, outputs, input_names, output_names
        # Names for messages, made once and not in every run.
        self.input_labels = [f"input {name!r}" for name in input_names]
        self.output_labels = [f"output {name!r}" for name in output_names]
        self._free: deque[KnownTensors] = deque(maxlen=REMEMBERED_RUNS)
        self.warn = warn

    def warn_of_copies(self, what: str, theirs: Device, ours: Device) -> None:
        """Warns once that each run copies a tensor, because it is on another device than the session's."""
        if self.warn is not None:
            warn, self.warn = self.warn, None
            warn(
                f"{what} is on a device of {theirs.queue.library.name}, the session uses a device of"
                f" {ours.queue.library.name}: each run copies it through the host (deviceId, WGPU_EP_LIBRARY)"
            )

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of inputs and outputs of the fused node."""
        return len(self.input_names), len(self.output_labels)

    def take_known(self, device: Device) -> KnownTensors:
        """Returns known tensors that no other run uses now."""
        try:
            found = self._free.pop()
        except IndexError:
            return KnownTensors(self, device)
        if found.device is not device:
            return KnownTensors(self, device)
        found.repeatable, found.newest = True, 0
        return found

    def give_back(self, known: KnownTensors) -> None:
        """Makes known tensors available to the next run."""
        self._free.append(known)
