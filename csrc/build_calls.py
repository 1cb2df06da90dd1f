"""Declares the extension module `onnxruntime_ep_wgpu._calls`: what WebGPU libraries call in us (cffi, one binary for Python 3.11
and later).

In: CALLBACKS. Out: `ffibuilder`, which setup.py names in `cffi_modules`. A callback is a C function `c_NAME` that asks the Python
function `py_NAME` until that has answered (python_call.h). Types are spelled without their header: handles are
pointers, enumerations are int.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cffi

HERE = Path(__file__).resolve().parent
CALLBACKS = {
    "on_error": "const void *device, int type, WgpuText message",
    "on_lost": "const void *device, int reason, WgpuText message",
    "on_device": "int status, void *device, WgpuText message",
    "on_popped": "int status, int type, WgpuText message",
}
DECLARED = """
typedef struct { const char *data; size_t length; } WgpuText;
"""
ANSWERS = """
void wgpu_interrupt_later(void);
void wgpu_answer(int64_t answer);
int wgpu_add_functions(const char *module);
"""
COMPLAINTS = """
void wgpu_complain(void);
uint64_t wgpu_complaints(void);
"""


def callbacks() -> tuple[str, str, str]:
    """(cdef of the C functions, cdef of the Python functions, C source) for all callbacks."""
    c_side, python_side, source = [], [], []
    for name, first in CALLBACKS.items():
        parameters = f"{first}, void *userdata1, void *userdata2"
        arguments = ", ".join(part.replace("*", " ").split()[-1] for part in parameters.split(","))
        c_side.append(f"void c_{name}({parameters});")
        python_side.append(f"void py_{name}(int again, {parameters});")
        source.append(
            f"static void py_{name}(int again, {parameters});\n"
            f"static void c_{name}({parameters}) {{ WgpuCall call; if (!wgpu_enter(&call)) return; "
            f"do py_{name}(call.again, {arguments}); while (wgpu_unanswered(&call)); wgpu_leave(&call); }}"
        )
    return "\n".join(c_side), "\n".join(python_side), "\n".join(source)


_c_side, _python_side, _source = callbacks()
ffibuilder = cffi.FFI()
ffibuilder.cdef(DECLARED + ANSWERS + COMPLAINTS + _c_side)
ffibuilder.cdef('extern "Python" {\n' + _python_side + "\n}")
ffibuilder.set_source(
    "onnxruntime_ep_wgpu._calls",
    '#include "platform.h"\n#include "python_call.h"\n#include "complaints.h"\n' + DECLARED + _source,
    include_dirs=[str(HERE)],
    depends=[str(HERE / name) for name in ("platform.h", "python_call.h", "complaints.h")],
    libraries=["psapi"] if sys.platform == "win32" else [],
    py_limited_api=True,
)
