"""The objects of wgpu-py and ours, as each other: both are names for objects of the same wgpu-native library.

In: a `wgpu.GPUDevice` or `wgpu.GPUBuffer` of the caller. Out: what the rest of this package works with; and the reverse.
Invariants: no pointer is followed that wgpu-py or this package did not make; an object lives as long as either side holds
it; an error is raised by the side whose call caused it. Each side has its own cffi declarations of the library, so a handle
that crosses over is cast to the other's type (`_ours`, `_theirs`).

wgpu-py has no public way to wrap a handle or to read one. What is used of its inside is all here, and the requirement
`wgpu==0.32.*` holds it in place: `_internal`, `_device` and the constructors of GPUDevice, GPUQueue, GPUAdapter and
GPUBuffer; `_api.error_handler`, whose stack of running calls says whose error it is.
"""

from __future__ import annotations

import gc
import threading
import weakref
from dataclasses import replace
from functools import cache
from typing import Any

from wgpu.backends.wgpu_native import (  # type: ignore[import-untyped,unused-ignore]
    _api,
    _ffi,
    _helpers,
)
from wgpu.backends.wgpu_native._mappings import enum_int2str  # type: ignore[import-untyped,unused-ignore]

from ..errors import DeviceError, LimitError
from ..live import Known, LiveMap
from ..program.target import WEB_BASELINE, Target
from .adapters import Adapter, adapters
from .buffers import Buffer
from .device import Device
from .settings import Settings
from .webgpu import wgpu_native
from .webgpu.header import USAGE_COPY_DST, USAGE_COPY_SRC, USAGE_STORAGE, address, ffi
from .webgpu.messages import Errors, errors

USAGES = {"STORAGE": USAGE_STORAGE, "COPY_SRC": USAGE_COPY_SRC, "COPY_DST": USAGE_COPY_DST}
# Without these no kernel can be relied on, so a device that was asked for with less is refused.
_NEEDED = {
    "max-storage-buffers-per-shader-stage": WEB_BASELINE.max_storage_buffers,
    "max-compute-invocations-per-workgroup": WEB_BASELINE.max_invocations,
    "max-compute-workgroup-size-x": WEB_BASELINE.max_invocations,
    "max-compute-workgroup-storage-size": WEB_BASELINE.max_workgroup_storage,
}


@cache
def share_errors() -> None:
    """From here on an error goes to the side whose call caused it, whoever made the device that reports it."""
    handler = _api.error_handler
    theirs = handler.handle_error

    def handle_error(kind: str, message: str) -> None:
        if handler._get_proxy_stack():  # a call of wgpu-py is running on this thread
            theirs(kind, message)
        else:
            errors.file(0, message)  # wgpu-py does not say which device

    def claim(kind: int, message: str) -> bool:
        if not handler._get_proxy_stack():
            return False
        theirs(enum_int2str["ErrorType"].get(kind, "Unknown"), message)
        return True

    handler.handle_error = handle_error
    Errors.others = staticmethod(claim)


def _ours(kind: str, handle: Any) -> Any:
    """A handle of wgpu-py in this package's declarations."""
    return ffi.cast(kind, address(handle))


def _theirs(kind: str, handle: Any) -> Any:
    """A handle of this package in wgpu-py's declarations."""
    return _ffi.ffi.cast(kind, address(handle))


# Devices


def pointers(device: Any) -> tuple[int, int]:
    """The addresses of a GPUDevice and of the instance it belongs to."""
    return address(device._internal), address(_helpers.get_wgpu_instance())


def find(pointer: int) -> Any:
    """The live GPUDevice at this address; None when wgpu-py has made none there."""
    for candidate in gc.get_objects():
        if type(candidate) is _api.GPUDevice and is_alive(candidate) and address(candidate._internal) == pointer:
            return candidate
    return None


def is_alive(device: Any) -> bool:
    """Whether a GPUDevice has not released its native object, as it does when it ends."""
    return getattr(device, "_internal", None) is not None


def is_device(value: Any) -> bool:
    """Whether this is a GPUDevice of wgpu-native."""
    return isinstance(value, _api.GPUDevice)


def adapter_of(device: Any) -> Adapter:
    """The adapter of a GPUDevice with the limits and features that the device has.

    Raises DeviceError for an adapter that is none of ours, LimitError for a device with too low limits.
    """
    info = device.adapter.info
    wanted = (info["device"], info["vendor_id"], info["device_id"], info["backend_type"])
    for adapter in adapters():
        for view in (adapter, *adapter.others):
            backend = "OpenGL" if wanted[3].startswith("OpenGL") else wanted[3]
            if (view.name, view.vendor_id, view.device_id, view.backend) == (*wanted[:3], backend):
                for name, least in _NEEDED.items():
                    _need(device, name, least)
                return replace(
                    view,
                    index=adapter.index,
                    features=frozenset(device.features),
                    limits=dict(device.limits),
                    others=(),
                )
    names = ", ".join(f"{adapter.name} ({adapter.backend})" for adapter in adapters())
    raise DeviceError(f"the wgpu device is on {wanted[0]!r} through {wanted[3]}; sessions run on {names}")


