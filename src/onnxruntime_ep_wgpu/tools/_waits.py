"""A line on stderr where Ctrl-C has to wait: Python hears of it when native code returns, and a device may take seconds.

In: signals, which the system's handler writes to a pipe at once, and `met()`, from whoever has caught the KeyboardInterrupt.
Out: one line for an interrupt that has not been met after a second. Invariant: it changes nothing about what an interrupt does;
nothing is used whose methods an interrupt could leave half done.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator

SECONDS = 1.0
LINE = "interrupted: waiting for the device to end what it was given"
_STEP = 0.02
_LATE = 0.5  # seconds by which a signal may be read after it was met
_met_at = [0.0]  # when an interrupt was met last, of the monotonic clock


def met() -> None:
    """Says that an interrupt has been met, by a command that goes on."""
    _met_at[0] = time.monotonic()


@contextlib.contextmanager
def telling_of_waits() -> Iterator[None]:
    """Reports while the block runs, which is in the main thread."""
    reader, writer = os.pipe()
    if hasattr(os, "set_blocking"):
        os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _thread.start_new_thread(_tell, (reader,))
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        met()
        os.close(writer)  # ends the thread


def _tell(reader: int) -> None:
    with os.fdopen(reader, "rb", buffering=0) as signals:
        while numbers := signals.read(64):
            if signal.SIGINT not in numbers:
                continue
            came = time.monotonic()
            while _met_at[0] < came - _LATE and time.monotonic() < came + SECONDS:
                time.sleep(_STEP)
            if _met_at[0] < came - _LATE:
                print(LINE, file=sys.stderr, flush=True)
                while _met_at[0] < came:
                    time.sleep(_STEP)
