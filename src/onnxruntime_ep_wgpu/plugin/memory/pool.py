"""Ranges that ONNX Runtime has allocated, as C code knows them: those of the pool stay in their buffers when they are freed, so
that the next run gets the same ones again for its inputs and results, without Python (csrc/memory.c, which says what states there
are).

In: allocations that are freed, or filled again and again. Out: who has them, and those that have to go.
Invariants: in the pool is one whole tensor in one buffer of its own, on a device that a session has; the pool is bounded, in number
and in bytes, and what is in it goes with the last session of its context; what a range held when it was freed, the next tensor
there may have at first, as in any used buffer.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ..._ort import ffi as _ort_ffi
from ...device.work import upload_function
from .. import without_python
from ..abi import Ort, address

try:
    from ... import _memory as _extension  # type: ignore[attr-defined,unused-ignore]
except ImportError:
    _extension = None
native: Any = _extension
without_python.tell(native)
ranges: Any = None if native is None else native.lib.ranges  # what C code knows

if TYPE_CHECKING:
    from ...device import Context

PYTHONS, USED, FREE, GONE = 0, 1, 2, 4  # states, as csrc/memory.c has them
NEVER = -1  # for `ends`: it may not come into the pool
MOST_BYTES = 2 << 20  # of a range: beyond it copying costs more than Python
MOST_HELD = 32 << 20  # of all together
MOST_PASSED_OVER = 64


class Owner:
    """The allocator of a range, as C code knows it: by the address of what ONNX Runtime calls."""

    __slots__ = ("__weakref__", "context", "number")

    def __init__(self, context: Context) -> None:
        self.context, self.number = context, 0

    @property
    def pools(self) -> bool:
        """Whether memory that is freed may stay: where nobody said otherwise, and only while a session is there."""
        return self.number != 0 and self.context.sessions > 0


class Counts(Protocol):
    """What is counted, as C code knows it too (csrc/memory.c)."""

    made: int
    begun: int
    changed: int
    at_most: int
    gone: int
    ends: int
    start: int
    end: int


class PlainCounts:
    """Where no C code allocates."""

    made = begun = changed = at_most = gone = ends = start = end = 0


class Range(Protocol):
    """What is known of an allocation: `copied` says that Python keeps host copies of what is put there, `barred` that it never
    comes into the pool, and `filled` which mark of the value C code left when it filled it last. Each method changes it in one
    step."""

    copied: int
    barred: int

    @property
    def state(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def number(self) -> int: ...
    @property
    def filled(self) -> int: ...

    def lies(self, owner: Owner, buffer: int, queue: int) -> None:
        """Before it comes into the pool: which buffer it has, from its first byte on, and which queue that is written by."""

    def lend(self, ends: int) -> int:
        """Leaves it to C code, to fill and to free it, if nothing has ended since `ends`. Its state."""

    def give_free(self, ends: int, answered: Callable[[int], object]) -> None:
        """ONNX Runtime has freed it, which Python had: it is FREE, if nothing has ended since `ends`, or GONE. With the change, and
        before any interrupt, `answered` is called."""

    def take_back(self, states: int) -> int:
        """C code has it no more, if it is in one of these states: who USED it gets it, what was FREE is GONE. Its state."""


class PlainRange:
    """Where no C code allocates."""

    __slots__ = ("_counts", "barred", "copied", "filled", "number", "size", "state")

    def __init__(self, counts: Counts, number: int, size: int) -> None:
        self._counts, self.number, self.size = counts, number, size
        self.state, self.filled = PYTHONS, NEVER
        self.copied = self.barred = 0

    def lies(self, owner: Owner, buffer: int, queue: int) -> None:
        pass

    def lend(self, ends: int) -> int:
        return self.state

    def give_free(self, ends: int, answered: Callable[[int], object]) -> None:
        # No call is made, so this is done wholly or not at all.
        if self.state == PYTHONS:
            self._counts.changed -= self.size
            self._counts.gone += 1
            self.state, self.size = GONE, 0

    def take_back(self, states: int) -> int:
        return self.state


class PooledRange:
    """What C code may have. It reads it while it is USED or FREE, so it is kept for as long, and so are the marks."""

    __slots__ = ("_words",)

    def __init__(self, number: int, start: int, size: int, capacity: int, marks: array[int]) -> None:
        words = self._words = native.ffi.new("Range *")
        words.number, words.start, words.size, words.capacity = number, start, size, capacity
        words.marks = native.ffi.cast("uint64_t *", marks.buffer_info()[0])

    @property
    def state(self) -> int:
        return int(self._words.state)

    @property
    def size(self) -> int:
        return int(self._words.size)

    @property
    def number(self) -> int:
        return int(self._words.number)

    @property
    def filled(self) -> int:
        return int(self._words.filled)

    @property
    def copied(self) -> int:
        return int(self._words.copied)

    @copied.setter
    def copied(self, copied: int) -> None:
        self._words.copied = copied

    @property
    def barred(self) -> int:
        return int(self._words.barred)

    @barred.setter
    def barred(self, barred: int) -> None:
        self._words.barred = barred

    def lies(self, owner: Owner, buffer: int, queue: int) -> None:
        words = self._words
        words.owner, words.buffer, words.queue = native.ffi.cast("void *", owner.number), buffer, queue

    def lend(self, ends: int) -> int:
        return int(native.lib.lend(self._words, ends))

    def give_free(self, ends: int, answered: Callable[[int], object]) -> None:
        # C code makes both calls: no interrupt comes between them.
        next(map(answered, map(native.lib.give_free, (self._words,), (ends,))))

    def take_back(self, states: int) -> int:
        return int(native.lib.take_back(self._words, states))


class Admission:
    """Which ranges come into the pool."""

    def __init__(self) -> None:
        self._passed_over = self._pass_over = self._reused = 0

    def admits(self, capacity: int) -> bool:
        """Whether to take a range of so many bytes. Where sizes change faster than ranges come again, most of those are passed over
        that would take the place of others."""
        if not self.surplus(capacity):
            return True
        self._passed_over += 1
        if self._passed_over <= self._pass_over:
            return False
        reused, self._reused = self._reused, int(ranges.reused)
        self._pass_over = 0 if reused != self._reused else min(2 * self._pass_over + 1, MOST_PASSED_OVER)
        self._passed_over = 0
        return True

    @property
    def has_ample_room(self) -> bool:
        """Whether less than half of the places are taken."""
        return 2 * int(native.lib.pooled()) < int(native.lib.POOLED)

    def surplus(self, capacity: int) -> int:
        """The start of a range that has to go for one of so many bytes: of those freed the one used longest ago; else 0."""
        return int(native.lib.surplus(capacity, MOST_HELD))

    def lost(self) -> int:
        """The start of a range that is FREE on a device that was lost; else 0."""
        return int(native.lib.lost_range())


def _table(ort: Ort, kind: str, table: Any) -> Any:
    """C code's own object around a table that ONNX Runtime calls, with what is in it."""
    made = native.ffi.new(f"{kind} *")
    _ort_ffi.memmove(_ort_ffi.cast("char *", address(made)), table, _ort_ffi.sizeof(table[0]))
    made.api = native.ffi.cast("OrtApi *", address(ort.api))
    return made


