"""Declares `onnxruntime_ep_wgpu._wgpu`: wgpu-native's functions and types, parsed when this package is built.

In: the header in the installed `wgpu` package, which cffi can read. Out: `ffibuilder`, which setup.py names in
`cffi_modules`. The module is Python (cffi's out-of-line ABI mode) and the same on every platform; wgpu itself parses the
header whenever it is imported, which takes a third of a second. Two numbers say what was parsed, for a check at run time.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
from pathlib import Path

import cffi


def package() -> Path:
    """The folder of `wgpu`, which is not imported: it would open the library of this machine."""
    found = importlib.util.find_spec("wgpu")
    if found is None or found.origin is None:
        raise SystemExit("the package wgpu is needed to build: its header declares the functions that are called")
    return Path(found.origin).parent


def version() -> int:
    """The version of wgpu-native that the package is made for, as wgpuGetVersion gives it."""
    text = (package() / "backends" / "wgpu_native" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'__version__ = "(\d+)\.(\d+)\.(\d+)\.(\d+)"', text)
    assert match is not None, "the version of wgpu-native in the package wgpu is written in another way"
    return int.from_bytes(map(int, match.groups()))


def make_builder() -> cffi.FFI:
    """The configured builder."""
    header = (package() / "resources" / "combined_header.h").read_bytes()
    digest = int.from_bytes(hashlib.sha256(header).digest()[:7])
    builder = cffi.FFI()
    builder.cdef(header.decode())
    builder.cdef(f"#define BUILT_FOR_VERSION {version()}\n#define BUILT_FOR_HEADER {digest}")
    builder.set_source("onnxruntime_ep_wgpu._wgpu", None)
    return builder


ffibuilder = make_builder()
