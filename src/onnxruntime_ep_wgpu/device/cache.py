"""Free buffers of a device, kept for their next user.

In: sizes in bytes, and buffers that are no longer needed. Out: buffers whose contents are undefined, and counters.
Invariants: a buffer belongs to its taker until it is given back, which is after the last work with it was
submitted; the queue runs work in order, so its next user need not wait. No buffer is destroyed: the cache drops its reference,
and wgpu-native keeps the memory until submitted work is done (see `buffers`).

What happens to a buffer that is given back depends on the mode:

- `disabled`: it is released at once.
- `lazyRelease`: it is released when the next run ends.
- `simple`: it waits for a request of exactly its size.
- `bucket`: sizes are rounded up to size classes (see `sizes`), and it waits for a request in its class.

What waits goes when nothing wanted it for some runs, since a sequence that grows leaves one size after the other behind. For how
many follows from what happens: where many sizes are wanted again soon after they went, for twice as many from then on.
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
# Free buffers kept per cache, in bytes; beyond it those are released that have been unused for the longest time.
KEPT_BYTES = 256 << 20
# Runs for which a free buffer is kept, to begin with and at most; between two looks; and sizes that are remembered as gone.
KEPT_FOR, MOST_KEPT_FOR = 64, 1024
LOOK_EVERY = 16
MOST_GONE = 256
# Of so many requests one may be for a size that went too early.
EARLY = 8


Reused = tuple[int, int, int]  # how often, and what waits for that: buffers, bytes


@dataclass(frozen=True)
class CacheCounters:
    """`hits` and `misses` count requests, `released` buffers that went; the others are what is free now."""

    hits: int
    misses: int
    released: int
    held_buffers: int
    held_bytes: int


class BufferCache:
    """The free buffers of one kind. Thread safe.

    `create(nbytes, label)` makes a buffer or raises LimitError; `limit` is the most bytes that one may have.

    There is no lock: buffers are given back by finalisers too, which may run on a thread that has any lock. A buffer is
    taken and given in one step each, so an interrupt between two steps makes no buffer anybody's twice. The numbers may
    be off by what such an interrupt cut short, and what is held is counted again before anything is decided by it.
    """

    def __init__(
        self,
        mode: str,
        create: Callable[[int, str], Buffer],
        limit: int,
        elsewhere: Callable[[], Reused] = lambda: (0, 0, 0),
        repeated: Callable[[], int] = lambda: 0,
    ) -> None:
        """`elsewhere`: what has been given to the next user without coming here. `repeated`: how many runs have ended elsewhere."""
        assert mode in MODES
        self.mode = mode
        self._create = create
        self._limit = limit
        # By size, and the last one at the end: (how many runs there had been when it was given back, buffer).
        self._free: dict[int, deque[tuple[int, Buffer]]] = {}
        self._repeated, self._ended, self._kept_for = repeated, 0, KEPT_FOR
        self._gone: dict[int, int] = {}  # by size: when one was given back that was released since
        self._looked = self._asked = self._early = (
            0  # when, and after how many requests; sizes that went too early since then
        )
        self._leaving: deque[Buffer] = deque()
        self._hits = self._misses = self._released = 0
        self._held = 0  # bytes, never less than there are
        self._elsewhere = elsewhere

    @property
    def _runs(self) -> int:
        """How many have ended."""
        return self._ended + self._repeated()

    def take(self, nbytes: int, label: str) -> Buffer:
        """A buffer of at least `nbytes` bytes, contents undefined. Raises LimitError above the adapter's limit."""
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
        if self._gone:
            self._note_early(size)
        return self._create(size if size <= self._limit else nbytes, label)

    def give(self, buffer: Buffer) -> None:
        """Takes back what `take` gave, to which the caller keeps no reference. All work with the buffer is submitted."""
        if self.mode == "disabled" or not self._has_room(buffer.size):
            self._released += 1
            return
        self._held += buffer.size
        if self.mode == "lazyRelease":
            self._leaving.append(buffer)
            return
        free = self._free.get(buffer.size)
        if free is None:
            free = self._free.setdefault(buffer.size, deque())
        free.append((self._runs, buffer))

    def _has_room(self, nbytes: int) -> bool:
        """Whether there is, or can be made, room for so many bytes."""
        if self._held + nbytes > KEPT_BYTES:
            self._held = self._count()[1]
        while nbytes <= KEPT_BYTES < self._held + nbytes:
            waiting = self._free.copy()
            size = min(waiting, key=lambda size: _since(waiting[size]), default=0)
            if not size or not self._let_go_of(size):
                break
        return self._held + nbytes <= KEPT_BYTES

    def _let_go_of(self, size: int) -> bool:
        """Lets go of the one of this size that nothing has wanted for the longest time. Whether there was one."""
        try:
            since, _ = self._free[size].popleft()
        except (IndexError, KeyError):  # another thread was faster
            return False
        self._held -= size
        self._released += 1
        if len(self._gone) >= MOST_GONE:
            self._gone = {}
        self._gone[size] = since
        return True

    def _note_early(self, size: int) -> None:
        """One of this size is made. Where one was released, that was too early, unless it had waited for long."""
        since = self._gone.pop(size, None)
        self._early += since is not None and self._runs - since <= MOST_KEPT_FOR

    def _look(self, now: int) -> None:
        """Lets go of what nothing has wanted for long."""
        asked = self._hits + self._misses + self._elsewhere()[0]
        if self._early * EARLY > asked - self._asked:
            self._kept_for = min(2 * self._kept_for, MOST_KEPT_FOR)
        self._looked, self._asked, self._early = now, asked, 0
        for size, free in self._free.copy().items():
            while _since(free) < now - self._kept_for and self._let_go_of(size):
                pass
            if not free:
                self._free.pop(size, None)

    def _count(self) -> tuple[int, int]:
        """Buffers and bytes that are held."""
        lists = [(size, len(free)) for size, free in list(self._free.items())]
        lists += [(buffer.size, 1) for buffer in list(self._leaving)]
        return sum(number for _, number in lists), sum(size * number for size, number in lists)

    def end_of_run(self) -> None:
        """Lets go of what was given back since the last run ended, in the mode that does so; now and then of what nothing wants."""
        self._ended += 1
        now = self._runs
        if now - self._looked >= LOOK_EVERY:
            self._look(now)
        for _ in range(len(self._leaving)):
            try:
                self._held -= self._leaving.popleft().size
            except IndexError:
                return
            self._released += 1

    @property
    def counters(self) -> CacheCounters:
        buffers, nbytes = self._count()
        hits, more, bytes_more = self._elsewhere()
        return CacheCounters(self._hits + hits, self._misses, self._released, buffers + more, nbytes + bytes_more)


