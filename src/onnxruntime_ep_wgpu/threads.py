"""Threads that do ahead what the caller does itself where nothing was begun, or behind it what nobody waits for.

Invariants: no thread is begun that could wait for ever, and Python ends after what is done behind. An interrupt between two lines of Python's own code may leave the lock of
all imports taken by the thread that it came to, and then no other one can import.
"""

from __future__ import annotations

import _imp
import _thread
import atexit
import os
from collections.abc import Callable

_behind: list[_thread.LockType] = []  # one for each thread that works behind, which has it until it is done


def begin_ahead(function: Callable[[], None]) -> bool:
    """Begins to call the function on another thread. Whether it did: not while imports are locked, which may be for ever."""
    if _imp.lock_held():
        return False
    _thread.start_new_thread(function, ())
    return True


def begin_behind(function: Callable[[], None]) -> None:
    """Begins to call a function, which imports nothing, on another thread. Where none can be begun it is called here."""
    done = _thread.allocate_lock()
    done.acquire()

    def work() -> None:
        try:
            function()
        finally:
            done.release()

    try:
        begun = begin_ahead(work)
    except RuntimeError:  # the system has no more threads, or Python ends
        begun = False
    if begun:
        # An interrupt before this line costs a process that ends meanwhile what it works on, as if it were killed.
        _behind[:] = [*(it for it in _behind if it.locked()), done]
    else:
        function()


def wait_behind() -> None:
    """Returns when all is done that was begun behind before."""
    for done in [*_behind]:
        with done:  # which lets it go again, also where an interrupt comes
            pass


atexit.register(wait_behind)
if hasattr(os, "register_at_fork"):  # a child has none of these threads
    os.register_at_fork(after_in_child=_behind.clear)
