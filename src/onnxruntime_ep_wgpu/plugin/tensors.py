"""The tensors of one call of a compiled node: their places, and temporary buffers for tensors in host memory.

In: a kernel context. Out: the inputs in the form of the runtime, and places for the outputs. Most tensors are the same in every
run. Those of a cache's layers are, even if other shapes change. C code finds the others (csrc/runs.c) by address, shape and
marks of their memory (`memory/allocation.py`). Only these are inspected; `known_tensors.py` has the data of the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._ort import ffi, lib
from ..device import Place
from ..errors import DeviceError, InputError
from ..program.dtypes import DType
from ..runtime.inputs import DeviceTensor
from .abi import Ort, address
from .known_tensors import FusedNode
from .memory import allocation, copies, descriptors
from .memory import space as memory
from .memory.allocation import Located

if TYPE_CHECKING:
    from ..device import Buffer, Device


class Tensors:
    """The tensors of one call of Compute, on `device`.

    `addresses`: the device address of every tensor so far, inputs first; 0 for one that is in a temporary buffer or empty.
    `known`: the tensors that later runs need not inspect. `reads_values`: whether the value of an input was read.
    """

    def __init__(self, ort: Ort, signature: FusedNode, device: Device, context: Any) -> None:
        self.addresses: list[int] = []
        self._ort, self._node, self._device, self._context = ort, signature, device, context
        self._space = memory.space()
        self.known = signature.take_known(device)
        self._temporary: list[Buffer] = []
        self._output_copies: list[tuple[Located, Any, int]] = []
        self._given: Any = None  # the inputs from ONNX Runtime
        self.reads_values = False

    def inputs(self, valued: frozenset[int]) -> list[DeviceTensor]:
        """Returns the inputs of the group for the runtime, those in `valued` with their values. A second call starts again."""
        self.addresses, self.reads_values = [], bool(valued)
        node, known, count = self._node, self.known, len(self._node.input_names)
        given = self._given = ffi.new("Given[]", max(1, count))
        status = lib.read_inputs(self._ort.api, self._context, count, given)
        if status:
            self._require_tensors(count)
            self._ort.check_status(status)
        others = set(ffi.unpack(known.others, lib.other_inputs(given, known.c_inputs, count, known.others)))
        tensors: list[DeviceTensor] = []
        for k, i in enumerate(node.inputs):
            it = known.inputs[i]
            if it is not None and i not in others and k not in valued:
                buffer = it.buffer()
                if buffer is not None:
                    tensors.append(DeviceTensor(it.dtype, it.shape, buffer, it.offset))
                    self.addresses.append(it.address)
                    continue
            tensors.append(self._input(i, k in valued))
        return tensors

    def _require_tensors(self, count: int) -> None:
        """Raises InputError for an input without a tensor. The caller passed None for it."""
        tensors = ffi.new("Given[]", [{"type": -1}] * count)
        status = lib.read_inputs(self._ort.api, self._context, count, tensors)
        if status:
            self._ort.api.ReleaseStatus(status)
            empty = next((i for i in range(count) if tensors[i].type == -1), None)
            if empty is not None:
                raise InputError(f"input {self._node.input_names[empty]!r} is None; the model needs a tensor")

    def _input(self, number: int, valued: bool) -> DeviceTensor:
        tensor, what = self._given[number], self._node.input_labels[number]
        self.known.c_inputs[number].data = ffi.NULL
        dtype, shape = descriptors.element_type(tensor.type), descriptors.shape_of(tensor)
        nbytes = dtype.nbytes(math.prod(shape))
        at = address(tensor.data)
        self.addresses.append(0)
        value = None
        if valued:
            value = read_value(tensor.data, nbytes, dtype, shape)
        if not nbytes:
            self.known.note_empty(self.known.c_inputs[number], dtype, shape)
            return DeviceTensor(dtype, shape, None, 0, value)
        if not at:
            raise DeviceError(f"no memory for {what} of shape {shape}: ONNX Runtime passed a null pointer")
        if self._space.owns(at):
            found = self._space.read(at, nbytes, what)
            theirs = found.device
            if theirs is not self._device:
                found = self._space.move(at, nbytes, self._device, what, keeps=True) or found
            if found.device is not self._device:
                self._node.warn_of_copies(what, theirs, self._device)
                here = self.scratch(nbytes, what)
                allocation.copy(found, here, nbytes)
                found = here
            else:
                self.addresses[-1] = at
                self.known.note_input(number, DeviceTensor(dtype, shape, *found.place, value), at)
        else:
            found = self.scratch(nbytes, what)
            self._device.upload(*found.place, copies.host_bytes(tensor.data, nbytes))
        return DeviceTensor(dtype, shape, *found.place, value)

    def outputs(self, wanted: Sequence[tuple[DType, tuple[int, ...]]]) -> list[Place | None]:
        """Returns the places of the group's outputs with these types and shapes; None for empty ones."""
        known, count = self.known, len(wanted)
        known.set_shapes(tuple([shape for _, shape in wanted]))
        made = lib.make_outputs(self._ort.api, self._context, count, known.numbers, known.dims, known.ranks, known.data)
        self._ort.check_status(made)
        others = set(ffi.unpack(known.others, lib.other_outputs(known.data, known.c_outputs, count, known.others)))
        places: list[Place | None] = []
        for index, (dtype, shape) in enumerate(wanted):
            it = known.outputs[index]
            if it is not None and index not in others:
                buffer = it.buffer()
                if buffer is not None:
                    places.append(Place(buffer, it.offset))
                    self.addresses.append(it.address)
                    continue
            places.append(self._output(index, dtype, shape))
        return places

    def _output(self, index: int, dtype: DType, shape: tuple[int, ...]) -> Place | None:
        known, pointer = self.known, self.known.data[index]
        known.c_outputs[index].data = ffi.NULL
        nbytes = dtype.nbytes(math.prod(shape))
        what = self._node.output_labels[self._node.outputs[index]]
        self.addresses.append(0)
        if not nbytes:
            known.note_empty(known.c_outputs[index], dtype, shape)
            return None
        at = address(pointer)
        if not at:
            raise DeviceError(f"no memory for {what} of shape {shape}, {nbytes} bytes")
        if self._space.owns(at):
            found = self._space.write(at, nbytes, what)
            if found.device is not self._device:
                found = self._space.move(at, nbytes, self._device, what, keeps=False) or found
            if found.device is self._device:
                self.addresses[-1] = at
                known.note_output(index, DeviceTensor(dtype, shape, *found.place), at)
                return found.place
            self._node.warn_of_copies(what, found.device, self._device)
        # Host memory, or memory of another device: `copy_outputs` copies the output there.
        here = self.scratch(nbytes, what)
        self._output_copies.append((here, pointer, nbytes))
        return here.place

    def copy_outputs(self) -> None:
        """Copies outputs to the host memory, or the other device, where ONNX Runtime requires them."""
        for here, pointer, nbytes in self._output_copies:
            if self._space.owns(address(pointer)):
                allocation.copy(here, self._space.write(address(pointer), nbytes), nbytes)
            else:
                here.device.download(*here.place, copies.host_bytes(pointer, nbytes))

    def close(self) -> None:
        """Gives the temporary buffers back; their work is queued already. The next run may use this one's known tensors."""
        self._node.give_back(self.known)
        if self._temporary and not self._device.lost:
            for buffer in self._temporary:
                self._device.caches.storage.give(buffer)

    def scratch(self, nbytes: int, what: str) -> Located:
        """Returns memory on the device until the run ends."""
        self.known.repeatable = False
        buffer = self._device.caches.storage.take(nbytes, f"{what} of {nbytes} bytes")
        self._temporary.append(buffer)
        return Located(self._device, Place(buffer, 0))


def read_value(pointer: Any, nbytes: int, dtype: DType, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Returns the value of a tensor, from its host copy if there is one. Otherwise waits for the device and reads it back."""
    data = ffi.new("char[]", max(1, nbytes))
    space, at = memory.space(), address(pointer)
    if nbytes and space.owns(at):
        space.note_read(at)
    copies.copy(pointer, data, nbytes)
    return np.frombuffer(ffi.buffer(data, nbytes), dtype.numpy).reshape(shape)
