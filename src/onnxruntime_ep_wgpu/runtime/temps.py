"""Buffers for intermediate values, shared by all plans of a graph: the queue runs them one after another.

In: the sizes that a plan needs, and which plans ran. Out: buffers, and which of them no plan may use any longer.
Invariant: a buffer stays here until it has gone unused for `generations` runs; then it goes back to the device's cache,
and so does every plan that was made with it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..device import Buffer, BufferCache
from ..device.sizes import size_class

LARGER = 8  # times as large as needed, a buffer that another plan has is used, too: more would keep what nothing needs
SMALL = 1 << 20  # bytes for which that is worth no buffer of its own


class Temps:
    """Not thread safe: its owner calls it under a lock."""

    def __init__(self, cache: BufferCache, generations: int) -> None:
        """`generations`: runs after which an unused buffer is given back; 0 gives all back when a run ends."""
        self.generations = generations
        self._cache = cache
        self._buffers: list[Buffer] = []

    def __len__(self) -> int:
        return len(self._buffers)

    def take(self, sizes: Sequence[int], labels: Sequence[str]) -> list[Buffer]:
        """One buffer per size (bytes), all different; reuses those of other plans before taking new ones."""
        free = sorted(self._buffers, key=lambda buffer: buffer.size)
        out: dict[int, Buffer] = {}
        for k in sorted(range(len(sizes)), key=lambda k: -sizes[k]):
            wanted = size_class(sizes[k])
            most = max(wanted * LARGER, SMALL)
            found = next((buffer for buffer in free if wanted <= buffer.size <= most), None)
            if found is None:
                found = self._cache.take(wanted, labels[k])
                self._buffers.append(found)
            else:
                free.remove(found)
            out[k] = found
        return [out[k] for k in range(len(sizes))]

    def others(self, used: Collection[Buffer]) -> set[Buffer]:
        """The buffers that are not among the `used` ones."""
        return set(self._buffers) - set(used)

    def give_back(self, buffers: Collection[Buffer]) -> None:
        """Lets go of buffers that no plan has any longer."""
        self._buffers = [buffer for buffer in self._buffers if buffer not in buffers]
        for buffer in buffers:
            self._cache.give(buffer)
