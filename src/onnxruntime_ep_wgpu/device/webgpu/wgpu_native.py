"""wgpu-native, the library that is always installed: its file, a check of its version, and its functions beside webgpu.h.

In: the installed `wgpu` package, which is not imported, or WGPU_LIB_PATH. Out: `library()`.
Invariants: the version is that of the functions that were declared when this package was built. wgpu opens the same file, so a
process has one copy of the library.

wgpu-py's own objects are not used. Their methods take three times as long as direct calls in a loop of dispatches. Its global
instance opens OpenGL, which prints to stderr on a machine without a display.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from ... import _submit, process  # type: ignore[attr-defined,unused-ignore]
from ...errors import DeviceError
from ...program.target import F16, INT64, SUBGROUP, TIMESTAMPS, MatrixUnit
from .api import Calls
from .header import address, constant, feature_numbers, ffi, new
from .owned import ObjectOwner

NAME = "wgpu-native"
# WGPUInstanceBackend
_BACKEND_VULKAN, _BACKEND_OPENGL, _BACKEND_METAL, _BACKEND_D3D12 = 1, 2, 4, 8
_PRIMARY_BACKENDS = _BACKEND_VULKAN | _BACKEND_METAL | _BACKEND_D3D12
_AT_MOST = 1024  # adapters of the largest machine, under all graphics APIs together
_HEADING = re.compile(r"Validation Error$|Caused by:$|\s*In wgpu\w+(, label = .*)?$")
_PLACE = re.compile(r"┌─ .*?:(\d+):(\d+)")

_PREFIX, _SUFFIX = {"win32": ("", ".dll"), "darwin": ("lib", ".dylib")}.get(sys.platform, ("lib", ".so"))


def _chosen() -> str:
    return os.environ.get("WGPU_LIB_PATH", "").strip()


def _resource(name: str) -> str:
    """Returns the path of a file in wgpu's folder with the library and its header; "" if there is none."""
    found = importlib.util.find_spec("wgpu")
    if found is None or found.origin is None:
        return ""
    file = os.path.join(os.path.dirname(found.origin), "resources", name)
    return file if os.path.exists(file) else ""


@cache
def path() -> str:
    """Returns the path of the library: that of WGPU_LIB_PATH, otherwise the one in the package `wgpu`."""
    loaded = sys.modules.get("wgpu.backends.wgpu_native._ffi")
    if loaded is not None:
        return str(loaded.lib_path)
    if _chosen():
        return _chosen()
    builds = ("-debug",) if os.environ.get("WGPU_DEBUG", "").strip() == "1" else ("-release", "")
    for build in builds:
        if file := _resource(f"{_PREFIX}wgpu_native{build}{_SUFFIX}"):
            return file
    # Some distributions of the package keep it elsewhere. wgpu finds it, or raises an error with instructions.
    from wgpu.backends.wgpu_native import _ffi  # type: ignore[import-untyped,unused-ignore]

    return str(_ffi.lib_path)


def _open() -> Any:
    """Opens the library. Raises DeviceError if it cannot be opened or is another version."""
    try:
        opened = ffi.dlopen(path())
        found, wanted = opened.wgpuGetVersion(), opened.BUILT_FOR_VERSION
    except OSError as error:
        raise DeviceError(f"the wgpu-native library cannot be loaded: {error}{_named()}") from error
    except (AttributeError, ffi.error) as error:  # a library without these functions
        raise DeviceError(f"{path()} is not the wgpu-native library: {error}{_named()}") from error
    if found != wanted and (_chosen() or _header() != opened.BUILT_FOR_HEADER):
        way = "unset WGPU_LIB_PATH, or build that version" if _chosen() else "install wgpu==0.32.*"
        raise DeviceError(
            f"{path()} is wgpu-native {_text(found)}, and onnxruntime-ep-wgpu was built for {_text(wanted)}, whose"
            f" functions may differ: {way}"
        )
    return opened


def _named() -> str:
    """The end of an error message: how the library was chosen, and what to do about it."""
    return f" (WGPU_LIB_PATH={_chosen()} names it: unset that)" if _chosen() else "; install wgpu==0.32.* again"


def _header() -> int:
    """Returns a hash of the installed header; 0 if there is none."""
    import hashlib

    file = _resource("combined_header.h")
    if not file:
        return 0
    with open(file, "rb") as header:
        return int.from_bytes(hashlib.sha256(header.read()).digest()[:7])


def _text(number: int) -> str:
    return ".".join(map(str, number.to_bytes(4)))


