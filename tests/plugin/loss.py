"""Losing a device on purpose, as a driver does when it resets a GPU."""

from __future__ import annotations

from onnxruntime_ep_wgpu.device import Device, adapters, open_device
from onnxruntime_ep_wgpu.device.native import lib


def device_of(context: int) -> Device:
    """The live device of sessions with the option deviceId=context."""
    return open_device(adapters()[0], context)


def lose(device: Device) -> None:
    """Destroys the device between two submits: submitting to a device that is just being lost would end the process."""
    with device._lock:
        lib.wgpuDeviceDestroy(device._handle)