def _since(free: deque[tuple[int, Buffer]]) -> float:
    """When the first one was given back; infinite where none is there."""
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
        """`create(kind, nbytes, label)` makes a buffer of a kind, which is the name of an attribute here; `reused`: tensors'
        memory that came again without the cache; `read`: tensors that were, and the buffers for that; `repeated`: how many runs
        have ended elsewhere."""

        def cache(kind: str, mode: str, elsewhere: Callable[[], Reused] = lambda: (0, 0, 0)) -> BufferCache:
            return BufferCache(mode, lambda nbytes, label: create(kind, nbytes, label), limit, elsewhere, repeated)

        self.storage = cache("storage", settings.storage_cache, reused)
        self.uniform = cache("uniform", settings.uniform_cache)
        self.query_resolve = cache("query_resolve", settings.query_resolve_cache)
        self.default = cache("default", settings.default_cache, read)
        self._all = (self.storage, self.uniform, self.query_resolve, self.default)
        # Those that release something whenever a run ends.
        self.lazy = tuple(it for it in self.all().values() if it.mode == "lazyRelease")

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
        for cache in self._all:
            cache.end_of_run()

    def counters(self) -> dict[str, CacheCounters]:
        """What the caches did and hold, by kind."""
        return {kind: cache.counters for kind, cache in self.all().items()}