class WgpuNative:
    """The opened library. See `api.Library`."""

    name = NAME
    used = frozenset({F16, INT64, SUBGROUP, TIMESTAMPS})
    wanted: frozenset[str] = frozenset()
    keeps_staging = True
    module_checks = True

    def __init__(self, opened: Any) -> None:
        self.lib = opened
        self.owner = ObjectOwner(opened)
        self.features: Mapping[str, int] = feature_numbers(ffi, ("WGPUFeatureName", "WGPUNativeFeature"))
        self._functions = address(opened.wgpuQueueSubmitForIndex), address(opened.wgpuDevicePoll)

    @property
    def version(self) -> str:
        """Includes the library's path if WGPU_LIB_PATH chose it."""
        number = _text(self.lib.wgpuGetVersion())
        return f"{number} ({_chosen()})" if _chosen() else number

    def adapters(self) -> list[Any]:
        return self._enumerate(_PRIMARY_BACKENDS)

    def last_resort(self) -> list[Any]:
        return self._enumerate(_BACKEND_OPENGL)

    def _enumerate(self, backends: int) -> list[Any]:
        here = instance(backends)
        # A call for the count would enumerate the adapters twice.
        handles = new("WGPUAdapter[]", _AT_MOST)
        count = self.lib.wgpuInstanceEnumerateAdapters(here, ffi.NULL, handles)
        return [handles[i] for i in range(count)]

    def matrices(self, adapter: Any) -> Sequence[MatrixUnit]:
        return ()  # its C interface has none

    def request_device(self, adapter: Any, descriptor: Any, info: Any, checked: bool) -> None:
        info.mode = constant("WGPUCallbackMode_AllowProcessEvents")
        self.lib.wgpuAdapterRequestDevice(adapter, descriptor, info[0])
        for backends in (_PRIMARY_BACKENDS, _BACKEND_OPENGL):
            if backends in _instances:
                self.lib.wgpuInstanceProcessEvents(instance(backends))

    def module(self, device: Any, descriptor: Any, checked: bool) -> Any:
        if checked:
            return self.owner.own("ShaderModule", self.lib.wgpuDeviceCreateShaderModule, device, descriptor)
        # Without bounds checks and loop guards, kernels are 5 to 15 % faster (matmul on an H200). Kernels clamp indices that come
        # from tensors, so no index leaves its buffer.
        return self.owner.own("ShaderModule", self.lib.wgpuDeviceCreateShaderModuleTrusted, device, descriptor, 0)

    def tickets(self, device: Any, queue: Any) -> Any:
        made = _submit.ffi.new("Tickets *", {"device": address(device), "queue": address(queue)})
        made.functions[0], made.functions[1] = self._functions
        for name in ("submit", "wait", "look"):
            setattr(made, name, _submit.ffi.addressof(_submit.lib, f"indexed_{name}"))
        return made

    def xcode_capture(self, device: Any) -> Calls | None:
        lib = self.lib
        return (
            lambda: lib.wgpuDeviceStartGraphicsDebuggerCapture(device),
            lambda: lib.wgpuDeviceStopGraphicsDebuggerCapture(device),
        )

    def timestamp_period(self, queue: Any) -> float:
        return float(self.lib.wgpuQueueGetTimestampPeriod(queue))

    def readable(self, message: str) -> str:
        lines = (line.rstrip() for line in message.splitlines())
        return "\n".join(line for line in lines if line and not _HEADING.match(line)).strip()

    def line_of(self, message: str) -> int | None:
        place = _PLACE.search(message)
        return int(place.group(1)) if place else None

    def means_loss(self, message: str) -> bool:
        return "device is lost" in message


_INSTANCE_EXTRAS = int(ffi.typeof("WGPUNativeSType").relements["WGPUSType_InstanceExtras"])
_instances: dict[int, Any] = {}


def instance(backends: int) -> Any:
    """Returns the process-wide instance restricted to `backends` (a mask of _BACKEND_*). Raises ForkError."""
    process.check_not_forked()
    known = _instances.get(backends)
    if known is None:
        process.mark_gpu_used()
        extras = new("WGPUInstanceExtras *")
        extras.chain.sType = _INSTANCE_EXTRAS
        extras.backends = backends
        descriptor = new("WGPUInstanceDescriptor *")
        descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", extras)
        known = _instances.setdefault(backends, library().lib.wgpuCreateInstance(descriptor))
    return known


@cache
def library() -> WgpuNative:
    """Returns the library, opened once. Raises DeviceError if it cannot be opened or is another version."""
    return WgpuNative(_open())
