"""Detects processes that were forked from one that uses the GPU. The GPU cannot be used there, and native calls hang.

In: `mark_gpu_used()`, called when the first native object is made. Out: `check_not_forked()`, called at every entry point.

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
_skip_exit_handlers: Callable[[], None] | None = None
is_forked = False  # whether this process is such a child; for code that must not raise
on_fork: list[Callable[[], None]] = []  # callbacks, called in such a child


def mark_gpu_used() -> None:
    """Marks the GPU as used: children that are forked from now on cannot use it."""
    global _in_use, _skip_exit_handlers
    if not _in_use and hasattr(os, "fork"):
        _skip_exit_handlers = _exit_handler_skipper()
    _in_use = True


def _exit_handler_skipper() -> Callable[[], None] | None:
    """Returns a function that makes the process skip all exit handlers that are registered so far.

    The process then flushes its output and ends with its exit status. Returns None if the C library lacks `on_exit`."""
    library = ctypes.CDLL(None)
    try:
        register, flush, end = library.on_exit, library.fcloseall, library._exit
    except AttributeError:
        return None
    register.argtypes = [ctypes.c_void_p, ctypes.c_void_p]

    def skip_exit_handlers() -> None:
        for step in (end, flush):  # handlers run in reverse order of registration
            register(ctypes.cast(step, ctypes.c_void_p), None)

    return skip_exit_handlers


def check_not_forked() -> None:
    """Raises ForkError in a process that was forked from one which uses the GPU."""
    if is_forked:
        raise ForkError(
            "this process was forked from one that uses the GPU, and cannot use it: start processes with"
            ' multiprocessing.get_context("spawn"), or fork before the provider is registered or used'
        )


def _after_fork() -> None:
    global is_forked
    is_forked = _in_use
    if is_forked and _skip_exit_handlers is not None:
        _skip_exit_handlers()
    for notify in on_fork if is_forked else ():
        notify()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_after_fork)
