"""Losing a device on purpose, as a driver does when it resets a GPU."""

from __future__ import annotations

from onnxruntime_ep_wgpu.device import Device, adapters, encoding, open_device


def device_of(context: int) -> Device:
    """The live device of sessions with the option deviceId=context."""
    return open_device(adapters()[0], context)


def lose(device: Device) -> None:
    """Destroys the device while no thread submits to it or reads mapped memory of it, which would end the process."""
    with device.memory.reader.mapping:
        encoding.native.lib.queue_hold(device.queue.shared)
        device.queue.lib.wgpuDeviceDestroy(device.handle)
        encoding.native.lib.queue_release(device.queue.shared)
