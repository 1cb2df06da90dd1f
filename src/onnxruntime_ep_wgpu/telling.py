"""A line on stderr where something takes long, for a user at a terminal.

In: work in a `with`, and what to say of it. Out: one line, once the work has taken 3 seconds together; none where stderr is no
terminal, nor with WGPU_EP_PROGRESS=0 in the environment. Invariant: the work does not wait for it, whatever it does.
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
"""Has something in it when the work has ended."""


def is_wanted() -> bool:
    """Whether the line may be read."""
    stderr = sys.stderr
    return os.environ.get(SWITCH) != "0" and stderr is not None and stderr.isatty()


def ends_within(ended: Ended, seconds: float) -> bool:
    """Waits for the end of the work, for so many seconds at most. Whether it came."""
    try:
        ended.get(timeout=max(seconds, 0))
    except Empty:
        return False
    return True


def write(line: str) -> None:
    """Writes to stderr, if that can be."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed meanwhile
        print(line, file=sys.stderr, flush=True)


class Telling:
    """That of one kind of work, which may be done in several pieces. One thread at a time works."""

    def __init__(
        self,
        line: Callable[[], str],
        *,
        wanted: Callable[[], bool] = is_wanted,
        clock: Callable[[], float] = time.perf_counter,
        waits: Callable[[Ended, float], bool] = ends_within,
        out: Callable[[str], None] = write,
    ) -> None:
        """`line` gives what to say, when it is said. `clock` is in seconds."""
        self._line, self._wanted, self._clock, self._waits, self._out = line, wanted, clock, waits, out
        self._shown = False
        self._spent = 0.0

    @contextlib.contextmanager
    def working(self, spent: float | None = None) -> Iterator[None]:
        """A piece of the work. `spent`: seconds that it has taken before; else those of earlier pieces."""
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
            self._out(f"onnxruntime-ep-wgpu: {self._line()} ({SWITCH}=0 leaves this line out)")
