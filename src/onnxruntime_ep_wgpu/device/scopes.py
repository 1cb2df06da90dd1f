"""Error scopes, which attribute an error to a piece of work.

In: a device, the work. Out: its result, or DeviceError that names it.

Invariants: every pushed scope is popped on the same thread, wherever an interrupt comes. An error inside the scope does not reach
the device's own error callback, and one after it does.

An open scope is a cffi object with a destructor that pops it. One call pushes the scope and makes the object (see `owned.py`).
The object is only on the stack of a frame, or entered by a `with`; its `__enter__` and `__exit__` are C functions. So an
interrupt either leaves the `with`, or ends the frame and with it the object. A local variable would stay alive in the traceback.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any, ParamSpec, TypeVar

from ..errors import DeviceError
from .webgpu.api import Library
from .webgpu.callbacks import on_popped
from .webgpu.header import constant, ffi, new

P = ParamSpec("P")
Result = TypeVar("Result")
_second = itemgetter(1)


def in_error_scope(
    library: Library, device: Any, what: str, work: Callable[P, Result], *arguments: P.args, **named: P.kwargs
) -> Result:
    """Returns `work(*arguments, **named)`. Raises DeviceError for errors of validation or memory of `device` in it."""
    # wgpu-native aborts the process for the third filter, "Internal". Such errors reach the device's own callback.
    invalid: list[tuple[int, str]] = []
    beyond: list[tuple[int, str]] = []
    with (
        _pushed(library.lib, device, constant("WGPUErrorFilter_Validation"), invalid),
        _pushed(library.lib, device, constant("WGPUErrorFilter_OutOfMemory"), beyond),
    ):
        result = work(*arguments, **named)
    for name, answers in (("OutOfMemory", beyond), ("Validation", invalid)):
        for kind, message in answers[:1]:  # after an interrupt the callback answers twice
            if kind != constant("WGPUErrorType_NoError"):
                raise DeviceError(f"{what}: {name} error: {library.readable(message)}")
    return result


def _pushed(lib: Any, device: Any, errors: int, answers: list[tuple[int, str]]) -> Any:
    """Returns an open scope for some errors, only for use in a `with`. After the `with`, `answers` has what it caught."""
    info = new("WGPUPopErrorScopeCallbackInfo *")
    info.mode = constant("WGPUCallbackMode_AllowSpontaneous")
    info.callback = on_popped
    info.userdata1 = handle = ffi.new_handle(answers)
    pop = partial(lib.wgpuDevicePopErrorScope, device)
    pop.__dict__.update(kept=(info, handle))  # alive as long as it can be called
    pushing = zip(map(lib.wgpuDevicePushErrorScope, (device,), (errors,)), (info[0],), strict=True)
    return next(map(ffi.gc, map(_second, pushing), (pop,)))
