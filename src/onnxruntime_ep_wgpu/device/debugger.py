"""Captures for a graphics debugger that is attached to this process: RenderDoc, PIX or Xcode.

In: a device. Out: a capture around a piece of work, in the debugger's own file or window.
Invariant: nothing is loaded or started here; a debugger is attached when the process was started from it.

A library's own call only reaches Xcode: release builds of wgpu-native leave RenderDoc out, and PIX it does not know. So the two
are asked themselves, through the interface that each puts into the process.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import DeviceError
from .webgpu.api import Calls, Library

MISSING = (
    "no graphics debugger is attached: start this program from RenderDoc (Vulkan, Direct3D 12), PIX (Direct3D 12,"
    " Windows) or Xcode (Metal, or with METAL_CAPTURE_ENABLED=1)"
)
# RENDERDOC_API_1_0_0: its number, and the places of StartFrameCapture and EndFrameCapture in its table.
_RENDERDOC_VERSION, _RENDERDOC_START, _RENDERDOC_END = 10000, 19, 21
# IDXGraphicsAnalysis, which PIX provides: its identifier, and the places of BeginCapture and EndCapture.
_ANALYSIS, _ANALYSIS_BEGIN, _ANALYSIS_END = "{9f251514-9d4d-4902-9d60-18988ab7d4b5}", 3, 4

_capturing = threading.RLock()


def attached() -> str | None:
    """The debugger that can capture here: "RenderDoc", "PIX", "Xcode" or None."""
    if _renderdoc() is not None:
        return "RenderDoc"
    if sys.platform == "win32" and _pix() is not None:
        return "PIX"
    return "Xcode" if sys.platform == "darwin" and _xcode() else None


@contextmanager
def capture(library: Library, device: Any) -> Iterator[None]:
    """A capture of all work that is submitted during the `with`. Raises DeviceError when no debugger is attached.

    A debugger captures a process: other threads' captures wait.
    """
    calls: Calls | None = _renderdoc()
    if calls is None and sys.platform == "win32":
        calls = _pix()
    if calls is None and sys.platform == "darwin" and _xcode():
        calls = library.xcode_capture(device)
    if calls is None:
        raise DeviceError(MISSING)
    start, end = calls
    with _capturing:
        start()
        try:
            yield
        finally:
            end()


def _renderdoc() -> Calls | None:
    library = _loaded("renderdoc.dll" if sys.platform == "win32" else "librenderdoc.so")
    if library is None:
        return None
    table = ctypes.POINTER(ctypes.c_void_p)()
    if library.RENDERDOC_GetAPI(_RENDERDOC_VERSION, ctypes.byref(table)) != 1:
        return None
    call = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p)
    # Without a device and a window it captures the device that is in use.
    return (
        lambda: call(table[_RENDERDOC_START])(None, None),
        lambda: call(table[_RENDERDOC_END])(None, None),
    )


def _loaded(name: str) -> ctypes.CDLL | None:
    """A library, when the process has it already."""
    if sys.platform == "win32":
        handle = ctypes.WinDLL("kernel32").GetModuleHandleW
        handle.restype, handle.argtypes = ctypes.c_void_p, [ctypes.c_wchar_p]
        found = handle(name)
        return ctypes.CDLL(name, handle=found) if found else None
    try:
        return ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def _pix() -> Calls | None:
    if _loaded("WinPixGpuCapturer.dll") is None:
        return None
    identifier = (ctypes.c_byte * 16)()
    ctypes.CDLL("ole32").CLSIDFromString(ctypes.c_wchar_p(_ANALYSIS), identifier)
    analysis = ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))()
    if ctypes.CDLL("dxgi").DXGIGetDebugInterface1(0, identifier, ctypes.byref(analysis)) != 0:
        return None
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    methods = analysis.contents
    return (
        lambda: call(methods[_ANALYSIS_BEGIN])(analysis),
        lambda: call(methods[_ANALYSIS_END])(analysis),
    )


def _xcode() -> bool:
    return os.environ.get("METAL_CAPTURE_ENABLED") == "1" or "MTLCapture" in os.environ.get("DYLD_INSERT_LIBRARIES", "")