def _need(device: Any, limit: str, least: int) -> None:
    has = device.limits[limit]
    if has < least:
        raise LimitError(
            f"the wgpu device has {limit} = {has}, {least} is needed; ask for it with"
            f" adapter.request_device_sync(required_limits={{{limit!r}: {least}}})"
        )


def need_storage_buffers(device: Any, count: int) -> None:
    """Raises LimitError when kernels on a GPUDevice may bind fewer storage buffers."""
    _need(device, "max-storage-buffers-per-shader-stage", count)


def borrow(gpu_device: Any, adapter: Adapter, target: Target, settings: Settings) -> Device:
    """A GPUDevice as a Device, which keeps it alive."""
    share_errors()
    theirs = gpu_device  # in the closure that the Device holds

    def acquire(*_: Any) -> Any:
        return wgpu_native.library().owner.shared("Device", _ours("WGPUDevice", theirs._internal))

    return Device(adapter, target, acquire, settings)


_wrappers: Known[Device, weakref.ref[Any]] = Known()
_wrappers_lock = threading.Lock()


def gpu_device(device: Device) -> Any:
    """A Device as a GPUDevice, the same one while something refers to it. It keeps the Device alive. Raises DeviceError for a
    device of another library."""
    if device.queue.library is not wgpu_native.library():
        raise DeviceError(
            f"the device {device.adapter.name!r} is of the library {device.queue.library.name!r}, whose objects wgpu-py does not"
            f" know: give the session webgpuLibrary={wgpu_native.NAME}"
        )
    share_errors()
    with _wrappers_lock:
        known = _wrappers.get(device)
        wrapper = known() if known is not None else None
        if wrapper is None:
            wrapper = _wrap(device)
            _wrappers.set(device, weakref.ref(wrapper))
        return wrapper


def _wrap(device: Device) -> Any:
    adapter = device.adapter
    info = {
        "vendor": adapter.vendor,
        "architecture": "",
        "device": adapter.name,
        "description": adapter.driver,
        "vendor_id": adapter.vendor_id,
        "device_id": adapter.device_id,
        "adapter_type": adapter.type,
        "backend_type": adapter.backend,
    }
    # What wgpu-py releases at its end.
    wgpu_native.library().lib.wgpuAdapterAddRef(adapter.handle)
    wgpu_native.library().lib.wgpuDeviceAddRef(device.handle)
    handle = _theirs("WGPUDevice", device.handle)
    chip = _theirs("WGPUAdapter", adapter.handle)
    wrapper = _api.GPUDevice(
        "onnxruntime-ep-wgpu",
        handle,
        _api.GPUAdapter(chip, set(adapter.features), dict(adapter.limits), _api.GPUAdapterInfo(info)),
        _api._get_features(handle, device=True),
        _api._get_limits(handle, device=True),
        _api.GPUQueue("", _theirs("WGPUQueue", wgpu_native.library().lib.wgpuDeviceGetQueue(device.handle)), None),
    )
    wrapper._onnxruntime_ep_wgpu_device = device
    return wrapper


def wrapped(gpu_device: Any) -> Device | None:
    """The Device that a GPUDevice of `gpu_device` is another name for; None for a device of the caller."""
    found = getattr(gpu_device, "_onnxruntime_ep_wgpu_device", None)
    return found if isinstance(found, Device) else None


# Buffers

_buffers: LiveMap[int, Buffer] = LiveMap()


def adopt(gpu_buffer: Any, device: Device) -> Buffer:
    """A GPUBuffer as a Buffer of `device`, the same one every time. Raises DeviceError for one that cannot hold tensors."""
    missing = [name for name, bit in USAGES.items() if not gpu_buffer.usage & bit]
    if missing:
        raise DeviceError(
            f"the wgpu buffer {gpu_buffer.label!r} lacks the usage {' and '.join(missing)}; create it with"
            f" usage={' | '.join(f'wgpu.BufferUsage.{name}' for name in USAGES)}"
        )
    if gpu_buffer.map_state != "unmapped":
        raise DeviceError(f"the wgpu buffer {gpu_buffer.label!r} is mapped; unmap it first")
    handle = _ours("WGPUBuffer", gpu_buffer._internal)
    known = _buffers.get(address(handle))
    if known is None:
        known = device.memory.adopt(handle, gpu_buffer.size, gpu_buffer.usage, gpu_buffer.label)
        _buffers.set(address(handle), known)
    return known


def gpu_buffer(buffer: Buffer, device: Any) -> Any:
    """A Buffer as a GPUBuffer of the GPUDevice `device`."""
    wgpu_native.library().lib.wgpuBufferAddRef(buffer.handle)
    # So that it comes back as the same Buffer.
    _buffers.set(address(buffer.handle), buffer)
    handle = _theirs("WGPUBuffer", buffer.handle)
    return _api.GPUBuffer(buffer.label, handle, device, buffer.size, buffer.usage, "unmapped")
