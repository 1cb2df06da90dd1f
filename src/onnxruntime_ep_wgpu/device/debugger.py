"""Captures for a graphics debugger that is attached to this process: RenderDoc, PIX or Xcode.

In: a device. Out: a capture of a piece of work, in the debugger's own file or window.
Invariant: nothing is loaded or started here. A debugger is attached if it started the process.

The function of a library reaches only Xcode. Release builds of wgpu-native omit RenderDoc, and PIX is not supported. Therefore
RenderDoc and PIX are called directly, by the interfaces that they put into the process.
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
# RENDERDOC_API_1_0_0: its number, and the indices of StartFrameCapture and EndFrameCapture in its function table.
_RENDERDOC_VERSION, _RENDERDOC_START, _RENDERDOC_END = 10000, 19, 21
# IDXGraphicsAnalysis of PIX: its identifier, and the indices of BeginCapture and EndCapture.
_ANALYSIS, _ANALYSIS_BEGIN, _ANALYSIS_END = "{9f251514-9d4d-4902-9d60-18988ab7d4b5}", 3, 4

_capturing = threading.RLock()


def attached() -> str | None:
    """Returns the debugger that can capture here: "RenderDoc", "PIX", "Xcode" or None."""
    if _renderdoc() is not None:
        return "RenderDoc"
    if sys.platform == "win32" and _pix() is not None:
        return "PIX"
    return "Xcode" if sys.platform == "darwin" and _xcode() else None


@contextmanager
def capture(library: Library, device: Any) -> Iterator[None]:
    """Captures all work that is submitted during the `with`. Raises DeviceError if no debugger is attached.

    A debugger captures a process, so the captures of other threads wait.
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
    # NULL for device and window captures the device in use.
    return (
        lambda: call(table[_RENDERDOC_START])(None, None),
        lambda: call(table[_RENDERDOC_END])(None, None),
    )


def _loaded(name: str) -> ctypes.CDLL | None:
    """Returns a library if the process has loaded it."""
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
