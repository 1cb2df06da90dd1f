"""Sets the flags by which C code leaves work to Python. Otherwise it answers ONNX Runtime by itself (csrc/without_python.h).

In: a process that was forked, and threads that have recorders (`trace.py`) or rehearse (`rehearsal.py`). Out: flags in C code.
"""

from __future__ import annotations

from .. import process, rehearsal, trace
from .._ort import lib


def settle() -> None:
    """Clears the flag of a thread without a recorder. After an interrupt it may still be set."""
    if not trace.listeners() and not rehearsal.is_on():
        _listen(False)


def _listen(listens: bool) -> None:
    lib.listen(listens or rehearsal.is_on())


def _rehearses(on: bool) -> None:
    _listen(on or bool(trace.listeners()))


def _forked() -> None:
    lib.forked = 1


process.on_fork.append(_forked)
trace.on_change.append(_listen)
rehearsal.on_change.append(_rehearses)
