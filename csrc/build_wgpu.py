"""Declares `onnxruntime_ep_wgpu._wgpu`: wgpu-native's functions and types, parsed when this package is built.

In: the header in the installed `wgpu` package, which cffi can parse. Out: `ffibuilder`, which setup.py names in `cffi_modules`.
The module is Python (cffi's out-of-line ABI mode) and the same on every platform. wgpu itself parses the header at every import,
which takes a third of a second. Two constants identify the parsed header, for a check at run time.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from pathlib import Path

import cffi


def package() -> Path:
    """Returns the folder of `wgpu`. Does not import it, because that would open the library."""
    found = importlib.util.find_spec("wgpu")
    if found is None or found.origin is None:
        raise SystemExit("the package wgpu is needed to build: its header declares the functions that are called")
    return Path(found.origin).parent


def version() -> int:
    """Returns the version of wgpu-native for this package, in the form of wgpuGetVersion."""
    text = (package() / "backends" / "wgpu_native" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'__version__ = "(\d+)\.(\d+)\.(\d+)\.(\d+)"', text)
    assert match is not None, "the version of wgpu-native in the package wgpu is written in another way"
    return int.from_bytes(map(int, match.groups()))


def make_builder() -> cffi.FFI:
    """Returns the configured builder."""
    header = (package() / "resources" / "combined_header.h").read_bytes()
    digest = int.from_bytes(hashlib.sha256(header).digest()[:7])
    builder = cffi.FFI()
    builder.cdef(header.decode())
    builder.cdef(f"#define BUILT_FOR_VERSION {version()}\n#define BUILT_FOR_HEADER {digest}")
    builder.set_source("onnxruntime_ep_wgpu._wgpu", None)
    return builder


ffibuilder = make_builder()
