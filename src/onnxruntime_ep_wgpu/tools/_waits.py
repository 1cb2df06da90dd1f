"""A line on stderr where Ctrl-C has to wait: Python hears of it when native code returns, and a device may take seconds.

In: signals, which the system's handler writes to a pipe at once, and `met()`, from whoever has caught the KeyboardInterrupt.
Out: one line for an interrupt that nobody has met after a second. Invariant: it changes nothing about what an interrupt does.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

SECONDS = 1.0
LINE = "interrupted: waiting for the device to end what it was given"
_met = threading.Event()


def met() -> None:
    """Says that an interrupt has been met, by a command that goes on."""
    _met.set()


@contextlib.contextmanager
def telling_of_waits() -> Iterator[None]:
    """Tells while the block runs, which is in the main thread."""
    reader, writer = os.pipe()
    if hasattr(os, "set_blocking"):
        os.set_blocking(writer, False)
    _met.clear()
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    thread = threading.Thread(target=_tell, args=(reader,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        _met.set()
        os.close(writer)  # ends the thread


def _tell(reader: int) -> None:
    with os.fdopen(reader, "rb", buffering=0) as signals:
        while numbers := signals.read(64):
            if signal.SIGINT not in numbers:
                continue
            if not _met.wait(SECONDS):
                print(LINE, file=sys.stderr, flush=True)
                _met.wait()
            _met.clear()
