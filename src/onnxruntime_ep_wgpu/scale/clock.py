"""Time and waiting. All time-dependent code in this folder uses a `PoolClock`, which tests replace.

In: a condition, with its lock held by the caller, and a time. Out: a return at a notification or at that time.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class PoolClock(Protocol):
    """A monotonic clock in seconds."""

    def now(self) -> float: ...

    def wait(self, condition: threading.Condition, until: float | None) -> None:
        """Waits for a notification of the condition, or until a time. It may also return earlier."""


class RealClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, condition: threading.Condition, until: float | None) -> None:
        condition.wait(None if until is None else max(0.0, until - self.now()))
