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

# File names are wide on Windows; only the logger takes one of ours.
TYPES = """
#ifdef _WIN32
typedef wchar_t ORTCHAR_T;
#else
typedef char ORTCHAR_T;
#endif
"""
GLUE = """
void *reserve(size_t bytes);
void wgpu_interrupt_later(void);
void wgpu_answer(int64_t answer);
void wgpu_answer_pointer(const void *answer);
int wgpu_add_functions(const char *module);
typedef struct { void *handle; const OrtApi *api; } WgpuKernels;
"""
KEY = HERE.parent / "src/onnxruntime_ep_wgpu/runtime/runs/key.py"
MEMOS = re.findall(r"^REMEMBERED_RUNS = (\d+)$", KEY.read_text("utf-8"), re.M)[0]
WITHOUT_PYTHON = f"#define MEMOS {MEMOS}\ntypedef ... Queue;\ntypedef ... Part;\n" + declared.declared(
    ("without_python.h", "queue.h", "runs.c", "memory.c"),
    "forked listen Given read_tensor read_inputs make_outputs MOST_AXES Tensor other_inputs other_outputs Memo Node begin_run"
    " memo_begin memo_end compute MOST_CHAINED PastRun past_runs are_all ChainedRuns run_chained"
    " POOLED PYTHONS Range Ranges ranges adapters upload download downloaded next_number lend give_free take_back end_some"
    " surplus lost_range pooled size_class alloc free_range can_copy copy_tensors",
)

# The result of a callback that Python could not answer: an error of its object's OrtApi.
UNANSWERED = """
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


def trampolines() -> tuple[str, str, str]:
    """Returns (cdef of the C functions, cdef of the Python functions, C source) for all callbacks."""
    c_side, python_side, source = [], [], []
    for name, slot in ort_abi.callbacks():
        assert slot.parameters is not None
        arguments = [part.replace("*", " ").split()[-1] for part in slot.parameters.split(",")]
        signature = f"{slot.result} c_{name}({slot.parameters})"
        entry = f"void py_{name}(int again, {slot.parameters})"
        c_side.append(signature + ";")
        python_side.append(entry + ";")
        value = slot.result != "void"
        body = "WgpuCall call; "
        body += f"if (!wgpu_enter(&call)) return{' 0' if value else ''}; "
        body += f"do py_{name}(call.again, {', '.join(arguments)}); while (wgpu_unanswered(&call)); wgpu_leave(&call);"
        if slot.result.startswith("OrtStatus"):
            api = API_OF.get(name, f"((const Wgpu{name.split('_')[0]} *)self)->api")
            body += f' if (!call.answered) return wgpu_failed({api}, "{name}");'
        if value:
            body += f" return ({slot.result})" + ("(intptr_t)" if "*" in slot.result else "") + "call.answer;"
        source.append(f"static {entry};\nstatic {signature} {{ {body} }}")
    return "\n".join(c_side), "\n".join(python_side), "\n".join(source)


def make_builder() -> cffi.FFI:
    """Returns the configured builder. Paths are absolute, because it is called from different folders."""
    builder = cffi.FFI()
    c_side, python_side, source = trampolines()
    declarations = ort_abi.declarations()
    character = "wchar_t" if sys.platform == "win32" else "char"
    builder.cdef(f"typedef {character} ORTCHAR_T;\n" + declarations + tables() + GLUE + WITHOUT_PYTHON + c_side)
    builder.cdef('extern "Python" {\n' + python_side + "\n}")
    preamble = f'#define MEMOS {MEMOS}\n#include "platform.h"\n#include <stdbool.h>\n' + ort_abi.CHARACTERS
    preamble += declarations + tables() + "typedef struct { void *handle; const OrtApi *api; } WgpuKernels;\n"
    preamble += '#include "python_call.h"\n' + UNANSWERED + source + '\n#include "runs.c"\n#include "memory.c"'
    builder.set_source(
        "onnxruntime_ep_wgpu._ort",
        preamble,
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
