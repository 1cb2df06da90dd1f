"""Copies between host and device memory: ONNX Runtime's data transfer, and our kernels for its Memcpy nodes.

In: pairs of tensors. Out: the same bytes at the other place, many at the cost of about one; small tensors that came from
the host keep a host copy.
The Memcpy kernels exist because with ONNX Runtime's own a fused node is handed host pointers.
Invariant: a copy to the host returns after the GPU work before it; a copy to the device need not.
"""

from __future__ import annotations

import contextlib
import math
from functools import partial
from typing import TYPE_CHECKING, Any

from ..._ort import ffi, lib
from ...device import adapters
from ...errors import DeviceError, LimitError, OutOfMemoryError
from ...program.dtypes import DType
from .. import watch
from ..abi import Ort, OrtError, address
from ..callbacks import Exported, callback, export, failed
from . import space as memory

if TYPE_CHECKING:
    from ...device import Buffer, Device

GPU, CPU, DEFAULT_MEMORY = 1, 0, 0
# Where a kernel's input or output lies when it is not on the device (ONNX Runtime's OrtMemType).
HOST_INPUT, HOST_OUTPUT = -2, -1
ANY_VERSION = (1, 2**31 - 1)
# Bits per element by ONNX type code; strings have none and stay on the host.
_BITS = {2: 8, 3: 8, 9: 8, 4: 16, 5: 16, 10: 16, 16: 16, 1: 32, 6: 32, 12: 32, 7: 64, 11: 64, 13: 64, 14: 64, 15: 128}
_BITS |= dict.fromkeys((17, 18, 19, 20, 26), 8) | dict.fromkeys((21, 22, 23), 4) | dict.fromkeys((24, 25), 2)


# ONNX Runtime numbers element types like ONNX, except the newest three.
ONNX_CODES = {24: 25, 25: 26, 26: 24}
_DTYPES = {next((ort for ort, onnx in ONNX_CODES.items() if onnx == it.code), it.code): it for it in DType}


def element_type(type_code: int) -> DType:
    """The type of ONNX Runtime's number; raises KeyError for types without a tensor layout here."""
    return _DTYPES[type_code]


