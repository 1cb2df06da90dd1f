"""The wgpu-native library for the rest of this folder: instances, strings, errors and callbacks.

In: nothing. Out: `lib` and `ffi`, helpers around them, and `Errors`, which turns wgpu-native's error callback into
exceptions. Invariant: an error is reported on the thread whose call caused it, and never by more than one call.

wgpu-py's own objects are not used: their methods cost three times the direct call in a loop of dispatches, and its
global instance opens OpenGL, which prints to stderr on a machine without a display.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar

from .. import process
from . import library

lib, ffi, _calls = library.lib, library.ffi, library.calls
new: Callable[..., Any] = ffi.new

# WGPUInstanceBackend, WGPUBufferUsage, WGPUMapMode and WGPUShaderStage are C constants that a dlopen()ed library lacks.
BACKEND_VULKAN, BACKEND_OPENGL, BACKEND_METAL, BACKEND_D3D12 = 1, 2, 4, 8
PRIMARY_BACKENDS = BACKEND_VULKAN | BACKEND_METAL | BACKEND_D3D12
USAGE_MAP_READ, USAGE_MAP_WRITE, USAGE_COPY_SRC, USAGE_COPY_DST = 0x1, 0x2, 0x4, 0x8
USAGE_UNIFORM, USAGE_STORAGE, USAGE_QUERY_RESOLVE = 0x40, 0x80, 0x200
MAP_READ, MAP_WRITE = 1, 2
STAGE_COMPUTE = 4

_CALLBACKS = {
    "on_error": "void (*)(WGPUDevice const *, WGPUErrorType, WGPUStringView, void *, void *)",
    "on_lost": "void (*)(WGPUDevice const *, WGPUDeviceLostReason, WGPUStringView, void *, void *)",
    "on_device": "void (*)(WGPURequestDeviceStatus, WGPUDevice, WGPUStringView, void *, void *)",
    "on_popped": "void (*)(WGPUPopErrorScopeStatus, WGPUErrorType, WGPUStringView, void *, void *)",
}

# The fields of WGPULimits, and the size in bytes of each.
LIMITS = {name: ffi.sizeof(kind.type) for name, kind in ffi.typeof("WGPULimits").fields if name != "nextInChain"}


def spec_name(camel: str) -> str:
    """A limit as WebGPU's specification of features and wgpu-py write it: `maxBufferSize` -> `max-buffer-size`."""
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in camel)


# Names of texture formats, within which the specification puts no hyphen.
_FORMATS = {"Depth32Float": "depth32float", "BGRA8Unorm": "bgra8unorm", "RG11B10Ufloat": "rg11b10ufloat"}
_WORDS = re.compile("(?<=[a-z])(?=[A-Z])|(?<=[0-9])(?=[A-Z][a-z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=d)(?=3D)")


def feature_name(constant: str) -> str:
    """A feature as the specification and wgpu-py write it: `WGPUFeatureName_ShaderF16` -> `shader-f16`."""
    name = constant.split("_", 1)[1]
    for camel, plain in _FORMATS.items():
        name = name.replace(camel, plain)
    return _WORDS.sub("-", name).lower()


# The number of every feature in the header, WebGPU's and wgpu-native's own.
FEATURES = {
    feature_name(constant): number
    for kind in ("WGPUFeatureName", "WGPUNativeFeature")
    for number, constant in ffi.typeof(kind).elements.items()
    if not constant.endswith("_Force32")
}

_HEADING = re.compile(r"Validation Error$|Caused by:$|\s*In wgpu\w+(, label = .*)?$")


def readable(message: str) -> str:
    """An error message without wgpu-native's headings."""
    lines = (line.rstrip() for line in message.splitlines())
    return "\n".join(line for line in lines if line and not _HEADING.match(line)).strip()


class Errors(threading.local):
    """Messages that wgpu-native reported to this thread and nobody has looked at yet, each with the address of its device (0
    when that is not known).

    A call that fails for another reason leaves what was said before it behind, and the thread may go on with another device.
    `others` may take a message (type, text) that belongs to somebody else, see `wgpu_py`.
    """

    others: ClassVar[Callable[[int, str], bool] | None] = None

    def __init__(self) -> None:
        self.messages: list[tuple[int, str]] = []

    def file(self, device: int, text: str) -> None:
        """wgpu-native has refused a call of ours on this thread; `device` is an address, or 0. C code finds out by the count."""
        _calls.lib.wgpu_complain()
        self.messages.append((device, text))

    def take(self, device: Any) -> str:
        """What the messages since the last call say about a device, without wgpu-native's headings; empty when there was no
        error. Those about another one are dropped: whoever caused them has raised something else."""
        if not self.messages:
            return ""
        number = address(device)
        text = "\n".join(text for about, text in self.messages if about in (number, 0))
        self.messages = []
        return readable(text)


errors = Errors()


def forget_errors() -> None:
    """Drops this thread's messages: they are about work that was given up, and not about what comes now."""
    if errors.messages:
        errors.messages = []


