"""Threads that do ahead what the caller does itself where nothing was begun.

Invariant: no thread is begun that could wait for ever. An interrupt between two lines of Python's own code may leave the lock of
all imports taken by the thread that it came to, and then no other one can import.
"""

from __future__ import annotations

import _imp
import _thread
from collections.abc import Callable


def begin_ahead(function: Callable[[], None]) -> bool:
    """Begins to call the function on another thread. Whether it did: not while imports are locked, which may be for ever."""
    if _imp.lock_held():
        return False
    _thread.start_new_thread(function, ())
    return True
