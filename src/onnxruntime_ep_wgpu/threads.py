"""Threads that do ahead what the caller does itself where nothing was begun, or behind it what nobody waits for.

Invariants: no thread is begun that could wait for ever, and Python ends after what is done behind. An interrupt between two lines
of Python's own code may leave the lock of all imports taken by the thread that it came to, and then no other one can import.
"""

from __future__ import annotations

import _imp
import _thread
import atexit
import os
from collections.abc import Callable
from queue import SimpleQueue

_behind: list[SimpleQueue[None]] = []  # of threads that work behind: each gets something when its thread is done


def begin_ahead(function: Callable[[], None]) -> bool:
    """Begins to call the function on another thread. Whether it did: not while imports are locked, which may be for ever."""
    if _imp.lock_held():
        return False
    _thread.start_new_thread(function, ())
    return True


def begin_behind(function: Callable[[], None]) -> None:
    """Begins to call a function, which imports nothing, on another thread. Where none can be begun it is called here."""
    done = SimpleQueue[None]()

    def work() -> None:
        try:
            function()
        finally:
            done.put(None)

    try:
        begun = begin_ahead(work)
    except RuntimeError:  # the system has no more threads, or Python ends
        begun = False
    if begun:
        _behind.append(done)
    else:
        function()


def wait_behind() -> None:
    """Returns when all is done that was begun behind before. Each thread is waited for once, so one whose wait is interrupted is
    not waited for again: if Python ends then, what it does is left as if the process were killed."""
    while _behind:
        try:
            done = _behind.pop()
        except IndexError:  # another thread waits for it
            return
        done.get()


atexit.register(wait_behind)
if hasattr(os, "register_at_fork"):  # a child has none of these threads
    os.register_at_fork(after_in_child=_behind.clear)
