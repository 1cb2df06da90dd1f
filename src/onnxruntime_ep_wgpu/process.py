"""Detects processes that were forked from one that uses the GPU. The GPU cannot be used there, and native calls hang.

In: `uses_gpu()`, called when the first native object is made. Out: `check_not_forked()`, called at every entry point.

Only the forking thread exists in the child. The threads of the driver and of wgpu-native are gone, and their locks stay locked.
Therefore the child takes no lock and makes no native call:

- `check_not_forked()` raises.
- Finalisers release nothing; the end of the process does.
- Exit handlers are skipped. Those of onnxruntime and of drivers wait for threads, or free memory that they use.

A fork before the first use does no harm.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

from .errors import ForkError

_in_use = False
_end_at_exit: Callable[[], None] | None = None
forked = False  # whether this process is such a child; for code that must not raise
on_fork: list[Callable[[], None]] = []  # callbacks, called in such a child


def uses_gpu() -> None:
    """Marks the GPU as used: children that are forked from now on cannot use it."""
    global _in_use, _end_at_exit
    if not _in_use and hasattr(os, "fork"):
        _end_at_exit = _ends_at_exit()
    _in_use = True


def _ends_at_exit() -> Callable[[], None] | None:
    """Returns a function that makes the process skip all exit handlers that are registered so far.

    The process then flushes its output and ends with its exit status. Returns None if the C library lacks `on_exit`."""
    library = ctypes.CDLL(None)
    try:
        register, flush, end = library.on_exit, library.fcloseall, library._exit
    except AttributeError:
        return None
    register.argtypes = [ctypes.c_void_p, ctypes.c_void_p]

    def ends_at_exit() -> None:
        for step in (end, flush):  # handlers run in reverse order of registration
            register(ctypes.cast(step, ctypes.c_void_p), None)

    return ends_at_exit


def check_not_forked() -> None:
    """Raises ForkError in a process that was forked from one which uses the GPU."""
    if forked:
        raise ForkError(
            "this process was forked from one that uses the GPU, and cannot use it: start processes with"
            ' multiprocessing.get_context("spawn"), or fork before the provider is registered or used'
        )


def _after_fork() -> None:
    global forked
    forked = _in_use
    if forked and _end_at_exit is not None:
        _end_at_exit()
    for notify in on_fork if forked else ():
        notify()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_after_fork)