def tensor_bytes(type_code: int, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor in ONNX Runtime's layout."""
    if type_code not in _BITS:
        raise DeviceError(f"tensors of ONNX type {type_code} cannot lie on a device")
    return -(-math.prod(shape) * _BITS[type_code] // 8)


def host_bytes(pointer: Any, nbytes: int) -> Any:
    """Host memory behind a pointer, as writable bytes that alias it."""
    return ffi.buffer(pointer, nbytes)


def copy(source: Any, destination: Any, nbytes: int) -> None:
    """Copies `nbytes` between two pointers, each host or device. Raises DeviceError for a NULL pointer."""
    with Batch() as batch:
        batch.copy(source, destination, nbytes)


class Batch:
    """Copies in order, `with Batch() as batch`; those between two places on one device go in one submission, and so do
    those from one device to the host. All are under way, or done, at the end of the `with`.

    A copy that depends on one that waits makes it go first.
    """

    def __init__(self) -> None:
        self._space = memory.space()
        self._device: Device | None = None
        self._copies: list[tuple[Buffer, int, Buffer, int, int]] = []
        self._downloads: list[tuple[Buffer, int, Any]] = []
        # The allocations that waiting copies read and write.
        self._read: set[int] = set()
        self._written: set[int] = set()

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, error: Any, *_: Any) -> None:
        if error is None:
            self.flush()

    def flush(self) -> None:
        """Submits what waits."""
        device, copies, downloads = self._device, self._copies, self._downloads
        self._device, self._copies, self._downloads = None, [], []
        self._read, self._written = set(), set()
        if device is not None and copies:
            device.submit((), copies)
        if device is not None and downloads:
            device.download_all(downloads)

    def copy(self, source: Any, destination: Any, nbytes: int) -> None:
        """Copies `nbytes` between two pointers, each host or device. Raises DeviceError for a NULL pointer."""
        if nbytes == 0:
            return
        if not source or not destination:
            raise DeviceError(f"no memory for a tensor of {nbytes} bytes: ONNX Runtime passed a null pointer")
        space = self._space
        from_address, to_address = address(source), address(destination)
        from_device, to_device = space.owns(from_address), space.owns(to_address)
        if from_device and to_device:
            self._within(from_address, to_address, nbytes)
        elif to_device:
            self._upload(source, to_address, nbytes)
        elif from_device:
            self._download(from_address, destination, nbytes)
        else:
            self.flush()
            ffi.memmove(destination, source, nbytes)

    def _upload(self, source: Any, to_address: int, nbytes: int) -> None:
        # Uploads happen before what is submitted after them, whatever was recorded first.
        if self._downloads or self._space.start_of(to_address) in self._read | self._written:
            self.flush()
        try:
            device, (buffer, offset) = self._space.write(to_address, nbytes)
        except (LimitError, OutOfMemoryError) as error:
            # ONNX Runtime copies inputs before it calls a node, and tells no name.
            name = watch.inputs_of_bytes(nbytes)
            if not name:
                raise
            raise type(error)(f"{name}: {error}") from None
        if nbytes <= memory.MIRROR_BYTES:
            data = bytes(host_bytes(source, nbytes))
            device.upload(buffer, offset, data)
            self._space.set_mirror(to_address, data)
        else:
            device.upload(buffer, offset, host_bytes(source, nbytes))

    def _download(self, from_address: int, destination: Any, nbytes: int) -> None:
        start = self._space.start_of(from_address)
        if self._copies or start in self._written:
            self.flush()
        known = self._space.mirror(from_address, nbytes)
        if known is not None:
            host_bytes(destination, nbytes)[:] = known
            return
        device, (buffer, offset) = self._space.read(from_address, nbytes)
        self._on(device)
        self._downloads.append((buffer, offset, host_bytes(destination, nbytes)))
        self._read.add(start)

    def _within(self, from_address: int, to_address: int, nbytes: int) -> None:
        space = self._space
        source, target = space.start_of(from_address), space.start_of(to_address)
        if self._downloads or source in self._written or target in self._read | self._written:
            self.flush()
        # The host copy of the source first: writing may drop it when both are one range.
        kept = space.mirror(from_address, nbytes) if nbytes <= memory.MIRROR_BYTES else None
        here, there = space.read(from_address, nbytes), space.write(to_address, nbytes)
        if memory.copies_on_device(here, there):
            self._on(here.device)
            self._copies.append((*here.place, *there.place, nbytes))
            self._read.add(source)
            self._written.add(target)
        else:
            self.flush()
            memory.copy(here, there, nbytes)
        if kept is not None:
            space.set_mirror(to_address, kept)

    def _on(self, device: Device) -> None:
        """What waits is on one device."""
        if self._device is not device:
            self.flush()
            self._device = device


def tensor_of(ort: Ort, value: Any) -> tuple[Any, int]:
    """(data pointer, bytes) of a tensor value."""
    tensor = ffi.new("WgpuTensor *")
    ort.check_status(lib.wgpu_tensor(ort.api, value, tensor))
    return tensor.data, tensor_bytes(tensor.type, shape_of(tensor))


def shape_of(tensor: Any) -> tuple[int, ...]:
    """The shape of a WgpuTensor."""
    return tuple(ffi.unpack(tensor.dims, tensor.rank)) if tensor.rank else ()


class DataTransfer(Exported, struct="OrtDataTransferImpl"):
    """What `copy_tensors`, `OrtValue.numpy()` and inputs without a Memcpy node use."""

    @callback("Release")
    def released(self) -> None:
        self.release()

    @callback("CanCopy")
    def can_copy(self, source: Any, destination: Any) -> bool:
        kinds = {self._kind(source), self._kind(destination)}
        return kinds in ({"ours"}, {"ours", "host"})

    def _kind(self, device: Any) -> str:
        """Whose memory it is. Other providers' vendors are not 0; `copy` refuses what is not an address of ours."""
        ep = self.ort.ep
        kind = ep.MemoryDevice_GetDeviceType(device)
        if kind == CPU:
            return "host"
        ours = (
            kind == GPU
            and ep.MemoryDevice_GetVendorId(device) == 0
            and ep.MemoryDevice_GetMemoryType(device) == DEFAULT_MEMORY
            and ep.MemoryDevice_GetDeviceId(device) < len(adapters())
        )
        return "ours" if ours else "other"

    @callback("CopyTensors", repeatable=True, device=True)
    def copy_tensors(self, sources: Any, destinations: Any, _streams: Any, count: int) -> None:
        with Batch() as batch:
            for i in range(count):
                data, nbytes = tensor_of(self.ort, sources[i])
                into, capacity = tensor_of(self.ort, destinations[i])
                if nbytes > capacity:
                    raise DeviceError(f"a tensor of {nbytes} bytes does not fit into one of {capacity} bytes")
                batch.copy(data, into, nbytes)


class MemcpyKernel(Exported, struct="OrtKernelImpl"):
    """MemcpyFromHost and MemcpyToHost alike: the pointers say which."""

    @callback("Compute", repeatable=True, device=True)
    def compute(self, context: Any) -> None:
        ort, tensor, out = self.ort, ffi.new("WgpuTensor *"), ffi.new("void **")
        ort.check_status(lib.wgpu_inputs(ort.api, context, 1, tensor))
        nbytes = tensor_bytes(tensor.type, shape_of(tensor))
        ort.check_status(lib.wgpu_outputs(ort.api, context, 1, [0], tensor.dims, [tensor.rank], out))
        copy(tensor.data, out[0], nbytes)

    @callback("Release")
    def released(self) -> None:
        self.release()


class MemcpyKernels:
    """The registry of the two Memcpy kernels under the name of one provider, for one session. `close()` gives it back.

    `made` counts the kernels that the session has asked for.
    """

    def __init__(self, ort: Ort, provider: str) -> None:
        self.ort = ort
        self.made = 0
        self.registry = ort.get_out(ort.ep.CreateKernelRegistry, "OrtKernelRegistry *")
        # ONNX Runtime hands this to CreateKernel.
        self._handle = ffi.new_handle(self)
        self._state = ffi.new("WgpuKernels *", {"handle": self._handle, "api": ort.api})
        types = []
        for code in _BITS:
            with contextlib.suppress(OrtError):  # the newest element types are unknown to an older ONNX Runtime
                types.append(ort.get(ort.ep.GetTensorDataType, code, "const OrtDataType *"))
        array = ffi.new("const OrtDataType *[]", types)
        for operator, place, where in (
            ("MemcpyFromHost", ort.ep.KernelDefBuilder_SetInputMemType, HOST_INPUT),
            ("MemcpyToHost", ort.ep.KernelDefBuilder_SetOutputMemType, HOST_OUTPUT),
        ):
            builder = ort.get_out(ort.ep.CreateKernelDefBuilder, "OrtKernelDefBuilder *")
            try:
                ort.check_status(ort.ep.KernelDefBuilder_SetOperatorType(builder, ort.string(operator)))
                ort.check_status(ort.ep.KernelDefBuilder_SetDomain(builder, ort.string("")))
                ort.check_status(ort.ep.KernelDefBuilder_SetSinceVersion(builder, *ANY_VERSION))
                ort.check_status(ort.ep.KernelDefBuilder_SetExecutionProvider(builder, ort.string(provider)))
                ort.check_status(ort.ep.KernelDefBuilder_AddTypeConstraint(builder, ort.string("T"), array, len(types)))
                ort.check_status(place(builder, 0, where))
                definition = ort.get(ort.ep.KernelDefBuilder_Build, builder, "OrtKernelDef *")
            finally:
                ort.ep.ReleaseKernelDefBuilder(builder)
            create = ffi.addressof(lib, "c_CreateKernel")
            ort.check_status(ort.ep.KernelRegistry_AddKernel(self.registry, definition, create, self._state))
            ort.ep.ReleaseKernelDef(definition)

    def close(self) -> None:
        # An interrupt can be raised behind the call, and closing begun again: the pointer goes first.
        registry, self.registry = self.registry, ffi.NULL
        if registry:
            self.ort.ep.ReleaseKernelRegistry(registry)


def _kernels(state: Any) -> MemcpyKernels:
    made: MemcpyKernels = ffi.from_handle(ffi.cast("WgpuKernels *", state).handle)
    return made


def _create_kernel(state: Any, _info: Any, out: Any) -> None:
    kernels = _kernels(state)
    kernels.made += 1
    MemcpyKernel(kernels.ort).hand_out(out)


export(
    "CreateKernel",
    lambda state: partial(_create_kernel, state),
    lambda error, state, _: failed(_kernels(state).ort, error),
)
