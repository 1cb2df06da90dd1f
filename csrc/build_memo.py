"""Declares the extension module `onnxruntime_ep_wgpu._memo` (cffi, one binary for Python 3.11 and later).

In: memo.c, ort_abi.py (the tables) and runtime/runs/key.py (how many runs are known). Out: `ffibuilder`, which setup.py names in
`cffi_modules`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import cffi

HERE = Path(__file__).resolve().parent
KEY = HERE.parent / "src/onnxruntime_ep_wgpu/runtime/runs/key.py"
MEMOS = re.findall(r"^REMEMBERED_RUNS = (\d+)$", KEY.read_text("utf-8"), re.M)[0]
sys.path.insert(0, str(HERE))
import ort_abi  # noqa: E402

ffibuilder = cffi.FFI()
ffibuilder.cdef(
    """
    #define MEMOS ...
    typedef ... OrtApi;
    typedef ... OrtStatus;
    typedef ... OrtNodeComputeInfo;
    typedef ... OrtKernelContext;
    typedef struct {
      const void *data;
      const uint64_t *marks;
      uint64_t place, value;
      int valued, type;
      size_t rank, first;
    } Tensor;
    typedef struct {
      int64_t live, users, hits, last, graph;
      const Tensor *tensors;
      const int64_t *dims;
      int (*run)(void *work);
      void *work;
    } Memo;
    typedef struct {
      const OrtApi *api;
      OrtStatus *(*python)(OrtNodeComputeInfo *, void *, OrtKernelContext *);
      size_t inputs, outputs;
      int captured;
      int64_t every, runs;
      int64_t hits;
      Memo memos[...];
      ...;
    } Node;
    extern int64_t forked;
    void listen(int listens);
    void begin_run(int64_t graph);
    void memo_begin(Memo *memo);
    int memo_end(Memo *memo);
    OrtStatus *compute(OrtNodeComputeInfo *this, void *state, OrtKernelContext *context);
    """
)
ffibuilder.set_source(
    "onnxruntime_ep_wgpu._memo",
    f"#define MEMOS {MEMOS}\n"
    f'#include "platform.h"\n#include <stdbool.h>\n{ort_abi.CHARACTERS}{ort_abi.declarations()}\n#include "memo.c"',
    include_dirs=[str(HERE)],
    depends=[
        str(KEY),
        *(str(HERE / it) for it in ("memo.c", "marks.h", "ort_abi.py", "outcomes.h", "platform.h", "without_python.h")),
    ],
    libraries=["psapi"] if sys.platform == "win32" else [],
    py_limited_api=True,
)
