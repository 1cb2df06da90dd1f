"""The KV caches of a text that has ended, for the next text.

In: caches in place that no text uses any longer. Out: the same for a text of the same batch size. It allocates no caches then, and
its tensors are where those of the last text were. Invariant: at most one set is kept. A device may be lost while it is kept; `take`
returns no caches of such a device.
"""

from __future__ import annotations

from typing import Any

from .memory import AdapterMemory


class SpareCaches:
    """At most one set of caches. Thread safe: no set is returned twice, because `pop` is atomic."""

    def __init__(self, memory: AdapterMemory) -> None:
        self._memory = memory
        self._kept: dict[int, dict[str, Any]] = {}  # by batch size

    def take(self, batch: int) -> dict[str, Any] | None:
        """Returns caches for so many sequences, with any content; None if there are none. Frees those for other numbers."""
        kept = self._kept
        found = kept.pop(batch, None)
        kept.clear()
        usable = found is not None and not any(map(self._memory.is_lost, found.values()))
        return found if usable else None

    def give(self, batch: int, caches: dict[str, Any]) -> None:
        """Keeps the caches in place of those kept before. Nothing else may use them from now on, except submitted work."""
        self._kept = {batch: caches}
