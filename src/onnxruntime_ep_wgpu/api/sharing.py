"""Shares devices and tensors with wgpu-py without a copy, for example to render a model's output.

In: `wgpu.GPUDevice`, `wgpu.GPUBuffer`, `onnxruntime.OrtValue`. Out: the same memory as the other kind of object.
Invariants: nothing is copied. Both sides use one queue, which executes their work in call order, so neither has to wait.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import onnxruntime as ort

from .. import process
from ..errors import DeviceError
from .arguments import kind_of


class DeviceBuffer(NamedTuple):
    """A range of `nbytes` bytes at `offset` of a `wgpu.GPUBuffer`. Its usages are STORAGE, COPY_SRC and COPY_DST."""

    buffer: Any
    offset: int
    nbytes: int


def device_options(wgpu_device: Any) -> dict[str, str]:
    """Returns the provider options for a session on a `wgpu.GPUDevice`. `session(wgpu_device=...)` sets them.

    The caller must keep the device alive until the session exists; then the session keeps it alive. Raises DeviceError if the
    argument is not a device of wgpu-native.
    """
    from ..device import wgpu_py

    process.check_not_forked()
    if not wgpu_py.is_device(wgpu_device):
        raise DeviceError(f"{wgpu_device!r} is not a wgpu.GPUDevice of wgpu-native")
    device, instance = wgpu_py.pointers(wgpu_device)
    return {"webgpuInstance": str(instance), "webgpuDevice": str(device)}


def wgpu_device_of(session: Any) -> Any:
    """Returns the `wgpu.GPUDevice` of a session: the caller's own, or the session's device as an object of wgpu-py.

    Creates the device if it does not exist yet. Raises LookupError like `report`.
    """
    from ..device import wgpu_py
    from ..device.borrowed import BorrowedContext
    from .reports import state_of

    process.check_not_forked()
    context = state_of(session).context
    if isinstance(context, BorrowedContext) and context.gpu_device is not None:
        return context.gpu_device
    return wgpu_py.gpu_device(context.device())


def buffer_of(value: Any) -> DeviceBuffer:
    """Returns the memory of a tensor on a device of this provider, on the device from `wgpu_device_of`.

    The location is stable while `value` lives, whatever is written to it. The tensor owns its last word of 4 bytes completely:
    bytes of that word after the tensor's end may become 0. Raises TypeError if `value` is not an OrtValue, and DeviceError for
    a tensor in other memory or without elements."""
    from ..device import wgpu_py
    from ..plugin.memory import space as memory

    process.check_not_forked()
    if not hasattr(value, "device_name"):
        raise TypeError(
            f"value: {kind_of(value)} is not an onnxruntime.OrtValue; OrtValue.ortvalue_from_numpy(array, 'webgpu', 0) makes one"
        )
    address, nbytes = value.data_ptr(), _nbytes(value)
    if not nbytes:
        raise DeviceError(f"a tensor of shape {list(value.shape())} has no elements and no memory")
    if not memory.space().owns(address):
        raise DeviceError(
            f"the tensor is in memory of {value.device_name()!r}, not on a device of this provider;"
            " make it with device type 'webgpu'"
        )
    owner, (buffer, offset) = memory.space().lend(address, nbytes)
    return DeviceBuffer(wgpu_py.gpu_buffer(buffer, _gpu_device(owner)), offset, nbytes)


def ort_value_from(buffer: Any, dtype: Any, shape: Sequence[int], offset: int = 0) -> Any:
    """Returns an OrtValue in the memory of a `wgpu.GPUBuffer` from `offset` bytes on, which keeps the buffer alive.

    `dtype` is a numpy type or an ONNX type number. A session on the buffer's device uses the memory directly if `offset` is a
    multiple of 256; other sessions copy it. Do not `destroy()` the buffer while the value is in use. Raises DeviceError if the
    buffer is too small, mapped, or lacks a usage.
    """
    from ..device import Place, wgpu_py
    from ..device.borrowed import context_of_wgpu_device
    from ..plugin.memory import space as memory
    from ..plugin.memory.allocation import Located
    from .devices import devices

    devices()
    process.check_not_forked()
    owner_device = getattr(buffer, "_device", None)
    if not wgpu_py.is_device(owner_device):
        raise DeviceError(f"{kind_of(buffer)} is not a wgpu.GPUBuffer of wgpu-native")
    context = context_of_wgpu_device(owner_device)
    device = context.device()
    value = ort.OrtValue.ortvalue_from_shape_and_type(list(shape), dtype, "webgpu", context.adapter.index)
    nbytes = _nbytes(value)
    if not nbytes:
        return value
    # Kernels may access four words at once.
    needed = offset + -(-nbytes // 16) * 16
    if offset < 0 or offset % 4 or needed > buffer.size:
        raise DeviceError(
            f"a tensor of {nbytes} bytes at offset {offset} needs a buffer of {needed} bytes or more and an offset that is a"
            f" multiple of 4; the wgpu buffer {buffer.label!r} has {buffer.size} bytes"
        )
    place = Place(wgpu_py.adopt(buffer, device), offset)
    memory.space().adopt(value.data_ptr(), nbytes, Located(device, place))
    return value


def _gpu_device(device: Any) -> Any:
    """Returns a device as its owner's GPUDevice, or wraps one of this package."""
    from ..device import contexts, wgpu_py
    from ..device.borrowed import BorrowedContext

    for context in contexts.contexts():
        if isinstance(context, BorrowedContext) and context.current() is device and context.gpu_device is not None:
            return context.gpu_device
    return wgpu_py.gpu_device(device)


def _nbytes(value: Any) -> int:
    """Returns the bytes of a tensor in ONNX Runtime's layout."""
    from ..plugin.memory.descriptors import tensor_bytes

    return tensor_bytes(value.element_type(), tuple(value.shape())) if math.prod(value.shape()) else 0
