"""One compiled group of nodes, as the node that ONNX Runtime put in its place.

In: a kernel context with the group's inputs. Out: its outputs, queued on the device.
Invariant: thread safe; a run that fails leaves nothing behind. A run that is the same as an earlier one, with the same tensors,
does not come here: it is repeated by C code (`memo.py`). Tensors that lie in host memory (ONNX Runtime may pass them at any time)
are uploaded before and downloaded after.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .._ort import ffi, lib
from ..device import Place, forget_errors
from ..errors import DeviceError, InputError
from ..program.dtypes import DType
from ..runtime.executable import Run
from ..runtime.inputs import DeviceTensor
from . import memo
from .abi import Ort, address
from .callbacks import Exported, callback
from .memory import space as memory
from .memory import transfer

if TYPE_CHECKING:
    from ..device import Buffer, Device, Recording
    from .captures import CapturedNode


class Runnable(Protocol):
    """What runs as a compiled group, with its weights on `device`: `group.AnySize`, or a tool around one."""

    @property
    def device(self) -> Device: ...

    @property
    def valued_inputs(self) -> frozenset[int]:
        """The inputs whose values set shapes."""

    def prepare(self, inputs: Sequence[DeviceTensor]) -> Run:
        """A run with these inputs, which says what its outputs are before it is queued. Thread safe."""


class Group(Protocol):
    """A compiled group, on a new device after a loss."""

    def executable(self) -> Runnable:
        """The group on the device to use now, for one run."""


class ComputeInfo(Exported, struct="OrtNodeComputeInfo"):
    """A compiled group, shared by all runs.

    `inputs` and `outputs` give the fused node's place of each input and output of the group; `input_names` and
    `output_names` are the fused node's. `captured` when the session captures its runs. `before` is called before the first
    run and may refuse it by raising.
    """

    def __init__(
        self,
        ort: Ort,
        group: Group,
        *,
        inputs: list[int],
        outputs: list[int],
        input_names: list[str],
        output_names: list[str],
        captured: CapturedNode | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(ort)
        self.group, self.inputs, self.outputs = group, inputs, outputs
        self.input_names = input_names
        # As messages name them; made once, and not in every run.
        self.input_labels = [f"input {name!r}" for name in input_names]
        self.output_labels = [f"output {name!r}" for name in output_names]
        self.captured, self._before = captured, before
        self.memos: memo.Memos | None = None
        self._noted: Runnable | None = None  # what the memos are of

    def repeat_in_c(self) -> None:
        """From here on runs that are the same as before are repeated without Python. Before ONNX Runtime gets the object."""
        if memo.native is not None and self.captured is None:
            self.memos = memo.Memos(self.ort, self.pointer, len(self.input_names), len(self.output_labels))
            self.pointer = self.memos.node

    def release(self) -> None:
        if self.memos is not None:
            self.memos.close()
        super().release()

    @callback("CreateState")
    def create_state(self, _context: Any, out: Any) -> None:
        # Nothing is kept per state; ONNX Runtime wants a pointer that is not NULL.
        out[0] = self.pointer

    @callback("ReleaseState")
    def release_state(self, _state: Any) -> None:
        pass

    @callback("Compute", repeatable=True, device=True)
    def compute(self, _state: Any, context: Any) -> None:
        if self._before is not None:
            self._before()
            self._before = None
        if self.memos is not None:
            forget_errors()
        executable = self.group.executable()
        if self._noted is not None and executable is not self._noted and self.memos is not None:
            self.memos.close()  # what was noted of another one, whose device was lost
            self._noted = None
        tensors = _Tensors(self, executable.device, context)
        try:
            with executable.prepare(tensors.inputs(executable.valued_inputs)) as run:
                outputs = tensors.outputs(run.outputs)
                if self.captured is None:
                    recording = run.submit(outputs)
                    if self.memos is not None and recording is not None:
                        self._note(self.memos, executable, run, recording, tensors, outputs)
                else:
                    self.captured.run(executable, run, outputs, tensors.addresses)
            tensors.deliver()
        finally:
            tensors.close()

    def _note(
        self,
        memos: memo.Memos,
        executable: Runnable,
        run: Run,
        recording: Recording,
        tensors: _Tensors,
        outputs: Sequence[Place | None],
    ) -> None:
        self._noted = executable
        memos.ran(run, recording, lambda: tensors.bound(run, outputs))


class _Tensors:
    """Those of one call of Compute, on `device`: where they lie, and the temporary buffers for those in host memory.

    `addresses`: the device address of every tensor so far, inputs first; 0 for one in a temporary buffer or empty.
    """

    def __init__(self, node: ComputeInfo, device: Device, context: Any) -> None:
        self.addresses: list[int] = []
        self._node, self._device, self._context = node, device, context
        self._space = memory.space()
        self._temporary: list[Buffer] = []
        self._deliveries: list[tuple[memory.Located, Any, int]] = []
        self._given: Any = None  # the inputs as ONNX Runtime has them
        self._values: dict[int, bytes] = {}  # by number of the group's input

    def inputs(self, valued: frozenset[int]) -> list[DeviceTensor]:
        """The inputs of the group as the runtime takes them, those in `valued` with their values."""
        ort, count = self._node.ort, len(self._node.input_names)
        tensors = ffi.new("WgpuTensor[]", max(1, count))
        status = lib.wgpu_inputs(ort.api, self._context, count, tensors)
        if status:
            self._require_tensors(count)
            ort.check_status(status)
        self._given = tensors
        labels = self._node.input_labels
        return [self._input(tensors[i], labels[i], k in valued) for k, i in enumerate(self._node.inputs)]

    def _require_tensors(self, count: int) -> None:
        """Raises InputError for an input that holds nothing, as one does that was fed None."""
        ort = self._node.ort
        tensors = ffi.new("WgpuTensor[]", [{"type": -1}] * count)
        status = lib.wgpu_inputs(ort.api, self._context, count, tensors)
        if status:
            ort.api.ReleaseStatus(status)
            empty = next((i for i in range(count) if tensors[i].type == -1), None)
            if empty is not None:
                raise InputError(f"input {self._node.input_names[empty]!r} is None; the model wants a tensor")

    def _input(self, tensor: Any, what: str, valued: bool) -> DeviceTensor:
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
        else:
            found = self._scratch(nbytes, what)
            self._device.upload(*found.place, transfer.host_bytes(tensor.data, nbytes))
        return DeviceTensor(dtype, shape, *found.place, value)

    def outputs(self, wanted: Sequence[tuple[DType, tuple[int, ...]]]) -> list[Place | None]:
        """Where the outputs of the group go, by type and shape; None for those that are empty."""
        return [self._output(index, dtype, shape) for index, (dtype, shape) in enumerate(wanted)]

    def _output(self, index: int, dtype: DType, shape: tuple[int, ...]) -> Place | None:
        ort, out = self._node.ort, ffi.new("void **")
        number = self._node.outputs[index]
        dims = ffi.new("int64_t[]", shape or (0,))
        ort.check_status(lib.wgpu_output(ort.api, self._context, number, dims, len(shape), out))
        nbytes = dtype.nbytes(math.prod(shape))
        what = self._node.output_labels[number]
        self.addresses.append(0)
        if not nbytes:
            return None
        at = address(out[0])
        if not at:
            raise DeviceError(f"no memory for {what} of shape {shape}, {nbytes} bytes")
        if self._space.owns(at):
            found = self._space.write(at, nbytes, what)
            if found.device is self._device:
                self.addresses[-1] = at
                return found.place
        # Host memory, or memory of another device: brought there when the run is queued.
        here = self._scratch(nbytes, what)
        self._deliveries.append((here, out[0], nbytes))
        return here.place

    def bound(self, run: Run, outputs: Sequence[Place | None]) -> list[memo.Bound]:
        """All of them as the fused node has them, inputs before outputs."""
        node, places = self._node, run.places(outputs)
        given: list[memo.Bound] = [memo.LEFT_OUT] * (len(node.input_names) + len(node.output_labels))
        for k, i in enumerate(node.inputs):
            tensor = self._given[i]
            dims = transfer.shape_of(tensor)
            nbytes = transfer.element_type(tensor.type).nbytes(math.prod(dims))
            given[i] = memo.Bound(tensor.type, dims, self.addresses[k], nbytes, places[k], self._values.get(k))
        for k, (dtype, dims) in enumerate(run.outputs, len(node.inputs)):
            i = len(node.input_names) + node.outputs[k - len(node.inputs)]
            given[i] = memo.Bound(dtype.code, dims, self.addresses[k], dtype.nbytes(math.prod(dims)), places[k])
        return given

    def deliver(self) -> None:
        """Brings outputs to the host memory, or the other device, that ONNX Runtime wants them in."""
        for here, pointer, nbytes in self._deliveries:
            if self._space.owns(address(pointer)):
                memory.copy(here, self._space.write(address(pointer), nbytes), nbytes)
            else:
                here.device.download(*here.place, transfer.host_bytes(pointer, nbytes))

    def close(self) -> None:
        """Gives the temporary buffers back; work that uses them is queued already."""
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
