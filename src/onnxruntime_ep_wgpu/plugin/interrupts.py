"""Ctrl-C during a callback of ONNX Runtime, where an exception may not leave.

In: work. Out: `calmly`, which does it without the main thread being interrupted. It is for the way out of a callback that an
interrupt or an error has ended already: making a status, or doing the work again. Further interrupts are noted and raised
when the callback has returned. Runs that nobody interrupts never come here, as exchanging a handler costs some microseconds.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

from .._ort import lib


def _later(_signal: int, _frame: Any) -> None:
    lib.wgpu_interrupt_later()


class _Deferred:
    """Changes nothing in other threads, which are never interrupted, nor where the program has a handler of its own."""

    def __enter__(self) -> None:
        _exchange(signal.default_int_handler, _later)

    def __exit__(self, *_: object) -> None:
        _exchange(_later, signal.default_int_handler)


def _exchange(old: Any, new: Any) -> None:
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is old:
        signal.signal(signal.SIGINT, new)


_deferred = _Deferred()


def calmly(work: Callable[..., Any], *arguments: Any) -> Any:
    """`work(*arguments)`. Interrupts that come before they are deferred, a fast series of them, make it begin again."""
    try:
        with _deferred:
            return work(*arguments)
    except KeyboardInterrupt:
        with _deferred:
            return work(*arguments)
