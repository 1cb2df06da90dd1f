"""Builds `onnxruntime_ep_wgpu._ort`, the cffi module for calls between Python and ONNX Runtime.

In: ort_abi.py (the tables), runs.c, memory.c, and runtime/runs/key.py (how many runs are kept). Out: `ffibuilder` for
setuptools' `cffi_modules`; as a script it prints the generated C.

Every callback is a C function `c_NAME` that calls the Python function `py_NAME` while the interpreter is alive (python_call.h).
Otherwise it does nothing, because at process exit ONNX Runtime still frees objects. C code that does some of the work without
Python calls some of these functions.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import cffi

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import declared  # noqa: E402
import ort_abi  # noqa: E402

KEY = HERE.parent / "src/onnxruntime_ep_wgpu/runtime/runs/key.py"
MEMOS = "#define MEMOS " + re.findall(r"^REMEMBERED_RUNS = (\d+)$", KEY.read_text("utf-8"), re.M)[0] + "\n"
NAMES = """
reserve wgpu_interrupt_later wgpu_answer wgpu_answer_pointer wgpu_add_functions WgpuKernels forked listen
Given read_tensor read_inputs make_outputs MOST_AXES Tensor other_inputs other_outputs
Memo Node begin_run memo_begin memo_end compute MOST_CHAINED PastRun past_runs are_all ChainedRuns run_chained
POOLED PYTHONS Range Ranges ranges next_number lend give_free take_back end_some surplus lost_range pooled
adapters upload download downloaded size_class alloc free_range can_copy copy_tensors
"""
# The result of a callback that Python could not answer: an error of its object's OrtApi.
UNANSWERED = """
typedef struct { void *handle; const OrtApi *api; } WgpuKernels;
enum { WGPU_RUNTIME_EXCEPTION = 6 };
static void *reserve(size_t bytes) { return platform_reserve(bytes); }
static OrtStatus *wgpu_failed(const OrtApi *api, const char *name) {
  char text[256];
  snprintf(text, sizeof text, "onnxruntime_ep_wgpu: Python did not answer %s; it may be out of memory or of stack", name);
  return api->CreateStatus(WGPU_RUNTIME_EXCEPTION, text);
}
"""
API_OF = {
    "CreateEpFactories": "base->GetApi(1)",
    "ReleaseEpFactory": "((const WgpuOrtEpFactory *)factory)->api",
    "CreateKernel": "((const WgpuKernels *)state)->api",
}


def tables() -> str:
    """Returns the tables that the plugin fills, each followed by the OrtApi of its owner, as C text for cffi and for the C
    source."""
    return "".join(f"typedef struct {{ {name} table; const OrtApi *api; }} Wgpu{name};\n" for name in ort_abi.FILLED)


def callbacks() -> list[declared.Callback]:
    """Returns the callbacks of all tables."""
    made = []
    for name, slot in ort_abi.callbacks():
        assert slot.parameters is not None
        api = API_OF.get(name, f"((const Wgpu{name.split('_')[0]} *)self)->api")
        failed = f'wgpu_failed({api}, "{name}")' if slot.result.startswith("OrtStatus") else ""
        made.append(declared.callback(name, slot.parameters, slot.result, failed))
    return made


def make_builder() -> cffi.FFI:
    """Returns the configured builder. Paths are absolute, because it is called from different folders."""
    builder = cffi.FFI()
    made = callbacks()
    declarations = ort_abi.declarations() + tables()
    character = "wchar_t" if sys.platform == "win32" else "char"
    before = '#include "platform.h"\n#include <stdbool.h>\n' + ort_abi.CHARACTERS + declarations
    begin, end = '#include "python_call.h"\n' + UNANSWERED, '#include "runs.c"\n#include "memory.c"\n'
    ours = "typedef ... Queue;\ntypedef ... Part;\n" + declared.declared(begin + end, NAMES)
    builder.cdef(f"typedef {character} ORTCHAR_T;\n" + declarations + MEMOS + ours)
    builder.cdef("".join(it.declaration for it in made))
    builder.cdef('extern "Python" {\n' + "".join(it.python for it in made) + "}")
    builder.set_source(
        "onnxruntime_ep_wgpu._ort",
        MEMOS + before + begin + "".join(it.source for it in made) + end,
        include_dirs=[str(HERE)],
        depends=[str(KEY), ort_abi.__file__, *declared.FILES],
        libraries=["psapi"] if sys.platform == "win32" else [],
        py_limited_api=True,
    )
    return builder


ffibuilder = make_builder()

if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "_ort.c"
        ffibuilder.emit_c_code(str(target))
        print(target.read_text(encoding="utf-8"))
