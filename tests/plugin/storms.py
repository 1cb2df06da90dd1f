"""Interrupts that come in pairs and triples, microseconds apart: the next one while the one before is being handled.

It imports nothing of the package, so that what a program does first can be interrupted too.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

AT_MOST_SECONDS = 300e-6  # between two of a burst


def burst(process: int, chance: random.Random) -> int:
    """Sends one to three interrupts; how many."""
    count = chance.choice((1, 2, 2, 3))
    for _ in range(count):
        os.kill(process, signal.SIGINT)
        end = time.perf_counter() + chance.random() ** 2 * AT_MOST_SECONDS
        while time.perf_counter() < end:
            pass
    return count


def uninterrupted(work: Callable[[], object], levels: int = 8) -> None:
    """Does the work again until it ends. An interrupt that comes while this handles one is handled a level further out."""
    while True:
        try:
            if levels:
                uninterrupted(work, levels - 1)
            else:
                work()
            return
        except KeyboardInterrupt:
            pass
