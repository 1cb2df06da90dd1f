"""Declares the extension module `onnxruntime_ep_wgpu._submit`: calls of WebGPU libraries without Python, and their callbacks.

It is built by cffi, as one binary for Python 3.11 and later.

In: tickets.c, encode.c, submit.c, rounds.c, readback.c, chain.c and copy.c; CALLBACKS. Out: `ffibuilder`, which setup.py names in
`cffi_modules`. The types of a callback are declared without the library's header: handles are pointers, enumerations are int.
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


made = [declared.callback(name, f"{first}, void *userdata1, void *userdata2") for name, first in CALLBACKS.items()]
SOURCE = "".join(
    f'#include "{it}"\n'
    for it in ("tickets.c", "encode.c", "submit.c", "rounds.c", "readback.c", "chain.c", "python_call.h")
)
NAMES = """
Text Tickets indexed_submit indexed_wait indexed_look futures_submit futures_wait futures_look
LAST Queue queue_begin queue_end queue_hold queue_release Turn turn_begin turn_end submit wrote upload encode
REFUSED Numbers MOST_AHEAD Work parts record_ahead set_ahead is_behind run Round run_rounds
Part MOST_TEXT Answer map_buffer answer_end wait_for copy_out leave_staging download downloaded
Chain chain_end submit_chain read_chain copy_bytes provide_bytes same_bytes
wgpu_interrupt_later wgpu_answer wgpu_add_functions wgpu_count_error
"""
ffibuilder = cffi.FFI()
ffibuilder.cdef("typedef struct { ...; } platform_lock_t;\n" + declared.declared(SOURCE, NAMES))
ffibuilder.cdef("".join(it.declaration for it in made))
ffibuilder.cdef('extern "Python" {\n' + "".join(it.python for it in made) + "}")
ffibuilder.set_source(
    "onnxruntime_ep_wgpu._submit",
    SOURCE + "".join(it.source for it in made),
    include_dirs=[str(HERE)],
    depends=declared.FILES,
    libraries=["psapi"] if sys.platform == "win32" else [],
    py_limited_api=True,
)
