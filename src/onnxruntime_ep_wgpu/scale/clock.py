"""What time it is, and waiting for what may happen before a time. Everything here that depends on time asks a `PoolClock`.

In: a condition, whose lock the caller holds, and a time. Out: when something happened or the time came.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class PoolClock(Protocol):
    """Seconds that never go back."""

    def now(self) -> float: ...

    def wait(self, condition: threading.Condition, until: float | None) -> None:
        """Waits for a notification of the condition, or until a time; it may also return earlier."""


class RealClock:
    """That of the machine."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, condition: threading.Condition, until: float | None) -> None:
        condition.wait(None if until is None else max(0.0, until - self.now()))
