"""Rehearsals: runs that only prepare later runs, as in `warmup`, and leave no other trace.

In: a `with` around such a run. Out: whether this thread is in a rehearsal. Invariant: a rehearsal creates what any run of the
same sizes creates: plans, pipelines, and Programs for sizes beyond a limit. It does not count for captures, for the memo of the C
code, or for the prediction of run sequences.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Thread(threading.local):
    on = False


_thread = _Thread()
# Callbacks, called on a thread when a rehearsal begins or ends there.
on_change: list[Callable[[bool], None]] = []


def is_on() -> bool:
    """Returns whether this thread is in a rehearsal."""
    return _thread.on


@contextmanager
def rehearsing() -> Iterator[None]:
    """Marks the runs of this thread in the `with` as rehearsals."""
    before = _thread.on
    try:
        _set(True)
        yield
    finally:
        _set(before)


def _set(on: bool) -> None:
    _thread.on = on
    for notify in on_change:
        notify(on)
