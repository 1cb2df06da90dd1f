"""The free buffers of a device, kept for reuse.

In: sizes in bytes, and buffers that are no longer needed. Out: buffers with undefined contents, and counters.

Invariants:

- A buffer belongs to its taker until it is returned, which is after its last work was submitted. The queue runs work in order,
  so the next user need not wait.
- No buffer is destroyed. The cache drops its reference, and the library keeps the memory until submitted work is done (see
  `buffers`).

The mode decides what happens to a returned buffer:

- `disabled`: it is released at once.
- `lazyRelease`: it is released when the next run ends.
- `simple`: it is reused for a request of exactly its size.
- `bucket`: sizes are rounded up to size classes (see `sizes`), and it is reused for a request in its class.

Free buffers are evicted after a number of runs without a request for their size, because a growing sequence leaves one size
after the other behind. The number adapts: it doubles when many sizes are requested again soon after their eviction.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from ..records import dataclass
from .buffers import Buffer
from .settings import Settings
from .sizes import padded, size_class

MODES = ("disabled", "lazyRelease", "simple", "bucket")
# Most bytes of free buffers per cache. Beyond it, buffers are evicted, the longest unused first.
KEPT_BYTES = 256 << 20
# Runs for which a free buffer is kept (first and largest value), runs between two evictions, and evicted sizes that are recorded.
KEPT_FOR, MOST_KEPT_FOR = 64, 1024
EVICT_EVERY = 16
MOST_EVICTED = 256
# The number of runs doubles if more than one of this many requests is for a size that was evicted too early.
EARLY = 8


Reused = tuple[int, int, int]  # (hits, free buffers, their bytes)


@dataclass(frozen=True)
class CacheCounters:
    """`hits` and `misses` count requests, `released` counts evicted buffers. The others describe the free buffers of now."""

    hits: int
    misses: int
    released: int
    held_buffers: int
    held_bytes: int


class BufferCache:
    """The free buffers of one kind. Thread safe.

    `create(nbytes, label)` makes a buffer or raises LimitError. `limit` is the largest size of a buffer in bytes.

    There is no lock, because finalisers also return buffers, and they may run on a thread that holds any lock. Taking and
    returning a buffer are one step each, so an interrupt between two steps never gives a buffer to two users. An interrupt may
    make the counts wrong. The held bytes are therefore counted again before a decision depends on them.
    """

    def __init__(
        self,
        mode: str,
        create: Callable[[int, str], Buffer],
        limit: int,
        elsewhere: Callable[[], Reused] = lambda: (0, 0, 0),
        repeated: Callable[[], int] = lambda: 0,
    ) -> None:
        """`elsewhere`: hits and free memory that bypass this cache. `repeated`: how many runs ended without `end_of_run`."""
        assert mode in MODES
        self.mode = mode
        self._create = create
        self._limit = limit
        # By size, most recent last: (number of runs when it was returned, buffer).
        self._free: dict[int, deque[tuple[int, Buffer]]] = {}
        self._repeated, self._ended, self._kept_for = repeated, 0, KEPT_FOR
        self._evicted: dict[int, int] = {}  # by size: when the evicted buffer had been returned
        # The run and the number of requests at the last eviction, and the sizes that were evicted too early since.
        self._checked_at = self._requests_then = self._evicted_early = 0
        self._until_end_of_run: deque[Buffer] = deque()
        self._hits = self._misses = self._released = 0
        self._held = 0  # bytes; never less than the true number
        self._elsewhere = elsewhere

    @property
    def _runs(self) -> int:
        """How many runs have ended."""
        return self._ended + self._repeated()

    def take(self, nbytes: int, label: str) -> Buffer:
        """Returns a buffer of at least `nbytes` bytes, contents undefined. Raises LimitError above the adapter's limit."""
        size = padded(nbytes)
        if self.mode == "bucket":
            size = min(size_class(nbytes), max(size, self._limit & ~15))
        free = self._free.get(size)
        if free:
            try:
                _, buffer = free.pop()
            except IndexError:  # another thread was faster
                pass
            else:
                self._held -= size
                self._hits += 1
                buffer.label = label
                return buffer
        self._misses += 1
        if self._evicted:
            self._note_early(size)
        return self._create(size if size <= self._limit else nbytes, label)

    def give(self, buffer: Buffer) -> None:
        """Accepts a buffer from `take`. The caller keeps no reference, and all work with the buffer is submitted."""
        if self.mode == "disabled" or not self._has_room(buffer.size):
            self._released += 1
            return
        self._held += buffer.size
        if self.mode == "lazyRelease":
            self._until_end_of_run.append(buffer)
            return
        free = self._free.get(buffer.size)
        if free is None:
            free = self._free.setdefault(buffer.size, deque())
        free.append((self._runs, buffer))

    def _has_room(self, nbytes: int) -> bool:
        """Whether the cache has, or can make, room for this many bytes."""
        if self._held + nbytes > KEPT_BYTES:
            self._held = self._count()[1]
        while nbytes <= KEPT_BYTES < self._held + nbytes:
            waiting = self._free.copy()
            size = min(waiting, key=lambda size: _since(waiting[size]), default=0)
            if not size or not self._evict(size):
                break
        return self._held + nbytes <= KEPT_BYTES

    def _evict(self, size: int) -> bool:
        """Evicts the buffer of this size that has been unused longest. Returns whether there was one."""
        try:
            since, _ = self._free[size].popleft()
        except (IndexError, KeyError):  # another thread was faster
            return False
        self._held -= size
        self._released += 1
        if len(self._evicted) >= MOST_EVICTED:
            self._evicted = {}
        self._evicted[size] = since
        return True

    def _note_early(self, size: int) -> None:
        """Records a miss of this size. An eviction was early if its buffer had been returned at most MOST_KEPT_FOR runs ago."""
        since = self._evicted.pop(size, None)
        self._evicted_early += since is not None and self._runs - since <= MOST_KEPT_FOR

    def _evict_unused(self, now: int) -> None:
        """Evicts buffers that have been unused for long."""
        requests = self._hits + self._misses + self._elsewhere()[0]
        if self._evicted_early * EARLY > requests - self._requests_then:
            self._kept_for = min(2 * self._kept_for, MOST_KEPT_FOR)
        self._checked_at, self._requests_then, self._evicted_early = now, requests, 0
        for size, free in self._free.copy().items():
            while _since(free) < now - self._kept_for and self._evict(size):
                pass
            if not free:
                self._free.pop(size, None)

    def _count(self) -> tuple[int, int]:
        """The number of held buffers, and their bytes."""
        lists = [(size, len(free)) for size, free in list(self._free.items())]
        lists += [(buffer.size, 1) for buffer in list(self._until_end_of_run)]
        return sum(number for _, number in lists), sum(size * number for size, number in lists)

    def end_of_run(self) -> None:
        """Ends a run. In mode `lazyRelease`, releases the returned buffers. Evicts unused buffers every EVICT_EVERY runs."""
        self._ended += 1
        now = self._runs
        if now - self._checked_at >= EVICT_EVERY:
            self._evict_unused(now)
        self._release_returned()

    def release_all(self) -> int:
        """Releases all free buffers, because the device has no memory left. Returns their bytes."""
        nbytes = self._count()[1]
        for size in [*self._free]:
            while self._evict(size):
                pass
        self._release_returned()
        return nbytes

    def _release_returned(self) -> None:
        """Releases the buffers that were returned in mode `lazyRelease`."""
        for _ in range(len(self._until_end_of_run)):
            try:
                self._held -= self._until_end_of_run.popleft().size
            except IndexError:  # another thread was faster
                return
            self._released += 1

    @property
    def counters(self) -> CacheCounters:
        buffers, nbytes = self._count()
        hits, more, bytes_more = self._elsewhere()
        return CacheCounters(self._hits + hits, self._misses, self._released, buffers + more, nbytes + bytes_more)


