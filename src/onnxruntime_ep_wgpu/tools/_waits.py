"""Prints a line on stderr if Ctrl-C has to wait. Python raises KeyboardInterrupt only when native code returns, perhaps in
seconds.

In: signals, which the system's handler writes to a pipe at once, and `met()`, called by code that caught the KeyboardInterrupt.
Out: one line for an interrupt that was not handled within a second. Invariant: the interrupt's effect does not change. Only
operations are used that an interrupt cannot leave half done.
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
LINE = "interrupted: waiting for the device to finish its work"
_STEP = 0.02
_LATE = 0.5  # seconds; a signal may be read so long after it was handled
_met_at = [0.0]  # the time when an interrupt was last handled, by the monotonic clock


def met() -> None:
    """Reports that an interrupt was handled and the command continues."""
    _met_at[0] = time.monotonic()


@contextlib.contextmanager
def reporting_waits() -> Iterator[None]:
    """Watches for interrupts during the block, which runs in the main thread."""
    reader, writer = os.pipe()
    if hasattr(os, "set_blocking"):
        os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _thread.start_new_thread(_watch, (reader,))
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        met()
        os.close(writer)  # ends the thread


def _watch(reader: int) -> None:
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
