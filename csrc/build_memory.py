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
    #define POOLED ...
    #define PYTHONS ...
    #define USED ...
    #define FREE ...
    #define GONE ...
    typedef ... OrtApi;
    typedef ... OrtEpApi;
    typedef ... OrtAllocator;
    typedef ... OrtDataTransferImpl;
    typedef ... OrtMemoryDevice;
    typedef ... OrtStatus;
    typedef ... OrtValue;
    typedef ... OrtSyncStream;
    typedef struct {
      int64_t state;
      uint64_t start, capacity;
      const void *owner;
      int64_t size, number;
      uint64_t *marks;
      uint64_t buffer, queue;
      int64_t copied, barred;
      uint64_t filled;
      ...;
    } Range;
    typedef struct {
      int64_t made, begun, changed, at_most, reused, uploads, gone, ends;
      uint64_t start, end;
      ...;
    } Ranges;
    extern Ranges ranges;
    extern int64_t forked;
    void listen(int listens);
    int64_t next_number(void);
    int64_t lend(Range *range, int64_t ends);
    int64_t give_free(Range *range, int64_t ends);
    int64_t take_back(Range *range, int64_t states);
    void end_some(void);
    uint64_t surplus(uint64_t capacity, uint64_t most);
    uint64_t lost_range(void);
    int64_t pooled(void);
    uint64_t size_class(uint64_t bytes);
    typedef struct {
      const OrtApi *api;
      void *(*alloc_in_python)(OrtAllocator *, size_t);
      void (*free_in_python)(OrtAllocator *, void *);
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
    depends=[
        str(HERE / name)
        for name in ("memory.c", "ort_abi.py", "platform.h", "queue.h", "tickets.h", "without_python.h")
    ],
    libraries=["psapi"] if sys.platform == "win32" else [],
    py_limited_api=True,
)
