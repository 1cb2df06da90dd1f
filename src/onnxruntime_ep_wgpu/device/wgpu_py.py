"""Converts between the objects of wgpu-py and ours. Both refer to objects of the same wgpu-native library.

In: a `wgpu.GPUDevice` or `wgpu.GPUBuffer` of the caller. Out: a `Device` or `Buffer` of this package, and the reverse.

Invariants: only pointers from wgpu-py or this package are dereferenced. An object lives as long as either side references it. An
error is raised by the side of the call that caused it. Each side has its own cffi declarations of the library, so a handle that
changes sides is cast to the other's type (`_ours`, `_theirs`).

wgpu-py has no public way to wrap a handle or to read one. All uses of its internals are in this file, and the requirement
`wgpu==0.32.*` keeps them stable:

- `_internal`, `_device` and the constructors of GPUDevice, GPUQueue, GPUAdapter and GPUBuffer.
- `_api.error_handler`. Its stack of running calls determines the owner of an error.
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
from ..live import LiveMap, WeakAttributes
from ..program.target import WEB_BASELINE, Target
from .adapters import Adapter, adapters
from .buffers import Buffer
from .device import Device
from .settings import Settings
from .webgpu import libraries
from .webgpu.header import USAGE_COPY_DST, USAGE_COPY_SRC, USAGE_STORAGE, address, ffi
from .webgpu.messages import Errors, errors

USAGES = {"STORAGE": USAGE_STORAGE, "COPY_SRC": USAGE_COPY_SRC, "COPY_DST": USAGE_COPY_DST}
# Kernels rely on these limits, so a device that was requested with lower ones is refused.
_NEEDED = {
    "max-storage-buffers-per-shader-stage": WEB_BASELINE.max_storage_buffers,
    "max-compute-invocations-per-workgroup": WEB_BASELINE.max_invocations,
    "max-compute-workgroup-size-x": WEB_BASELINE.max_invocations,
    "max-compute-workgroup-storage-size": WEB_BASELINE.max_workgroup_storage,
}


@cache
def share_errors() -> None:
    """From now on an error goes to the side of the call that caused it, regardless of the side that made the device."""
    handler = _api.error_handler
    theirs = handler.handle_error

    def handle_error(kind: str, message: str) -> None:
        if handler._get_proxy_stack():  # a call of wgpu-py is running on this thread
            theirs(kind, message)
        else:
            errors.file(0, message)  # wgpu-py does not report the device

    def claim(kind: int, message: str) -> bool:
        if not handler._get_proxy_stack():
            return False
        theirs(enum_int2str["ErrorType"].get(kind, "Unknown"), message)
        return True

    handler.handle_error = handle_error
    Errors.others = staticmethod(claim)


def _ours(kind: str, handle: Any) -> Any:
    """Casts a handle of wgpu-py to this package's declarations."""
    return ffi.cast(kind, address(handle))


def _theirs(kind: str, handle: Any) -> Any:
    """Casts a handle of this package to wgpu-py's declarations."""
    return _ffi.ffi.cast(kind, address(handle))


# Devices


def pointers(device: Any) -> tuple[int, int]:
    """Returns the addresses of a GPUDevice and of its instance."""
    return address(device._internal), address(_helpers.get_wgpu_instance())


def find(pointer: int) -> Any:
    """Returns the live GPUDevice at this address; None if wgpu-py has none there."""
    for candidate in gc.get_objects():
        if type(candidate) is _api.GPUDevice and is_alive(candidate) and address(candidate._internal) == pointer:
            return candidate
    return None


def is_alive(device: Any) -> bool:
    """Whether a GPUDevice still has its native object, which it releases when it ends."""
    return getattr(device, "_internal", None) is not None


def is_device(value: Any) -> bool:
    """Whether this is a GPUDevice of wgpu-native."""
    return isinstance(value, _api.GPUDevice)


def adapter_of(device: Any) -> Adapter:
    """Returns the adapter of a GPUDevice, with the limits and features of the device.

    Raises DeviceError for an adapter that is not one of ours, and LimitError for a device with too low limits.
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
            f"the wgpu device has {limit} = {has}, {least} is needed; request it with"
            f" adapter.request_device_sync(required_limits={{{limit!r}: {least}}})"
        )


def need_storage_buffers(device: Any, count: int) -> None:
    """Raises LimitError if kernels on a GPUDevice can bind fewer storage buffers."""
    _need(device, "max-storage-buffers-per-shader-stage", count)


def borrow(gpu_device: Any, adapter: Adapter, target: Target, settings: Settings) -> Device:
    """Wraps a GPUDevice as a Device, which keeps it alive."""
    share_errors()
    theirs = gpu_device  # keeps the GPUDevice alive in the closure

    def acquire(*_: Any) -> Any:
        return libraries.base().owner.shared("Device", _ours("WGPUDevice", theirs._internal))

    return Device(adapter, target, acquire, settings)


_wrappers: WeakAttributes[Device, weakref.ref[Any]] = WeakAttributes()
_wrappers_lock = threading.Lock()


def gpu_device(device: Device) -> Any:
    """Returns a Device as a GPUDevice, the same one while it is referenced. It keeps the Device alive.

    Raises DeviceError for a device of another library.
    """
    if device.queue.library is not libraries.base():
        raise DeviceError(
            f"the device {device.adapter.name!r} is of the library {device.queue.library.name!r}, whose objects wgpu-py does not"
            f" support: give the session webgpuLibrary={libraries.BASE}"
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
    # wgpu-py releases these references.
    libraries.base().lib.wgpuAdapterAddRef(adapter.handle)
    libraries.base().lib.wgpuDeviceAddRef(device.handle)
    handle = _theirs("WGPUDevice", device.handle)
    chip = _theirs("WGPUAdapter", adapter.handle)
    wrapper = _api.GPUDevice(
        "onnxruntime-ep-wgpu",
        handle,
        _api.GPUAdapter(chip, set(adapter.features), dict(adapter.limits), _api.GPUAdapterInfo(info)),
        _api._get_features(handle, device=True),
        _api._get_limits(handle, device=True),
        _api.GPUQueue("", _theirs("WGPUQueue", libraries.base().lib.wgpuDeviceGetQueue(device.handle)), None),
    )
    wrapper._onnxruntime_ep_wgpu_device = device
    return wrapper


def wrapped(gpu_device: Any) -> Device | None:
    """Returns the Device that a GPUDevice wraps; None for a device of the caller."""
    found = getattr(gpu_device, "_onnxruntime_ep_wgpu_device", None)
    return found if isinstance(found, Device) else None


# Buffers

_buffers: LiveMap[int, Buffer] = LiveMap()


def adopt(gpu_buffer: Any, device: Device) -> Buffer:
    """Returns a GPUBuffer as a Buffer of `device`, always the same one. Raises DeviceError if it cannot hold tensors."""
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
    """Returns a Buffer as a GPUBuffer of the GPUDevice `device`."""
    libraries.base().lib.wgpuBufferAddRef(buffer.handle)
    # So that `adopt` returns the same Buffer.
    _buffers.set(address(buffer.handle), buffer)
    handle = _theirs("WGPUBuffer", buffer.handle)
    return _api.GPUBuffer(buffer.label, handle, device, buffer.size, buffer.usage, "unmapped")
