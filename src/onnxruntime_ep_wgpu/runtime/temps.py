"""Buffers for intermediate values, shared by all plans of a graph, because the queue runs the plans one after another.

In: the sizes that a plan needs. Out: buffers. A buffer stays here until it is given back to the device's cache.
`GraphPlans.end_run` decides when, and releases every plan with it first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..device import Buffer, BufferCache
from ..device.sizes import size_class

LARGER = 8  # times the needed size, up to which another plan's buffer is reused; more would waste memory
SMALL = 1 << 20  # bytes; up to this size any buffer is reused


class Temps:
    """Not thread safe. Its owner calls it under a lock."""

    def __init__(self, cache: BufferCache) -> None:
        self._cache = cache
        self._buffers: list[Buffer] = []

    def __len__(self) -> int:
        return len(self._buffers)

    def take(self, sizes: Sequence[int], labels: Sequence[str]) -> list[Buffer]:
        """Returns one buffer per size (bytes), all different. Reuses those of other plans before it takes new ones."""
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
        """Returns the buffers that are not in `used`."""
        return set(self._buffers) - set(used)

    def give_back(self, buffers: Collection[Buffer]) -> None:
        """Returns buffers that no plan uses any longer to the cache."""
        self._buffers = [buffer for buffer in self._buffers if buffer not in buffers]
        for buffer in buffers:
            self._cache.give(buffer)
