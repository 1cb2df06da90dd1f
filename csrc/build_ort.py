"""Builds `onnxruntime_ep_wgpu._ort`, the cffi module through which Python and ONNX Runtime call each other.

In: ort_abi.py (the tables), glue.h and platform.h. Out: `ffibuilder` for setuptools' `cffi_modules`; run as a script it
prints the generated C. Every callback is a C function `c_NAME` that enters the Python function `py_NAME` while the
interpreter lives and otherwise does nothing: at process exit ONNX Runtime still frees what it holds.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cffi

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import ort_abi  # noqa: E402

# File names are wide on Windows; only the logger takes one from us.
TYPES = """
#ifdef _WIN32
typedef wchar_t ORTCHAR_T;
#else
typedef char ORTCHAR_T;
#endif
"""
GLUE = """
typedef struct { void *data; const int64_t *dims; size_t rank; int type; } WgpuTensor;
OrtStatus *wgpu_tensor(const OrtApi *api, const OrtValue *value, WgpuTensor *out);
OrtStatus *wgpu_inputs(const OrtApi *api, OrtKernelContext *context, size_t count, WgpuTensor *out);
OrtStatus *wgpu_output(const OrtApi *api, OrtKernelContext *context, size_t index, const int64_t *dims, size_t rank, void **data);
void *wgpu_reserve(size_t bytes);
void wgpu_interrupt_later(void);
"""

# A KeyboardInterrupt that was raised in a callback has become a status by the time the callback ends. It is raised again
# when Python goes on, which may only be arranged when the callback's own Python code is over, and that of the callback
# around it (allocating within a run is one): hence from C.
INTERRUPT = """
static PLATFORM_THREAD_LOCAL int wgpu_depth, wgpu_interrupted;
static void wgpu_interrupt_later(void) { wgpu_interrupted = 1; }
static void wgpu_enter(void) { wgpu_depth++; }
static void wgpu_leave(void) {
  if (--wgpu_depth > 0 || !wgpu_interrupted) return;
  wgpu_interrupted = 0;
  PyErr_SetInterrupt();
}
"""


def trampolines() -> tuple[str, str, str]:
    """(cdef of the C functions, cdef of the Python functions, C source) for all callbacks."""
    c_side, python_side, source = [], [], []
    for name, slot in ort_abi.callbacks():
        assert slot.parameters is not None
        arguments = [part.replace("*", " ").split()[-1] for part in slot.parameters.split(",")]
        signature = f"{slot.result} {{}}{name}({slot.parameters})"
        c_side.append(signature.format("c_") + ";")
        python_side.append(signature.format("py_") + ";")
        call = f"py_{name}({', '.join(arguments)})"
        body = f"if (!Py_IsInitialized()) return; wgpu_enter(); {call}; wgpu_leave();"
        if slot.result != "void":
            body = "if (!Py_IsInitialized()) return 0; wgpu_enter(); "
            body += f"{slot.result} answer = {call}; wgpu_leave(); return answer;"
        source.append(f"static {signature.format('py_')};\nstatic {signature.format('c_')} {{ {body} }}")
    return "\n".join(c_side), "\n".join(python_side), "\n".join(source)


def make_builder() -> cffi.FFI:
    """The configured builder; paths are absolute because setuptools and people call this from different folders."""
    builder = cffi.FFI()
    c_side, python_side, source = trampolines()
    declarations = ort_abi.declarations()
    character = "wchar_t" if sys.platform == "win32" else "char"
    builder.cdef(f"typedef {character} ORTCHAR_T;\n" + declarations + GLUE + c_side)
    builder.cdef('extern "Python" {\n' + python_side + "\n}")
    preamble = '#include "platform.h"\n#include <stdbool.h>\n' + TYPES + declarations + '#include "glue.h"\n'
    preamble += INTERRUPT + source
    builder.set_source(
        "onnxruntime_ep_wgpu._ort",
        preamble,
        include_dirs=[str(HERE)],
        depends=[str(HERE / name) for name in ("platform.h", "glue.h", "ort_abi.py")],
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
