"""Losing a device on purpose, as a driver does when it resets a GPU."""

from __future__ import annotations

import pytest

from onnxruntime_ep_wgpu.device import Device, adapters, encoding, open_device
from onnxruntime_ep_wgpu.device.webgpu import libraries
from onnxruntime_ep_wgpu.device.webgpu.header import address

WITH_WGPU_PY = pytest.mark.skipif(
    libraries.default_name() != "wgpu-native",
    reason="wgpu-py knows no objects of the library that WGPU_EP_LIBRARY names",
)
"""For tests of what is shared with wgpu-py."""


def device_of(context: int) -> Device:
    """The live device of sessions with the option deviceId=context."""
    return open_device(adapters()[0], context)


def lose(device: Device) -> None:
    """Loses the device while no thread submits to it or reads mapped memory of it, which would end the process."""
    with device.memory.reader.mapping:
        encoding.native.lib.queue_hold(device.queue.shared)
        if device.queue.library.name == "dawn":
            _as_a_driver_does(device)
        else:
            device.queue.lib.wgpuDeviceDestroy(device.handle)
        encoding.native.lib.queue_release(device.queue.shared)


def _as_a_driver_does(device: Device) -> None:
    """A device of Dawn's is lost. To destroy it takes its objects apart, which threads may be using: a program's mistake."""
    from wgpudawn._lib import _wgpu_dawn

    own, lib = _wgpu_dawn.ffi, _wgpu_dawn.lib
    texts = [own.new("char[]", it) for it in (b"wgpuDeviceForceLoss", b"A test loses the device.")]
    name, message = (own.new("WGPUStringView *", {"data": it, "length": len(it) - 1})[0] for it in texts)
    found = own.cast("void (*)(WGPUDevice, WGPUDeviceLostReason, WGPUStringView)", lib.wgpuGetProcAddress(name))
    found(own.cast("WGPUDevice", address(device.handle)), lib.WGPUDeviceLostReason_Unknown, message)
