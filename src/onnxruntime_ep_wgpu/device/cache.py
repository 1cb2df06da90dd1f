"""Free buffers of a device, kept for their next user.

In: sizes in bytes, and buffers that are no longer needed. Out: buffers whose contents are undefined, and counters.
Invariants: a buffer belongs to whoever took it until it is given back, which is after the last work with it was
submitted; the queue runs work in order, so its next user need not wait. No buffer is destroyed: the cache lets go of it,
and wgpu-native keeps the memory until submitted work is done (see `buffers`).

What happens to a buffer that is given back depends on the mode:

- `disabled`: it is let go at once.
- `lazyRelease`: it is let go when the next run ends.
- `simple`: it waits for a request of exactly its size.
- `bucket`: sizes are rounded up to size classes (see `sizes`), and it waits for a request in its class.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from ..sizes import padded, size_class
from .buffers import Buffer
from .settings import Settings

MODES = ("disabled", "lazyRelease", "simple", "bucket")
# Free buffers kept per cache, in bytes; beyond it a buffer is let go.
KEPT_BYTES = 256 << 20


@dataclass(frozen=True)
class CacheCounters:
    """`hits` and `misses` count requests, `released` buffers that were let go; the others are what is free now."""

    hits: int
    misses: int
    released: int
    held_buffers: int
    held_bytes: int


class BufferCache:
    """The free buffers of one kind. Thread safe.

    `create(nbytes, label)` makes a buffer or raises LimitError; `limit` is the most bytes that one may have.
    """

    def __init__(self, mode: str, create: Callable[[int, str], Buffer], limit: int) -> None:
        assert mode in MODES
        self.mode = mode
        self._create = create
        self._limit = limit
        self._lock = threading.Lock()
        self._free: dict[int, list[Buffer]] = {}
        self._leaving: list[Buffer] = []
        self._hits = self._misses = self._released = self._held = 0

    def take(self, nbytes: int, label: str) -> Buffer:
        """A buffer of at least `nbytes` bytes, contents undefined. Raises LimitError above the adapter's limit."""
        size = padded(nbytes)
        if self.mode == "bucket":
            size = min(size_class(nbytes), max(size, self._limit & ~15))
        with self._lock:
            free = self._free.get(size)
            if free:
                buffer = free.pop()
                self._held -= size
                self._hits += 1
                buffer.label = label
                return buffer
            self._misses += 1
        return self._create(size if size <= self._limit else nbytes, label)

    def give(self, buffer: Buffer) -> None:
        """Takes back what `take` gave. All work with the buffer is submitted."""
        with self._lock:
            if self.mode == "disabled" or self._held + buffer.size > KEPT_BYTES:
                self._released += 1
                return
            if self.mode == "lazyRelease":
                self._leaving.append(buffer)
            else:
                self._free.setdefault(buffer.size, []).append(buffer)
            self._held += buffer.size

    def end_of_run(self) -> None:
        """Lets go of what was given back since the last run ended, in the mode that does so."""
        if not self._leaving:
            return
        with self._lock:
            leaving, self._leaving = self._leaving, []
            self._held -= sum(buffer.size for buffer in leaving)
            self._released += len(leaving)

    @property
    def counters(self) -> CacheCounters:
        with self._lock:
            held = len(self._leaving) + sum(map(len, self._free.values()))
            return CacheCounters(self._hits, self._misses, self._released, held, self._held)


class Caches:
    """The four caches of a device."""

    def __init__(self, settings: Settings, create: Callable[[str, int, str], Buffer], limit: int) -> None:
        """`create(kind, nbytes, label)` makes a buffer of a kind, which is the name of an attribute here."""

        def cache(kind: str, mode: str) -> BufferCache:
            return BufferCache(mode, lambda nbytes, label: create(kind, nbytes, label), limit)

        self.storage = cache("storage", settings.storage_cache)
        self.uniform = cache("uniform", settings.uniform_cache)
        self.query_resolve = cache("query_resolve", settings.query_resolve_cache)
        self.default = cache("default", settings.default_cache)
        self._lazy = tuple(it for it in self.all().values() if it.mode == "lazyRelease")

    def all(self) -> dict[str, BufferCache]:
        """The caches by kind."""
        return {
            "storage": self.storage,
            "uniform": self.uniform,
            "query_resolve": self.query_resolve,
            "default": self.default,
        }

    def end_of_run(self) -> None:
        """To be called when a run is submitted."""
        for cache in self._lazy:
            cache.end_of_run()

    def counters(self) -> dict[str, CacheCounters]:
        """What the caches did and hold, by kind."""
        return {kind: cache.counters for kind, cache in self.all().items()}
