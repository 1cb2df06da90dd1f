"""Runs that only make what later runs need: nothing else keeps a note of them.

In: a `with` around such a run. Out: whether this thread is in one. Invariant: what a rehearsal makes is what any run of its sizes
would make (plans, pipelines, Programs for sizes beyond a limit); it is no capture, no memo for C code, and no step of a sequence.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Thread(threading.local):
    on = False


_thread = _Thread()
# Called on a thread when rehearsals begin there, or end.
on_change: list[Callable[[bool], None]] = []


def is_on() -> bool:
    """Whether this thread is in a rehearsal."""
    return _thread.on


@contextmanager
def rehearsing() -> Iterator[None]:
    """Runs of this thread are rehearsals during the `with`."""
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
