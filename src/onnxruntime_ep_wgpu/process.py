"""A process that was forked from one which uses the GPU: nothing of the GPU works there, and calling it hangs.

In: `uses_gpu()`, when the first native object is made. Out: `check_not_forked()` for every way in. Only the thread that
forked exists in the child; those of the driver and of wgpu-native are gone, and locks that they held stay locked. So the
child takes no lock and calls nothing native: `check_not_forked()` raises instead, and finalisers leave to the end of the
process what they would release. That end calls no library either: what runs at exit in onnxruntime and in drivers waits for
threads, or takes memory apart that they use. A fork before the first use does no harm.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

from .errors import ForkError

_in_use = False
_end_at_exit: Callable[[], None] | None = None
forked = False  # whether this process is such a child; read where nothing may be raised
on_fork: list[Callable[[], None]] = []  # called in such a child


def uses_gpu() -> None:
    """From here on a child that is forked cannot use the GPU."""
    global _in_use, _end_at_exit
    if not _in_use and hasattr(os, "fork"):
        _end_at_exit = _ends_at_exit()
    _in_use = True


def _ends_at_exit() -> Callable[[], None] | None:
    """A function after which the end of the process runs none of the functions that are registered until then for its exit:
    output is written and the process ends, with the status that it has. None where the C library has no such way (`on_exit`)."""
    library = ctypes.CDLL(None)
    try:
        register, flush, end = library.on_exit, library.fcloseall, library._exit
    except AttributeError:
        return None
    register.argtypes = [ctypes.c_void_p, ctypes.c_void_p]

    def ends_at_exit() -> None:
        for step in (end, flush):  # the last one that is registered runs first
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
