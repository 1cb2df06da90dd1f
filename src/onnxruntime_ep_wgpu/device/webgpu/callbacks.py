"""The Python functions that libraries call. Each is one C function for all libraries.

In: calls of a library, on any thread. Out: messages in `errors`, results for the callers. Invariant: an interrupt within a
callback is raised when Python continues, after the callback has answered (csrc/python_call.h).
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable
from typing import Any

from ... import _submit  # type: ignore[attr-defined,unused-ignore]
from .header import address, ffi, text_of
from .messages import Errors, errors

_CALLBACKS = {
    "on_error": "void (*)(WGPUDevice const *, WGPUErrorType, WGPUStringView, void *, void *)",
    "on_lost": "void (*)(WGPUDevice const *, WGPUDeviceLostReason, WGPUStringView, void *, void *)",
    "on_device": "void (*)(WGPURequestDeviceStatus, WGPUDevice, WGPUStringView, void *, void *)",
    "on_popped": "void (*)(WGPUPopErrorScopeStatus, WGPUErrorType, WGPUStringView, void *, void *)",
}
_tokens = itertools.count(1)
_waiting: dict[int, Callable[[int, str], None]] = {}

_submit.lib.wgpu_add_functions(_submit.__name__.encode())  # `left` and `error`


def _callback(function: Callable[..., None]) -> Any:
    """Makes a function a callback of a library, with the type that has its name. The function must be idempotent.

    It is called again after an interrupt left it. The interrupt is raised when Python continues (csrc/python_call.h).
    """
    name = function.__name__

    def ask(again: int, *arguments: Any) -> None:
        if again and isinstance(_submit.error(), KeyboardInterrupt):
            _submit.lib.wgpu_interrupt_later()
        try:
            function(*arguments)
        except Exception:
            traceback.print_exc()
        _submit.lib.wgpu_answer(0)

    _submit.ffi.def_extern(name=f"py_{name}", onerror=_submit.left)(ask)
    entry = _submit.ffi.addressof(_submit.lib, f"c_{name}")
    return ffi.cast(_CALLBACKS[name], int(_submit.ffi.cast("uintptr_t", entry)))


@_callback
def on_error(device: Any, kind: int, message: Any, _userdata1: Any, _userdata2: Any) -> None:
    """The uncaptured-error callback of every device. Records the message for the calling thread."""
    text = text_of(message)
    if Errors.others is None or not Errors.others(kind, text):
        errors.file(address(ffi.cast("WGPUDevice *", device)[0]), text)


@_callback
def on_lost(_device: Any, reason: int, message: Any, token: Any, _userdata2: Any) -> None:
    """The device-lost callback of every device. It may run on any thread."""
    number = address(token)
    receiver = _waiting.get(number)
    if receiver is not None:
        receiver(int(reason), text_of(message))
        _waiting.pop(number, None)


@_callback
def on_device(status: int, device: Any, message: Any, result: Any, _userdata2: Any) -> None:
    """Appends the result of wgpuAdapterRequestDevice to the list behind the handle `result`."""
    ffi.from_handle(result).append((int(status), ffi.cast("WGPUDevice", device), text_of(message)))


@_callback
def on_popped(_status: int, kind: int, message: Any, result: Any, _userdata2: Any) -> None:
    """Appends what an error scope caught, a WGPUErrorType and the message, to the list behind the handle `result`."""
    ffi.from_handle(result).append((int(kind), text_of(message)))


def expect(receiver: Callable[[int, str], None]) -> Any:
    """Registers `receiver(status, message)` for one call. Returns the userdata pointer to pass to a library."""
    token = next(_tokens)
    _waiting[token] = receiver
    return ffi.cast("void *", token)
