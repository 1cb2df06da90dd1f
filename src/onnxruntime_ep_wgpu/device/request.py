"""Requests a device from an adapter. In: an adapter and the Target of lowering. Out: the library's device handle.

Invariant: limits are WebGPU's defaults except those that `Target` names. So kernels rely on nothing that `Target` does not state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import DeviceError
from ..program.target import OURS, Target
from .adapters import Adapter
from .webgpu.callbacks import expect, on_device, on_error, on_lost
from .webgpu.header import LIMITS, constant, ffi, new, spec_name


def request_device(adapter: Adapter, target: Target, on_loss: Callable[[int, str], None], checked: bool = False) -> Any:
    """Returns a device with the limits and features of `target`. `on_loss(reason, message)` is called at most once.

    `checked`: kernels check every index, if that is a property of devices. Raises DeviceError if the adapter refuses.
    """
    library = adapter.library
    limits = new("WGPULimits *")
    own = adapter.limits
    raised = {
        "max-storage-buffers-per-shader-stage": target.max_storage_buffers,
        "max-compute-invocations-per-workgroup": target.max_invocations,
        "max-compute-workgroup-size-x": own["max-compute-workgroup-size-x"],
        "max-compute-workgroup-size-y": own["max-compute-workgroup-size-y"],
        "max-compute-workgroup-size-z": own["max-compute-workgroup-size-z"],
        "max-compute-workgroup-storage-size": target.max_workgroup_storage,
        "max-storage-buffer-binding-size": target.max_binding_bytes,
        "max-buffer-size": target.max_buffer_bytes,
    }
    for name, size in LIMITS.items():
        key = spec_name(name)
        # "undefined" requests WebGPU's default. Some limits of OpenGL are lower than that: request the adapter's own.
        undefined = (1 << 8 * size) - 1
        setattr(limits, name, raised.get(key, own.get(key, undefined) if adapter.backend == "OpenGL" else undefined))
    wanted = target.features - OURS | library.wanted & adapter.features
    numbers = [library.features[name] for name in sorted(wanted)]
    features = new("WGPUFeatureName[]", numbers or 1)
    descriptor = new("WGPUDeviceDescriptor *")
    descriptor.requiredFeatureCount = len(numbers)
    descriptor.requiredFeatures = features
    descriptor.requiredLimits = limits
    descriptor.deviceLostCallbackInfo.mode = constant("WGPUCallbackMode_AllowSpontaneous")
    descriptor.deviceLostCallbackInfo.callback = on_lost
    descriptor.deviceLostCallbackInfo.userdata1 = expect(on_loss)
    descriptor.uncapturedErrorCallbackInfo.callback = on_error
    answers: list[tuple[int, Any, str]] = []
    userdata = ffi.new_handle(answers)
    info = new("WGPURequestDeviceCallbackInfo *")
    info.callback = on_device
    info.userdata1 = userdata
    library.request_device(adapter.handle, descriptor, info, checked)
    status, handle, message = answers[0] if answers else (-1, ffi.NULL, "no answer")
    if status != constant("WGPURequestDeviceStatus_Success"):
        raise DeviceError(f"the adapter {adapter.name!r} refused a device: {library.readable(message)}")
    return library.owner.adopted("Device", handle)
