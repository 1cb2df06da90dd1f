"""Prints one line on stderr when work takes long, for a user at a terminal.

In: work in a `with`, and the line. Out: the line, once the work has taken 3 seconds in total. Nothing is printed if stderr is not
a terminal, or with WGPU_EP_PROGRESS=0 in the environment. Invariant: the work never waits for the printing thread.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

SECONDS = 3.0
SWITCH = "WGPU_EP_PROGRESS"

Ended = SimpleQueue[None]
"""A queue that receives an item when the work ends."""


def is_wanted() -> bool:
    """Returns whether to print: stderr is a terminal and the environment does not turn it off."""
    stderr = sys.stderr
    return os.environ.get(SWITCH) != "0" and stderr is not None and stderr.isatty()


def ends_within(ended: Ended, seconds: float) -> bool:
    """Waits at most `seconds` for the end of the work, and returns whether it ended."""
    try:
        ended.get(timeout=max(seconds, 0))
    except Empty:
        return False
    return True


def write(line: str) -> None:
    """Writes a line to stderr; ignores errors."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr was closed in the meantime
        print(line, file=sys.stderr, flush=True)


class ProgressLine:
    """Prints the line for one piece of work, which may consist of several parts. One thread at a time does the work."""

    def __init__(
        self,
        line: Callable[[], str],
        *,
        wanted: Callable[[], bool] = is_wanted,
        clock: Callable[[], float] = time.perf_counter,
        waits: Callable[[Ended, float], bool] = ends_within,
        out: Callable[[str], None] = write,
    ) -> None:
        """`line` returns the text at the time of printing. `clock` returns seconds."""
        self._line, self._wanted, self._clock, self._waits, self._out = line, wanted, clock, waits, out
        self._shown = False
        self._spent = 0.0

    @contextlib.contextmanager
    def working(self, spent: float | None = None) -> Iterator[None]:
        """Marks one part of the work. `spent`: seconds of work before it; by default, the duration of the earlier parts."""
        if self._shown or not self._wanted():
            yield
            return
        begun, ended = self._clock(), SimpleQueue[None]()
        _thread.start_new_thread(self._show, (ended, SECONDS - (self._spent if spent is None else spent)))
        try:
            yield
        finally:
            ended.put(None)
            self._spent += self._clock() - begun

    def _show(self, ended: Ended, seconds: float) -> None:
        if not self._waits(ended, seconds) and not self._shown:
            self._shown = True
            self._out(f"onnxruntime-ep-wgpu: {self._line()} ({SWITCH}=0 turns this line off)")
