"""Sessions are made without looking for garbage.

Nearly all that compiling a graph makes, hundreds of thousands of small objects, is in use until it is done. The collector would
look at all of it again and again, and at everything else that the process has: a fifth of the time of a load.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def at_rest() -> Iterator[None]:
    """No garbage is collected in a `with`, in no thread. One that finds the collector at rest leaves it so: of several threads the
    one that began wakes it, which costs the others time and nothing else."""
    woken = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if woken:
            gc.enable()
