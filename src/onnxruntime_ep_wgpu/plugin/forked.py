"""Sessions in a process that was forked from one which uses the GPU: their end waits for threads that only the parent has.

ONNX Runtime joins the threads of a session when it is dropped, by the program or when Python ends, and hangs or crashes in a
child, which has none of them. So a child keeps what it inherits: `process.py` ends it without taking anything apart.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys

from .. import process


def _keep_sessions() -> None:
    onnxruntime = sys.modules.get("onnxruntime")
    if not process.forked or onnxruntime is None:
        return
    keep = ctypes.pythonapi.Py_IncRef
    keep.argtypes, keep.restype = [ctypes.py_object], None
    for it in gc.get_objects():
        if issubclass(type(it), onnxruntime.InferenceSession):  # no isinstance: that may run code of the object
            keep(it.__dict__.get("_sess"))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_sessions)
