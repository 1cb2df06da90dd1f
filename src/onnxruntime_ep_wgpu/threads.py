"""Background threads for two purposes: work ahead of the caller, and deferred work that no caller waits for.

"Ahead" is optional: if no thread was started, the caller does the work itself when it needs the result.

Invariants: no thread starts that could block for ever, and Python exits only after the deferred work is done. If an interrupt
hits Python's own import code, the interrupted thread may keep the global import lock, and then no other thread can import.
"""

from __future__ import annotations

import _imp
import _thread
import atexit
import os
from collections.abc import Callable
from queue import SimpleQueue

_deferred: list[SimpleQueue[None]] = []  # one per deferred thread; receives an item when the thread is done


def start_ahead(function: Callable[[], None]) -> bool:
    """Calls the function on a new thread. Returns False, without a call, while the import lock is held, perhaps for ever."""
    if _imp.lock_held():
        return False
    _thread.start_new_thread(function, ())
    return True


def start_deferred(function: Callable[[], None]) -> None:
    """Calls the function on a new thread, or here if no thread can be started. The function must not import."""
    done = SimpleQueue[None]()

    def work() -> None:
        try:
            function()
        finally:
            done.put(None)

    try:
        begun = start_ahead(work)
    except RuntimeError:  # the system has no more threads, or Python is shutting down
        begun = False
    if begun:
        _deferred.append(done)
    else:
        function()


def wait_deferred() -> None:
    """Waits for all deferred work that was started before.

    Each thread is waited for once. After an interrupted wait, the thread is not waited for again. If Python exits then, its work
    is cut off as if the process were killed."""
    while _deferred:
        try:
            done = _deferred.pop()
        except IndexError:  # another thread waits for the last one
            return
        done.get()


atexit.register(wait_deferred)
if hasattr(os, "register_at_fork"):  # the child has none of these threads
    os.register_at_fork(after_in_child=_deferred.clear)
