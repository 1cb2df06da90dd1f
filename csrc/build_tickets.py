"""Declares the extension module `onnxruntime_ep_wgpu._tickets` (cffi, one binary for Python 3.11 and later).

In: tickets.c. Out: `ffibuilder`, which setup.py names in `cffi_modules`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cffi

HERE = Path(__file__).resolve().parent

ffibuilder = cffi.FFI()
ffibuilder.cdef(
    """
    typedef struct Tickets Tickets;
    struct Tickets {
      uint64_t (*submit)(Tickets *its, size_t count, void *const *commands);
      void (*wait)(Tickets *its, uint64_t ticket);
      void (*look)(Tickets *its);
      uint64_t device, queue, instance;
      uint64_t functions[4];
      int64_t submits;
    };
    uint64_t indexed_submit(Tickets *its, size_t count, void *const *commands);
    void indexed_wait(Tickets *its, uint64_t ticket);
    void indexed_look(Tickets *its);
    uint64_t futures_submit(Tickets *its, size_t count, void *const *commands);
    void futures_wait(Tickets *its, uint64_t ticket);
    void futures_look(Tickets *its);
    """
)
ffibuilder.set_source(
    "onnxruntime_ep_wgpu._tickets",
    '#include "tickets.c"',
    include_dirs=[str(HERE)],
    depends=[str(HERE / name) for name in ("tickets.c", "tickets.h", "platform.h")],
    libraries=["psapi"] if sys.platform == "win32" else [],
    py_limited_api=True,
)