def _function(name: str) -> int:
    return address(native.ffi.addressof(native.lib, name))


def _exchange(table: Any, slot: str, function: str) -> int:
    """Puts a function of C code into a slot; the address of the one that was there."""
    before = address(getattr(table, slot))
    setattr(table, slot, _ort_ffi.cast(_ort_ffi.typeof(getattr(table, slot)), _function(function)))
    return before


def allocator_table(ort: Ort, table: Any) -> Any:
    """What ONNX Runtime calls instead of an OrtAllocator, which answers what C code cannot."""
    made = _table(ort, "Allocator", table)
    here = _ort_ffi.cast("OrtAllocator *", address(made))
    for name, slot, function in (("alloc_in_python", "Alloc", "alloc"), ("free_in_python", "Free", "free_range")):
        before = _exchange(here, slot, function)
        setattr(made, name, native.ffi.cast(native.ffi.typeof(getattr(made, name)), before))
    return made


def transfer_table(ort: Ort, table: Any) -> Any:
    """The same for an OrtDataTransferImpl. It copies only what it can upload, once it knows how many `adapters` there are."""
    made = _table(ort, "Transfer", table)
    here = _ort_ffi.cast("OrtDataTransferImpl *", address(made))
    made.ep = native.ffi.cast("OrtEpApi *", address(ort.ep))
    for name, slot, function in (
        ("can_copy_in_python", "CanCopy", "can_copy"),
        ("copy_in_python", "CopyTensors", "copy_tensors"),
    ):
        before = _exchange(here, slot, function)
        setattr(made, name, native.ffi.cast(native.ffi.typeof(getattr(made, name)), before))
    made.upload = native.ffi.cast(native.ffi.typeof(made.upload), upload_function())
    return made
