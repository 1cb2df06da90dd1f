"""How often something is tried that may be of no use.

In: occasions, and whether the last try was of use. Out: whether this occasion is due. Thread safe: what threads do at once costs a
try.
"""

from __future__ import annotations


class Attempts:
    """After each try without use twice as many occasions are passed over, `most` at most."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._passed = self._to_pass = 0

    def is_due(self) -> bool:
        """Counts an occasion."""
        self._passed += 1
        return self._passed > self._to_pass

    def ended(self, useful: bool) -> None:
        """A try is over."""
        self._passed, self._to_pass = 0, 0 if useful else min(2 * self._to_pass + 1, self._most)
