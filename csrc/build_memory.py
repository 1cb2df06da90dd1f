"""Declares the extension module `onnxruntime_ep_wgpu._memory` (cffi, one binary for Python 3.11 and later).

In: memory.c and ort_abi.py (the tables). Out: `ffibuilder`, which setup.py names in `cffi_modules`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cffi

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import ort_abi  # noqa: E402

ffibuilder = cffi.FFI()
ffibuilder.cdef(
    """
    #define KEPT ...
    #define NOTHING ...
    #define FREE ...
    #define USED ...
    typedef ... OrtApi;
    typedef ... OrtEpApi;
    typedef ... OrtAllocator;
    typedef ... OrtDataTransferImpl;
    typedef ... OrtMemoryDevice;
    typedef ... OrtStatus;
    typedef ... OrtValue;
    typedef ... OrtSyncStream;
    typedef struct {
      int64_t state, place;
      uint64_t start, capacity;
      const void *owner;
      int64_t counted, size, number;
      uint64_t *marks;
      uint64_t buffer, queue;
      int64_t copied;
      uint64_t filled;
      int64_t last;
    } Kept;
    typedef struct {
      int64_t made, by_python, by_c, at_most, again, uploads;
      uint64_t start, end;
      Kept kept[...];
    } Ranges;
    extern Ranges ranges;
    extern int64_t forked;
    void listen(int listens);
    int64_t next_number(void);
    int keep(Kept *range, int64_t state);
    uint64_t surplus(uint64_t capacity, uint64_t most);
    int take_back(int64_t place, uint64_t start, int64_t state);
    typedef struct {
      const OrtApi *api;
      void *(*alloc_in_python)(OrtAllocator *, size_t);
      void (*free_in_python)(OrtAllocator *, void *);
      int64_t again;
      ...;
    } Allocator;
    void *alloc(OrtAllocator *self, size_t bytes);
    void free_range(OrtAllocator *self, void *address);
    typedef struct {
      const OrtApi *api;
      const OrtEpApi *ep;
      bool (*can_copy_in_python)(const OrtDataTransferImpl *, const OrtMemoryDevice *, const OrtMemoryDevice *);
      OrtStatus *(*copy_in_python)(OrtDataTransferImpl *, const OrtValue **, OrtValue **, OrtSyncStream **, size_t);
      int (*upload)(uint64_t queue, uint64_t buffer, uint64_t offset, const void *data, size_t bytes);
      int64_t adapters;
      ...;
    } Transfer;
    bool can_copy(const OrtDataTransferImpl *self, const OrtMemoryDevice *source, const OrtMemoryDevice *destination);
    OrtStatus *copy_tensors(OrtDataTransferImpl *self, const OrtValue **sources, OrtValue **destinations,
                            OrtSyncStream **streams, size_t count_of_them);
    """
)
ffibuilder.set_source(
    "onnxruntime_ep_wgpu._memory",
    f'#include "platform.h"\n#include <stdbool.h>\n{ort_abi.CHARACTERS}{ort_abi.declarations()}\n#include "memory.c"',
    include_dirs=[str(HERE)],
    depends=[str(HERE / name) for name in ("memory.c", "ort_abi.py", "platform.h")],
    libraries=["psapi"] if sys.platform == "win32" else [],
    py_limited_api=True,
)
