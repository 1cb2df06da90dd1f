"""Contexts for devices that the caller made through wgpu-py. In: a `wgpu.GPUDevice`, or its address. Out: `Context`.

Invariants:

- A device is used as it is: kernels are compiled for its own features and limits.
- One GPUDevice has one context.
- An address is never dereferenced. It is only looked up among the existing devices.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection
from typing import Any

from ..errors import DeviceLostError, OptionError
from . import wgpu_py
from .contexts import ALL, Context, Member, claim, contexts, release
from .device import Device
from .settings import DEFAULT, Settings

# First number for contexts of borrowed devices without a deviceId.
UNNUMBERED = 1 << 30


class BorrowedContext(Context):
    """A context for a GPUDevice of the caller, which stays alive while sessions or tensors use it."""

    def __init__(self, gpu_device: Any, number: int) -> None:
        super().__init__(wgpu_py.adapter_of(gpu_device), number)
        self._borrowed = weakref.ref(gpu_device)
        self._held: Any = None

    @property
    def gpu_device(self) -> Any:
        """The caller's device; None after it was freed."""
        device = self._borrowed()
        return device if device is not None and wgpu_py.is_alive(device) else None

    def _open(self) -> Device:
        before, device = self._device() if self._device is not None else None, self.gpu_device
        if device is None or (before is not None and before.lost):
            raise DeviceLostError(
                f"the wgpu device of {self.adapter.name!r} that sessions with deviceId {self.number} were given is"
                f" {'gone' if device is None else 'lost'}; make a new device and a new session"
            )
        return wgpu_py.borrow(device, self.adapter, self.target, self.settings)

    def apply_settings(self, settings: Settings, fields_set: Collection[str] = ALL) -> None:
        if "storage_buffers" in fields_set:
            wgpu_py.need_storage_buffers(self.gpu_device, settings.storage_buffers)
        super().apply_settings(settings, fields_set)

    def join(self, settings: Settings = DEFAULT, fields_set: Collection[str] = ALL, preserve: bool = False) -> Member:
        member = super().join(settings, fields_set, preserve)
        member.held = self.gpu_device
        if preserve:
            self._held = member.held
        return member


def context_of_wgpu_device(gpu_device: Any, number: int | None = None) -> Context:
    """Returns the context of a GPUDevice with the deviceId `number`, or with any deviceId if `number` is None.

    Raises OptionError if the number or the device is already paired with another one. Raises the errors of `wgpu_py.adapter_of`.
    """
    ours = wgpu_py.wrapped(gpu_device)
    found: Context | None
    if ours is not None:
        found = next((it for it in contexts() if it.current() is ours), None)
        if found is None:
            raise DeviceLostError("the wgpu device belongs to sessions that have ended; take that of a live session")
    else:
        found = next((it for it in contexts() if isinstance(it, BorrowedContext) and it.gpu_device is gpu_device), None)
    if found is not None:
        if number not in (None, found.number):
            raise OptionError(f"option 'deviceId': {number} contradicts {found.number}, which webgpuDevice has already")
        return found
    if number == 0:
        raise OptionError(
            "option 'deviceId': 0 is the adapter's own shared device; with webgpuDevice use another number, or none"
        )
    for old in contexts():
        if isinstance(old, BorrowedContext) and old.gpu_device is None:
            release(old)
    if number is None:
        number = max([UNNUMBERED, *(it.number + 1 for it in contexts() if it.number >= UNNUMBERED)])
    return claim(BorrowedContext(gpu_device, number))


def context_at(instance: int, device: int, number: int | None = None) -> Context:
    """Returns the context of the device at one address and the instance at another. Raises OptionError for unknown addresses."""
    for key, value in (("webgpuInstance", instance), ("webgpuDevice", device)):
        if not value:
            raise OptionError(
                f"option {key!r} is 0: give the addresses of both the instance and the device, or of neither"
            )
    found = wgpu_py.find(device)
    if found is None:
        raise OptionError(
            f"option 'webgpuDevice': there is no live device of wgpu-py at {device}; only devices that this process made"
            " through wgpu-py can be used, see device_options()"
        )
    expected = wgpu_py.pointers(found)[1]
    if instance != expected:
        raise OptionError(f"option 'webgpuInstance': {instance} is not the instance of the device, which is {expected}")
    return context_of_wgpu_device(found, number)