_tokens = itertools.count(1)
_waiting: dict[int, Callable[[int, str], None]] = {}


def complaints_function() -> int:
    """What tells C code how often wgpu-native has refused a call of the thread that asks."""
    return int(_calls.ffi.cast("uintptr_t", _calls.ffi.addressof(_calls.lib, "wgpu_complaints")))


def address(handle: Any) -> int:
    """The number behind a wgpu-native handle or function."""
    return int(ffi.cast("uintptr_t", handle))


def text_of(view: Any) -> str:
    """The Python string of a WGPUStringView."""
    if view.data == ffi.NULL or view.length == 0:
        return ""
    if view.length == lib.WGPU_STRLEN:
        return str(ffi.string(view.data).decode(errors="replace"))
    return str(ffi.string(view.data, view.length).decode(errors="replace"))


class StringView:
    """A C copy of a string; `fill` points a WGPUStringView at it. Keep it alive until the reading call is done."""

    def __init__(self, text: str) -> None:
        encoded = text.encode()
        self.length = len(encoded)
        self.data = new("char[]", encoded)

    def fill(self, view: Any) -> None:
        view.data = self.data
        view.length = self.length


_calls.lib.wgpu_add_functions(_calls.__name__.encode())  # `left` and `error`


def _callback(function: Callable[..., None]) -> Any:
    """Makes a function a callback of wgpu-native, of the type that has its name; it must be right to call it twice.

    It is called again when an interrupt left it, which is raised when Python goes on (csrc/python_call.h).
    """
    name = function.__name__

    def ask(again: int, *arguments: Any) -> None:
        if again and isinstance(_calls.error(), KeyboardInterrupt):
            _calls.lib.wgpu_interrupt_later()
        try:
            function(*arguments)
        except Exception:
            traceback.print_exc()
        _calls.lib.wgpu_answer(0)

    _calls.ffi.def_extern(name=f"py_{name}", onerror=_calls.left)(ask)
    entry = _calls.ffi.addressof(_calls.lib, f"c_{name}")
    return ffi.cast(_CALLBACKS[name], int(_calls.ffi.cast("uintptr_t", entry)))


@_callback
def on_error(device: Any, kind: int, message: Any, _userdata1: Any, _userdata2: Any) -> None:
    """The uncaptured-error callback of every device: files the message for the calling thread."""
    text = text_of(message)
    if Errors.others is None or not Errors.others(kind, text):
        errors.file(address(ffi.cast("WGPUDevice *", device)[0]), text)


@_callback
def on_lost(_device: Any, reason: int, message: Any, token: Any, _userdata2: Any) -> None:
    """The device-lost callback of every device; it may run on any thread."""
    _answer(token, reason, message)


@_callback
def on_device(status: int, device: Any, message: Any, result: Any, _userdata2: Any) -> None:
    """Files the answer to wgpuAdapterRequestDevice in the list that `result` is a handle of."""
    ffi.from_handle(result).append((int(status), ffi.cast("WGPUDevice", device), text_of(message)))


@_callback
def on_popped(_status: int, kind: int, message: Any, result: Any, _userdata2: Any) -> None:
    """Files what an error scope caught, a WGPUErrorType and the message, in the list that `result` is a handle of."""
    ffi.from_handle(result).append((int(kind), readable(text_of(message))))


def _answer(token: Any, status: int, message: Any) -> None:
    number = address(token)
    receiver = _waiting.get(number)
    if receiver is not None:
        receiver(int(status), readable(text_of(message)))
        _waiting.pop(number, None)


def expect(receiver: Callable[[int, str], None]) -> Any:
    """Registers `receiver(status, message)` for one answer; gives the userdata pointer to pass to wgpu-native."""
    token = next(_tokens)
    _waiting[token] = receiver
    return ffi.cast("void *", token)


def forget(token: Any) -> None:
    """Takes back what `expect` registered; an answer that still comes is ignored."""
    _waiting.pop(address(token), None)


@cache
def instance(backends: int) -> Any:
    """The process-wide wgpu-native instance restricted to `backends` (a mask of BACKEND_*). Raises ForkError."""
    process.check_not_forked()
    process.uses_gpu()
    extras = new("WGPUInstanceExtras *")
    extras.chain.sType = lib.WGPUSType_InstanceExtras
    extras.backends = backends
    descriptor = new("WGPUInstanceDescriptor *")
    descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", extras)
    return lib.wgpuCreateInstance(descriptor)


@contextmanager
def quiet_display_probe() -> Iterator[None]:
    """Keeps graphics drivers from printing that XDG_RUNTIME_DIR is missing while they look for a Wayland display.

    Mesa's device-select layer (Vulkan) and EGL both probe for one; with an existing folder, any, they find none silently.
    """
    if os.name != "posix" or "XDG_RUNTIME_DIR" in os.environ:
        yield
        return
    try:
        os.environ["XDG_RUNTIME_DIR"] = os.sep
        yield
    finally:
        os.environ.pop("XDG_RUNTIME_DIR", None)
