"""Declares the extension module `onnxruntime_ep_wgpu._encode` (cffi, one binary for Python 3.11 and later).

In: encode.c. Out: `ffibuilder`, which setup.py names in `cffi_modules`.
"""

from __future__ import annotations

from pathlib import Path

import cffi

ffibuilder = cffi.FFI()
_LISTS = (
    "const uint64_t *functions, uint64_t device, const uint64_t *copies, size_t before, size_t after,"
    " const uint64_t *dispatches, size_t dispatch_count"
)
ffibuilder.cdef(
    f"uint64_t record({_LISTS});uint64_t finish(const uint64_t *functions, uint64_t encoder);uint64_t encode({_LISTS});"
)
ffibuilder.set_source(
    "onnxruntime_ep_wgpu._encode",
    '#include "encode.c"',
    include_dirs=[str(Path(__file__).resolve().parent)],
    py_limited_api=True,
)
