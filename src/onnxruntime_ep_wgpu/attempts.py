"""Exponential backoff for work that may be useless.

In: opportunities to try, and whether the last try was useful. Out: whether to try now. Thread safe: a race between threads costs
one try at most.
"""

from __future__ import annotations


class Attempts:
    """Counts opportunities. Each useless try doubles the number that is skipped before the next try, up to `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._skipped = self._to_skip = 0

    def is_due(self) -> bool:
        """Counts one opportunity and returns whether to try now."""
        self._skipped += 1
        return self._skipped > self._to_skip

    def ended(self, useful: bool) -> None:
        """Reports the result of a try. A useful one resets the number of skipped opportunities."""
        self._skipped, self._to_skip = 0, 0 if useful else min(2 * self._to_skip + 1, self._most)
