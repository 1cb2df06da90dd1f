"""Ranges that ONNX Runtime has allocated, as C code knows them: those of the pool stay in their buffers when they are freed, so
that the next run gets the same ones again for its inputs and results, without Python (csrc/memory.c, which says what states there
are).

In: allocations that are freed, or filled again and again. Out: their owners, and those that have to go.
Invariants: in the pool is one whole tensor in one buffer of its own, on a device that a session has; the pool is bounded, in number
and in bytes, and what is in it goes with the last session of its context; what a range held when it was freed, the next tensor
there may have at first, as in any used buffer.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..._ort import ffi, lib
from ...attempts import Attempts
from ...device.native import function_of

if TYPE_CHECKING:
    from ...device import Context

PYTHONS, USED, FREE, GONE = lib.PYTHONS, lib.USED, lib.FREE, lib.GONE  # states, as csrc/memory.c has them
NEVER = -1  # for `ends`: it may not come into the pool
MOST_BYTES = 2 << 20  # of a range: beyond it copying costs more than Python
MOST_HELD = 32 << 20  # of all together
MOST_PASSED_OVER = 64
ranges: Any = lib.ranges  # what is counted, and what C code may have
for _name in ("upload", "download", "downloaded"):
    setattr(lib, _name, ffi.cast(ffi.typeof(getattr(lib, _name)), function_of(_name)))


class Owner:
    """The allocator of a range, as C code knows it: by the address of what ONNX Runtime calls."""

    __slots__ = ("__weakref__", "context", "number")

    def __init__(self, context: Context) -> None:
        self.context, self.number = context, 0

    @property
    def pools(self) -> bool:
        """Whether memory that is freed may stay: without an option against it, and only while a session is there."""
        return self.number != 0 and self.context.sessions > 0


def _word(name: str) -> Any:
    return property(attrgetter(f"words.{name}"))


class Range:
    """What is known of an allocation. C code reads it while it is USED or FREE, so it is kept for as long, and so are the marks.

    `words.copied` says that Python keeps host copies of what is put there, `words.barred` that it never comes into the pool.
    Each method changes it in one step."""

    __slots__ = ("words",)
    state: int = _word("state")
    size: int = _word("size")
    number: int = _word("number")
    filled: int = _word("filled")  # which mark of the value C code left when it filled it last

    def __init__(self, start: int, size: int, capacity: int, marks: array[int]) -> None:
        words = self.words = ffi.new("Range *")
        words.number, words.start, words.size, words.capacity = lib.next_number(), start, size, capacity
        words.marks = ffi.cast("uint64_t *", marks.buffer_info()[0])

    def lies(self, owner: Owner, buffer: int, queue: int) -> None:
        """Before it comes into the pool: which buffer it has, from its first byte on, and which queue that is written by."""
        words = self.words
        words.owner, words.buffer, words.queue = ffi.cast("void *", owner.number), buffer, queue

    def lend(self, ends: int) -> int:
        """Leaves it to C code, to fill and to free it, if nothing has ended since `ends`. Its state."""
        return int(lib.lend(self.words, ends))

    def give_free(self, ends: int, answered: Callable[[int], object]) -> None:
        """ONNX Runtime has freed it, which Python had: it is FREE, if nothing has ended since `ends`, or GONE. With the change, and
        before any interrupt, `answered` is called."""
        # C code makes both calls: no interrupt comes between them.
        next(map(answered, map(lib.give_free, (self.words,), (ends,))))

    def take_back(self, states: int) -> int:
        """C code has it no more, if it is in one of these states: its user gets what was USED, what was FREE is GONE. Its state."""
        return int(lib.take_back(self.words, states))


class Admission:
    """Which ranges come into the pool."""

    def __init__(self) -> None:
        self._attempts, self._reused = Attempts(MOST_PASSED_OVER), 0

    def admits(self, capacity: int) -> bool:
        """Whether to take a range of so many bytes. Where sizes change faster than ranges come again, most of those are passed over
        that would take the place of others."""
        if not self.surplus(capacity):
            return True
        if not self._attempts.is_due():
            return False
        reused, self._reused = self._reused, int(ranges.reused)
        self._attempts.ended(reused != self._reused)
        return True

    @property
    def has_ample_room(self) -> bool:
        """Whether less than half of the places are taken."""
        return 2 * int(lib.pooled()) < int(lib.POOLED)

    def surplus(self, capacity: int) -> int:
        """The start of a range that has to go for one of so many bytes: of those freed the one used longest ago; else 0."""
        return int(lib.surplus(capacity, MOST_HELD))

    def lost(self) -> int:
        """The start of a range that is FREE on a device that was lost; else 0."""
        return int(lib.lost_range())
