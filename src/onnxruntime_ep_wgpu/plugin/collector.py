"""Pauses the garbage collector while sessions are made.

Nearly all of the hundreds of thousands of small objects that compiling a graph creates stay in use until it is done. The
collector would visit them repeatedly, and all other objects of the process: a fifth of the time of a load.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Disables the collector in a `with`, for all threads.

    Only the thread that disabled it enables it again. Other threads that are still in a `with` lose time then, and nothing
    else.
    """
    woken = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if woken:
            gc.enable()