def _since(free: deque[tuple[int, Buffer]]) -> float:
    """When the oldest one was returned; infinite if the queue is empty."""
    try:
        return free[0][0]
    except IndexError:
        return math.inf


class Caches:
    """The four caches of a device."""

    def __init__(
        self,
        settings: Settings,
        create: Callable[[str, int, str], Buffer],
        limit: int,
        reused: Callable[[], Reused] = lambda: (0, 0, 0),
        read: Callable[[], Reused] = lambda: (0, 0, 0),
        repeated: Callable[[], int] = lambda: 0,
    ) -> None:
        """`create(kind, nbytes, label)` makes a buffer of a kind, which is the name of an attribute here.

        `reused`: memory of tensors that was reused without the cache. `read`: tensors that C code read, and its staging buffers.
        `repeated`: how many runs ended without `end_of_run`.
        """

        def cache(kind: str, mode: str, elsewhere: Callable[[], Reused] = lambda: (0, 0, 0)) -> BufferCache:
            return BufferCache(mode, lambda nbytes, label: create(kind, nbytes, label), limit, elsewhere, repeated)

        self.storage = cache("storage", settings.storage_cache, reused)
        self.uniform = cache("uniform", settings.uniform_cache)
        self.query_resolve = cache("query_resolve", settings.query_resolve_cache)
        self.default = cache("default", settings.default_cache, read)
        self._all = (self.storage, self.uniform, self.query_resolve, self.default)
        # The caches that release something whenever a run ends.
        self.lazy = tuple(it for it in self.all().values() if it.mode == "lazyRelease")

    def all(self) -> dict[str, BufferCache]:
        """The caches by kind."""
        return {
            "storage": self.storage,
            "uniform": self.uniform,
            "query_resolve": self.query_resolve,
            "default": self.default,
        }

    def release_all(self) -> int:
        """Releases all free buffers. Returns their bytes."""
        return sum([cache.release_all() for cache in self._all])

    def end_of_run(self) -> None:
        """Call this when a run is submitted."""
        for cache in self._all:
            cache.end_of_run()

    def counters(self) -> dict[str, CacheCounters]:
        """The counters of the caches, by kind."""
        return {kind: cache.counters for kind, cache in self.all().items()}
