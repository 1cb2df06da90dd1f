"""Declares the extension module `onnxruntime_ep_wgpu._submit`: calls of WebGPU libraries without Python, and their callbacks.

It is built by cffi, as one binary for Python 3.11 and later.

In: tickets.c, encode.c, submit.c, rounds.c, readback.c, chain.c and copy.c; CALLBACKS. Out: `ffibuilder`, which setup.py names in
`cffi_modules`. A callback is a C function `c_NAME` that calls the Python function `py_NAME` until that has answered
(python_call.h). Its types are declared without the library's header: handles are pointers, enumerations are int.
"""

from __future__ import annotations

import sys
from pathlib import Path

import cffi

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import declared  # noqa: E402

CALLBACKS = {
    "on_error": "const void *device, int type, Text message",
    "on_lost": "const void *device, int reason, Text message",
    "on_device": "int status, void *device, Text message",
    "on_popped": "int status, int type, Text message",
}


def callbacks() -> tuple[str, str, str]:
    """Returns (cdef of the C functions, cdef of the Python functions, C source) for all callbacks."""
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
ffibuilder.cdef(
    "typedef struct { ...; } platform_lock_t;\n"
    + declared.declared(
        (
            *(
                "tickets.h",
                "queue.h",
                "reported_errors.h",
                "outcomes.h",
                "tickets.c",
                "encode.c",
                "submit.c",
                "rounds.c",
            ),
            *("copy.c", "readback.c", "chain.c", "python_call.h"),
        ),
        "Text Tickets indexed_submit indexed_wait indexed_look futures_submit futures_wait futures_look LAST Queue Part encode"
        " REFUSED Turn Numbers MOST_AHEAD Work queue_begin queue_end queue_hold queue_release turn_begin turn_end submit wrote"
        " upload parts record_ahead set_ahead is_behind run Round run_rounds copy_bytes provide_bytes same_bytes MOST_TEXT Answer"
        " map_buffer answer_end wait_for copy_out leave_staging download downloaded Chain chain_end submit_chain read_chain"
        " wgpu_interrupt_later wgpu_answer wgpu_add_functions wgpu_count_error",
    )
)
ffibuilder.cdef(_c_side)
ffibuilder.cdef('extern "Python" {\n' + _python_side + "\n}")
ffibuilder.set_source(
    "onnxruntime_ep_wgpu._submit",
    '#include "tickets.c"\n#include "encode.c"\n#include "submit.c"\n#include "rounds.c"\n#include "readback.c"\n'
    '#include "chain.c"\n#include "python_call.h"\n' + _source,
    include_dirs=[str(HERE)],
    depends=declared.FILES,
    libraries=["psapi"] if sys.platform == "win32" else [],
    py_limited_api=True,
)
