"""The wgpu-native library: where it is, and that it is the one whose functions were declared when this package was built.

In: the installed `wgpu` package, which is not imported, or WGPU_LIB_PATH. Out: `ffi`, `lib`, `calls` (what it calls in us),
`path()`, `version()`.
Invariant: it is the file that wgpu opens too, so that there is one copy of it in a process.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import cache
from typing import Any

from ..errors import DeviceError

try:
    from .. import _calls as _callbacks  # type: ignore[attr-defined,unused-ignore]
    from .._wgpu import ffi as _declared
except ImportError as error:
    raise DeviceError(
        f"{error}: the native parts of this checkout are not built; run `python setup.py build_ext --inplace`"
    ) from error

ffi: Any = _declared
calls: Any = _callbacks

_PREFIX, _SUFFIX = {"win32": ("", ".dll"), "darwin": ("lib", ".dylib")}.get(sys.platform, ("lib", ".so"))


def _chosen() -> str:
    return os.environ.get("WGPU_LIB_PATH", "").strip()


def _resource(name: str) -> str:
    """A file of this name in the folder of wgpu with the library and its header; "" when there is none."""
    found = importlib.util.find_spec("wgpu")
    if found is None or found.origin is None:
        return ""
    file = os.path.join(os.path.dirname(found.origin), "resources", name)
    return file if os.path.exists(file) else ""


@cache
def path() -> str:
    """The library's file: that of WGPU_LIB_PATH, else the one in the package `wgpu`."""
    loaded = sys.modules.get("wgpu.backends.wgpu_native._ffi")
    if loaded is not None:
        return str(loaded.lib_path)
    if _chosen():
        return _chosen()
    builds = ("-debug",) if os.environ.get("WGPU_DEBUG", "").strip() == "1" else ("-release", "")
    for build in builds:
        if file := _resource(f"{_PREFIX}wgpu_native{build}{_SUFFIX}"):
            return file
    # Distributions of the package that keep it elsewhere: wgpu knows, or says what to do.
    from wgpu.backends.wgpu_native import _ffi  # type: ignore[import-untyped,unused-ignore]

    return str(_ffi.lib_path)


def _open() -> Any:
    """The opened library. Raises DeviceError when it cannot be opened or is not the one that was declared."""
    try:
        opened = ffi.dlopen(path())
        found, wanted = opened.wgpuGetVersion(), opened.BUILT_FOR_VERSION
    except OSError as error:
        raise DeviceError(f"the wgpu-native library cannot be loaded: {error}{_named()}") from error
    except (AttributeError, ffi.error) as error:  # a library without its functions
        raise DeviceError(f"{path()} is not the wgpu-native library: {error}{_named()}") from error
    if found != wanted and (_chosen() or _header() != opened.BUILT_FOR_HEADER):
        way = "unset WGPU_LIB_PATH, or build that version" if _chosen() else "install wgpu==0.32.*"
        raise DeviceError(
            f"{path()} is wgpu-native {_text(found)}, and onnxruntime-ep-wgpu was built for {_text(wanted)}, whose"
            f" functions may differ: {way}"
        )
    return opened


def _named() -> str:
    """Who named the library, and what to do about it, behind an error."""
    return f" (WGPU_LIB_PATH={_chosen()} names it: unset that)" if _chosen() else "; install wgpu==0.32.* again"


def _header() -> int:
    """The number of the installed header; 0 when there is none."""
    import hashlib

    file = _resource("combined_header.h")
    if not file:
        return 0
    with open(file, "rb") as header:
        return int.from_bytes(hashlib.sha256(header.read()).digest()[:7])


def _text(number: int) -> str:
    return ".".join(map(str, number.to_bytes(4)))


lib = _open()


def version() -> str:
    """The version of the wgpu-native library in use, and its path when WGPU_LIB_PATH chose it."""
    number = _text(lib.wgpuGetVersion())
    return f"{number} ({_chosen()})" if _chosen() else number
