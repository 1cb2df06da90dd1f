"""What is known of the tensors of a compiled node's earlier runs, so that those that are where they were are not looked at again.

In: tensors of a run with their addresses. Out: for later runs those tensors, and the same for C code (csrc/runs.c), which compares
addresses, shapes and marks of memory. Invariant: what is known keeps no memory, and one run uses it at a time.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from .._ort import ffi, lib
from ..program.dtypes import DType
from ..runtime.inputs import DeviceTensor
from ..runtime.runs.key import REMEMBERED_RUNS
from .memory import space as memory

if TYPE_CHECKING:
    from ..device import Buffer, Device
    from .memory.allocation import Marked


def write_row(row: Any, type: int, dims: tuple[int, ...], mark: Marked | None, at: int, valued: bool) -> None:
    """Writes what C code compares a tensor with: type and dims; of one that is not empty also its address and marks."""
    row.type, row.rank, row.valued = type, len(dims), valued
    row.dims[0 : len(dims)] = dims
    if mark is not None:
        row.marks = ffi.cast("uint64_t *", mark.marks.buffer_info()[0])
        row.place, row.value = mark.place, mark.value
        row.data = ffi.cast("void *", at)  # the last step: an interrupt leaves nothing half known


class _KnownTensor(NamedTuple):
    """A tensor on the device, as it was. The address is ONNX Runtime's."""

    dtype: DType
    shape: tuple[int, ...]
    buffer: weakref.ref[Buffer]
    offset: int
    address: int


class KnownTensors:
    """The tensors of a node's earlier run on a device. One run uses it at a time."""

    def __init__(self, signature: FusedNode, device: Device) -> None:
        self.device = device
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
        """Those that the outputs have in this run."""
        if shapes == self.shapes and self.dims is not None:
            return
        self.dims = None  # until the last step: an interrupt leaves none, and not those of other shapes
        for number, shape in enumerate(shapes):
            self.ranks[number] = len(shape)
        if shapes != self.shapes:
            for number, known in enumerate(self.shapes):
                if known != shapes[number]:
                    self.c_outputs[number].data = ffi.NULL
        self.shapes = shapes
        self.dims = ffi.new("int64_t[]", [extent for shape in shapes for extent in shape] or (0,))

    def note_input(self, number: int, tensor: DeviceTensor, at: int) -> None:
        """Remembers an input of the fused node, whose address is `at`, for later runs."""
        self._note(self.inputs, self.c_inputs, number, tensor, at, False)

    def note_output(self, number: int, tensor: DeviceTensor, at: int) -> None:
        """Remembers an output of the group, whose address is `at`, for later runs."""
        self._note(self.outputs, self.c_outputs, number, tensor, at, True)  # it must have no host copy later either

    def _note(
        self, known: list[_KnownTensor | None], rows: Any, number: int, tensor: DeviceTensor, at: int, valued: bool
    ) -> None:
        dtype, shape, place = tensor.dtype, tensor.shape, tensor.place
        mark = memory.space().marked(at, dtype.nbytes(math.prod(shape)))
        if place is None or len(shape) > lib.MOST_AXES or mark.at is None or mark.at.place != place:
            return
        known[number] = _KnownTensor(dtype, shape, weakref.ref(place.buffer), place.offset, at)
        write_row(rows[number], dtype.code, shape, mark, at, valued)


class FusedNode:
    """The node that ONNX Runtime put in the place of a group: the names of its inputs and outputs; `inputs` and `outputs` are the
    places among them of each input and output of the group. It keeps the tensors that are known from its runs."""

    def __init__(
        self, *, inputs: list[int], outputs: list[int], input_names: list[str], output_names: list[str]
    ) -> None:
        self.inputs, self.outputs, self.input_names, self.output_names = inputs, outputs, input_names, output_names
        # As messages name them; made once, and not in every run.
        self.input_labels = [f"input {name!r}" for name in input_names]
        self.output_labels = [f"output {name!r}" for name in output_names]
        self._free: deque[KnownTensors] = deque(maxlen=REMEMBERED_RUNS)

    @property
    def counts(self) -> tuple[int, int]:
        """How many inputs and outputs the fused node has."""
        return len(self.input_names), len(self.output_labels)

    def take_known(self, device: Device) -> KnownTensors:
        """Those that no other run is using now."""
        try:
            found = self._free.pop()
        except IndexError:
            return KnownTensors(self, device)
        return found if found.device is device else KnownTensors(self, device)

    def give_back(self, known: KnownTensors) -> None:
        """For the next run."""
        self._free.append(known)
