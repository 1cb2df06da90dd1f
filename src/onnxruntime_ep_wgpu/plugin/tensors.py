"""The tensors of one call of a compiled node: where they lie, and the temporary buffers for those in host memory.

In: a kernel context. Out: the inputs as the runtime takes them, places for the outputs. Most of them are the same from run to run,
also where shapes change in each, as those of a cache's layers are: C code says which are not (csrc/glue.h), by address, shape and
marks of their memory (`memory/space.py`), and only these are looked at. Invariant: what is known of earlier runs keeps no memory.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._ort import ffi, lib
from ..device import Place
from ..errors import DeviceError, InputError
from ..program.dtypes import DType
from ..runtime.executable import Run
from ..runtime.inputs import DeviceTensor
from . import memo
from .abi import Ort, address
from .memory import space as memory
from .memory import transfer

if TYPE_CHECKING:
    from ..device import Buffer, Device


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
        self.c_inputs, self.c_outputs = ffi.new("WgpuKnown[]", inputs or 1), ffi.new("WgpuKnown[]", outputs or 1)
        self.others = ffi.new("size_t[]", max(inputs, outputs, 1))
        self.numbers = ffi.new("size_t[]", signature.outputs or (0,))
        self.data = ffi.new("void *[]", outputs or 1)
        self.dims: Any = None
        self.ranks = ffi.new("size_t[]", outputs or 1)

    def set_shapes(self, shapes: tuple[tuple[int, ...], ...]) -> None:
        """Those that the outputs have in this run."""
        if shapes == self.shapes and self.dims is not None:
            return
        self.dims = ffi.new("int64_t[]", [extent for shape in shapes for extent in shape] or (0,))
        for number, shape in enumerate(shapes):
            self.ranks[number] = len(shape)
        if shapes != self.shapes:
            for number, known in enumerate(self.shapes):
                if known != shapes[number]:
                    self.c_outputs[number].data = ffi.NULL
        self.shapes = shapes


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
        self._seen: deque[KnownTensors] = deque(maxlen=8)

    @property
    def counts(self) -> tuple[int, int]:
        """How many inputs and outputs the fused node has."""
        return len(self.input_names), len(self.output_labels)

    def seen(self, device: Device) -> KnownTensors:
        """What no other run is using now."""
        try:
            found = self._seen.pop()
        except IndexError:
            return KnownTensors(self, device)
        return found if found.device is device else KnownTensors(self, device)

    def give_back(self, seen: KnownTensors) -> None:
        """For the next run."""
        self._seen.append(seen)


class Tensors:
    """Those of one call of Compute, on `device`.

    `addresses`: the device address of every tensor so far, inputs first; 0 for one in a temporary buffer or empty.
    """

    def __init__(self, ort: Ort, signature: FusedNode, device: Device, context: Any) -> None:
        self.addresses: list[int] = []
        self._ort, self._node, self._device, self._context = ort, signature, device, context
        self._space = memory.space()
        self._seen = signature.seen(device)
        self._temporary: list[Buffer] = []
        self._deliveries: list[tuple[memory.Located, Any, int]] = []
        self._given: Any = None  # the inputs as ONNX Runtime has them
        self._values: dict[int, bytes] = {}  # by number of the group's input

    def inputs(self, valued: frozenset[int]) -> list[DeviceTensor]:
        """The inputs of the group as the runtime takes them, those in `valued` with their values. Asked again it begins again."""
        self.addresses, self._values = [], {}
        node, seen, count = self._node, self._seen, len(self._node.input_names)
        given = self._given = ffi.new("WgpuTensor[]", max(1, count))
        status = lib.wgpu_inputs(self._ort.api, self._context, count, given)
        if status:
            self._require_tensors(count)
            self._ort.check_status(status)
        others = set(ffi.unpack(seen.others, lib.wgpu_other_inputs(given, seen.c_inputs, count, seen.others)))
        tensors: list[DeviceTensor] = []
        for k, i in enumerate(node.inputs):
            known = seen.inputs[i]
            if known is not None and i not in others and k not in valued:
                buffer = known.buffer()
                if buffer is not None:
                    tensors.append(DeviceTensor(known.dtype, known.shape, buffer, known.offset))
                    self.addresses.append(known.address)
                    continue
            tensors.append(self._input(i, k in valued))
        return tensors

    def _require_tensors(self, count: int) -> None:
        """Raises InputError for an input that holds nothing, as one does that was fed None."""
        tensors = ffi.new("WgpuTensor[]", [{"type": -1}] * count)
        status = lib.wgpu_inputs(self._ort.api, self._context, count, tensors)
        if status:
            self._ort.api.ReleaseStatus(status)
            empty = next((i for i in range(count) if tensors[i].type == -1), None)
            if empty is not None:
                raise InputError(f"input {self._node.input_names[empty]!r} is None; the model wants a tensor")

    def _input(self, number: int, valued: bool) -> DeviceTensor:
        tensor, what = self._given[number], self._node.input_labels[number]
        self._seen.c_inputs[number].data = ffi.NULL
        dtype, shape = transfer.element_type(tensor.type), transfer.shape_of(tensor)
        nbytes = dtype.nbytes(math.prod(shape))
        at = address(tensor.data)
        self.addresses.append(0)
        value = None
        if valued:
            value = read_value(tensor.data, nbytes, dtype, shape)
            self._values[len(self.addresses) - 1] = value.tobytes()
        if not nbytes:
            return DeviceTensor(dtype, shape, None, 0, value)
        if not at:
            raise DeviceError(f"no memory for {what} of shape {shape}: ONNX Runtime passed a null pointer")
        if self._space.owns(at):
            found = self._space.read(at, nbytes, what)
            if found.device is not self._device:
                here = self._scratch(nbytes, what)
                memory.copy(found, here, nbytes)
                found = here
            else:
                self.addresses[-1] = at
                seen = self._seen
                self._note(seen.inputs, seen.c_inputs, number, at, (dtype, shape, found.place))
        else:
            found = self._scratch(nbytes, what)
            self._device.upload(*found.place, transfer.host_bytes(tensor.data, nbytes))
        return DeviceTensor(dtype, shape, *found.place, value)

    def _note(
        self,
        seen: list[_KnownTensor | None],
        native: Any,
        number: int,
        at: int,
        tensor: tuple[DType, tuple[int, ...], Place],
    ) -> None:
        """Remembers a tensor of the device, the `number`th of those `seen`, for later runs."""
        dtype, shape, place = tensor
        mark = self._space.marked(at, dtype.nbytes(math.prod(shape)))
        if len(shape) > lib.WGPU_MOST_AXES or mark.at is None or mark.at.place != place:
            return
        it = native[number]
        it.type, it.rank = dtype.code, len(shape)
        it.marks = ffi.cast("uint64_t *", mark.marks.buffer_info()[0])
        it.place, it.value = mark.place, mark.value
        it.dims[0 : len(shape)] = shape
        seen[number] = _KnownTensor(dtype, shape, weakref.ref(place.buffer), place.offset, at)
        it.data = ffi.cast("void *", at)  # the last step: an interrupt leaves nothing half known

    def outputs(self, wanted: Sequence[tuple[DType, tuple[int, ...]]]) -> list[Place | None]:
        """Where the outputs of the group go, by type and shape; None for those that are empty."""
        seen, count = self._seen, len(wanted)
        seen.set_shapes(tuple([shape for _, shape in wanted]))
        made = lib.wgpu_outputs(self._ort.api, self._context, count, seen.numbers, seen.dims, seen.ranks, seen.data)
        self._ort.check_status(made)
        others = set(ffi.unpack(seen.others, lib.wgpu_other_outputs(seen.data, seen.c_outputs, count, seen.others)))
        places: list[Place | None] = []
        for index, (dtype, shape) in enumerate(wanted):
            known = seen.outputs[index]
            if known is not None and index not in others:
                buffer = known.buffer()
                if buffer is not None:
                    places.append(Place(buffer, known.offset))
                    self.addresses.append(known.address)
                    continue
            places.append(self._output(index, dtype, shape))
        return places

    def _output(self, index: int, dtype: DType, shape: tuple[int, ...]) -> Place | None:
        seen, pointer = self._seen, self._seen.data[index]
        seen.c_outputs[index].data = ffi.NULL
        nbytes = dtype.nbytes(math.prod(shape))
        what = self._node.output_labels[self._node.outputs[index]]
        self.addresses.append(0)
        if not nbytes:
            return None
        at = address(pointer)
        if not at:
            raise DeviceError(f"no memory for {what} of shape {shape}, {nbytes} bytes")
        if self._space.owns(at):
            found = self._space.write(at, nbytes, what)
            if found.device is self._device:
                self.addresses[-1] = at
                self._note(seen.outputs, seen.c_outputs, index, at, (dtype, shape, found.place))
                return found.place
        # Host memory, or memory of another device: brought there when the run is queued.
        here = self._scratch(nbytes, what)
        self._deliveries.append((here, pointer, nbytes))
        return here.place

    def of_node(self, run: Run, outputs: Sequence[Place | None]) -> list[memo.NodeTensor]:
        """All of them as the fused node has them, inputs before outputs."""
        node, places = self._node, run.places(outputs)
        given: list[memo.NodeTensor] = [memo.LEFT_OUT] * sum(node.counts)
        for k, i in enumerate(node.inputs):
            tensor = self._given[i]
            dims = transfer.shape_of(tensor)
            nbytes = transfer.element_type(tensor.type).nbytes(math.prod(dims))
            given[i] = memo.NodeTensor(tensor.type, dims, self.addresses[k], nbytes, places[k], self._values.get(k))
        for k, (dtype, dims) in enumerate(run.outputs, len(node.inputs)):
            i = len(node.input_names) + node.outputs[k - len(node.inputs)]
            given[i] = memo.NodeTensor(dtype.code, dims, self.addresses[k], dtype.nbytes(math.prod(dims)), places[k])
        return given

    def deliver(self) -> None:
        """Brings outputs to the host memory, or the other device, that ONNX Runtime wants them in."""
        for here, pointer, nbytes in self._deliveries:
            if self._space.owns(address(pointer)):
                memory.copy(here, self._space.write(address(pointer), nbytes), nbytes)
            else:
                here.device.download(*here.place, transfer.host_bytes(pointer, nbytes))

    def close(self) -> None:
        """Gives the temporary buffers back; work that uses them is queued already. The next run knows what this one has seen."""
        self._node.give_back(self._seen)
        if self._temporary and not self._device.lost:
            for buffer in self._temporary:
                self._device.caches.storage.give(buffer)

    def _scratch(self, nbytes: int, what: str) -> memory.Located:
        buffer = self._device.caches.storage.take(nbytes, f"{what} of {nbytes} bytes")
        self._temporary.append(buffer)
        return memory.Located(self._device, Place(buffer, 0))


def read_value(pointer: Any, nbytes: int, dtype: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The value of a tensor: from its host copy when there is one, else read back from the device, which waits for it."""
    data = ffi.new("char[]", max(1, nbytes))
    transfer.copy(pointer, data, nbytes)
    return np.frombuffer(ffi.buffer(data, nbytes), dtype.numpy).reshape(shape)
