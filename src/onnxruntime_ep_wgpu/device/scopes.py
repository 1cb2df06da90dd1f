"""Error scopes: which piece of work an error belongs to. In: a device. Out: DeviceError that names the work.

Invariant: what is pushed is popped, on the same thread; an error inside the scope does not reach the device's own
error callback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import DeviceError
from .native import ffi, lib, new, on_popped

# wgpu-native ends the process for the third, "Internal"; such errors reach the device's own callback.
_FILTERS = ("Validation", "OutOfMemory")


@contextmanager
def error_scope(device: Any, what: str) -> Iterator[None]:
    """Raises DeviceError for errors of validation and of memory in the `with`."""
    for name in _FILTERS:
        lib.wgpuDevicePushErrorScope(device, getattr(lib, f"WGPUErrorFilter_{name}"))
    answers: list[tuple[int, str]] = []
    result = ffi.new_handle(answers)
    try:
        yield
    finally:
        for _ in _FILTERS:
            info = new("WGPUPopErrorScopeCallbackInfo *")
            info.mode = lib.WGPUCallbackMode_AllowSpontaneous
            info.callback = on_popped
            info.userdata1 = result
            lib.wgpuDevicePopErrorScope(device, info[0])
    # Innermost first, so the filters backwards.
    for name, (kind, message) in zip(reversed(_FILTERS), answers, strict=False):
        if kind != lib.WGPUErrorType_NoError:
            raise DeviceError(f"{what}: {name} error: {message}")
