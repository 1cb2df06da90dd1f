"""Error scopes: which piece of work an error belongs to. In: a device, the work. Out: its result, or DeviceError that names it.

Invariant: what is pushed is popped, on the same thread, wherever an interrupt comes; an error inside the scope does not reach
the device's own error callback, and one behind it does.

An open scope is a cffi object whose destructor pops it, and pushing is one call with making that (see `owned.py`). It is only ever
on the stack of a frame or entered by a `with`, whose `__enter__` and `__exit__` are C's: so an interrupt either leaves the `with`,
or ends the object's life with the frame that it leaves. A local variable would live on in the traceback.
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
    """`work(*arguments, **named)` with a device of a library. Raises DeviceError for errors of validation and of memory in it."""
    # wgpu-native ends the process for the third filter, "Internal"; such errors reach the device's own callback.
    invalid: list[tuple[int, str]] = []
    beyond: list[tuple[int, str]] = []
    with (
        _pushed(library.lib, device, constant("WGPUErrorFilter_Validation"), invalid),
        _pushed(library.lib, device, constant("WGPUErrorFilter_OutOfMemory"), beyond),
    ):
        result = work(*arguments, **named)
    for name, answers in (("OutOfMemory", beyond), ("Validation", invalid)):
        for kind, message in answers[:1]:  # a callback that was interrupted has answered twice
            if kind != constant("WGPUErrorType_NoError"):
                raise DeviceError(f"{what}: {name} error: {library.readable(message)}")
    return result


def _pushed(lib: Any, device: Any, errors: int, answers: list[tuple[int, str]]) -> Any:
    """A scope for some errors, open until the `with` ends; what it caught is in `answers` then. For a `with` alone."""
    info = new("WGPUPopErrorScopeCallbackInfo *")
    info.mode = constant("WGPUCallbackMode_AllowSpontaneous")
    info.callback = on_popped
    info.userdata1 = handle = ffi.new_handle(answers)
    pop = partial(lib.wgpuDevicePopErrorScope, device)
    pop.__dict__.update(kept=(info, handle))  # for as long as it can be called
    pushing = zip(map(lib.wgpuDevicePushErrorScope, (device,), (errors,)), (info[0],), strict=True)
    return next(map(ffi.gc, map(_second, pushing), (pop,)))
