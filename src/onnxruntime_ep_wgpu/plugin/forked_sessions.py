"""Keeps sessions alive in a process that was forked from one that uses the GPU. Their end waits for threads of the parent.

ONNX Runtime joins the threads of a session when it is destroyed, by the program or at the end of Python. In a child, which has
none of these threads, it hangs or crashes. Therefore a child keeps the sessions that it inherits. `process.py` ends the child
without exit handlers.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys

from .. import process


def _keep_sessions() -> None:
    onnxruntime = sys.modules.get("onnxruntime")
    if not process.is_forked or onnxruntime is None:
        return
    keep = ctypes.pythonapi.Py_IncRef
    keep.argtypes, keep.restype = [ctypes.py_object], None
    for it in gc.get_objects():
        if issubclass(type(it), onnxruntime.InferenceSession):  # not isinstance, which may run code of the object
            keep(it.__dict__.get("_sess"))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_sessions)
