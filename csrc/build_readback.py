"""Declares the extension module `onnxruntime_ep_wgpu._readback` (cffi, one binary for Python 3.11 and later).

In: readback.c and copy.c. Out: `ffibuilder`, which setup.py names in `cffi_modules`.
"""

from __future__ import annotations

from pathlib import Path

import cffi

HERE = Path(__file__).resolve().parent

ffibuilder = cffi.FFI()
ffibuilder.cdef(
    """
    typedef ... Tickets;
    typedef struct { const char *data; size_t length; } Text;
    typedef struct {
      int64_t status;
      char text[...];
      ...;
    } Answer;
    typedef struct { uint64_t mapped_range, unmap; } Functions;
    Answer *answer_begin(void);
    void answer_end(Answer *answer);
    void answered(int status, Text message, void *userdata1, void *userdata2);
    int64_t wait_for(Tickets *tickets, uint64_t ticket, const Answer *answer);
    int copy_out(const Functions *functions, uint64_t buffer, size_t length, const uint64_t *rows, size_t count, size_t threads);
    """
)
ffibuilder.set_source(
    "onnxruntime_ep_wgpu._readback",
    '#include "readback.c"',
    include_dirs=[str(HERE)],
    depends=[str(HERE / name) for name in ("readback.c", "copy.c", "platform.h", "tickets.h")],
    py_limited_api=True,
)
