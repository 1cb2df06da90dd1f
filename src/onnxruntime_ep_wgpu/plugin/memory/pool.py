"""Ranges that ONNX Runtime has allocated, in the form that C code uses.

A range in the pool stays in its buffer when it is freed. So the next run gets the same ranges for its inputs and results,
without Python. csrc/memory.c documents the states of a range.

In: allocations that are freed, or filled repeatedly. Out: their owners, and those that must be dropped.

Invariants:

- A range in the pool is one whole tensor in a buffer of its own, on a device that a session uses.
- The pool is bounded, in number and in bytes. Its ranges are dropped with the last session of their context.
- The next tensor in a range may at first have the contents from before it was freed, as in any reused buffer.
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
NEVER = -1  # for `ends`: the range may not enter the pool
MOST_BYTES = 2 << 20  # of a range: for a larger one, copying costs more than Python
MOST_HELD = 32 << 20  # of all ranges together
MOST_PASSED_OVER = 64
ranges: Any = lib.ranges  # C code's counters and its pool
for _name in ("upload", "download", "downloaded"):
    setattr(lib, _name, ffi.cast(ffi.typeof(getattr(lib, _name)), function_of(_name)))


class Owner:
    """The allocator of a range. Its `number` is the address of the OrtAllocator, by which C code identifies it."""

    __slots__ = ("__weakref__", "context", "number")

    def __init__(self, context: Context) -> None:
        self.context, self.number = context, 0

    @property
    def pools(self) -> bool:
        """Whether freed memory may stay: the allocator is in use, and its context has a session."""
        return self.number != 0 and self.context.sessions > 0


def _word(name: str) -> Any:
    return property(attrgetter(f"words.{name}"))


class Range:
    """The state of an allocation, which Python and C code share.

    C code reads it while it is USED or FREE, so this object and the marks are kept as long. `words.copied` states that Python
    keeps host copies of its contents, `words.barred` that it never enters the pool. Each method changes the state in one step.
    """

    __slots__ = ("words",)
    state: int = _word("state")
    size: int = _word("size")
    number: int = _word("number")
    filled: int = _word("filled")  # the mark of the value when C code last filled it

    def __init__(self, start: int, size: int, capacity: int, marks: array[int]) -> None:
        words = self.words = ffi.new("Range *")
        words.number, words.start, words.size, words.capacity = lib.next_number(), start, size, capacity
        words.marks = ffi.cast("uint64_t *", marks.buffer_info()[0])

    def set_buffer(self, owner: Owner, buffer: int, queue: int) -> None:
        """Stores the buffer that begins with the range, and its queue. Call it before the range enters the pool."""
        words = self.words
        words.owner, words.buffer, words.queue = ffi.cast("void *", owner.number), buffer, queue

    def lend(self, ends: int) -> int:
        """Lets C code fill and free the range, if the counter `ends` is unchanged and the pool has room. Returns the state."""
        return int(lib.lend(self.words, ends))

    def give_free(self, ends: int, on_freed: Callable[[int], object]) -> None:
        """Frees a range that Python owns. It becomes FREE if the counter `ends` is unchanged and the pool has room, else GONE.

        `on_freed` is called with the change, before any interrupt.
        """
        # The built-in functions make both calls, so no interrupt comes between them.
        next(map(on_freed, map(lib.give_free, (self.words,), (ends,))))

    def take_back(self, states: int) -> int:
        """Takes the range from C code if it is in one of these states: USED becomes PYTHONS, and FREE becomes GONE.

        Returns the state.
        """
        return int(lib.take_back(self.words, states))


class Admission:
    """Decides which ranges enter the pool."""

    def __init__(self) -> None:
        self._attempts, self._reused = Attempts(MOST_PASSED_OVER), 0

    def admits(self, capacity: int) -> bool:
        """Returns whether to take a range of `capacity` bytes.

        If sizes change faster than ranges are reused, most ranges that would replace others are skipped.
        """
        if not self.surplus(capacity):
            return True
        if not self._attempts.is_due():
            return False
        reused, self._reused = self._reused, int(ranges.reused)
        self._attempts.ended(reused != self._reused)
        return True

    @property
    def has_ample_room(self) -> bool:
        """Whether less than half of the pool's entries are used."""
        return 2 * int(lib.pooled()) < int(lib.POOLED)

    def surplus(self, capacity: int) -> int:
        """Returns the start of the range that must be dropped for one of `capacity` bytes, or 0.

        It is the freed range that was unused longest.
        """
        return int(lib.surplus(capacity, MOST_HELD))

    def lost(self) -> int:
        """Returns the start of a FREE range on a lost device, or 0."""
        return int(lib.lost_range())
