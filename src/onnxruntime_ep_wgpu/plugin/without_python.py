"""What C code needs that answers ONNX Runtime by itself (csrc/without_python.h).

In: a process that was forked, and threads that are listened on (`trace.py`) or rehearse (`rehearsal.py`). Out: C code that
leaves to Python what it must.
"""

from __future__ import annotations

from .. import process, rehearsal, trace
from .._ort import lib


def settle() -> None:
    """A thread without a recorder may not have been set so, after an interrupt."""
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
