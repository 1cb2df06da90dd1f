"""Ranges that stay in their buffers when ONNX Runtime frees them, so that it gets the same ones again for inputs and results of the
next run, without Python (csrc/memory.c).

In: allocations that are freed, or filled again and again. Out: their numbers while C code has them, and those that have to go.
Invariants: what is kept is one whole tensor in one buffer of its own, on a device that a session has; it is bounded, in number and
in bytes, and goes with the last session of its context; what a range held when it was freed, the next tensor there may have at
first, as in any used buffer.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ... import process, trace
from ..._ort import ffi as _ort_ffi
from ...device.work import upload_function
from ..abi import Ort, address

try:
    from ... import _memory as _extension  # type: ignore[attr-defined,unused-ignore]
except ImportError:
    _extension = None
native: Any = _extension
ranges: Any = None if native is None else native.lib.ranges  # what C code knows

if TYPE_CHECKING:
    from array import array

    from ...device import Context

MOST_BYTES = 2 << 20  # of a range: beyond it copying costs more than Python
MOST_HELD = 32 << 20  # of all together
MOST_PASSED_OVER = 64


class Owner:
    """The allocator of a range, as C code knows it: by the address of what ONNX Runtime calls."""

    __slots__ = ("__weakref__", "context", "number")

    def __init__(self, context: Context) -> None:
        self.context, self.number = context, 0

    @property
    def keeps(self) -> bool:
        """Whether memory that is freed may stay: where nobody said otherwise, and only while a session is there."""
        return self.number != 0 and self.context.sessions > 0

    @property
    def shown(self) -> Callable[[], tuple[int, int, int]]:
        """What tells how often memory came again without Python, and what lies free: ranges, bytes. It holds nothing."""
        here = weakref.ref(self)

        def held() -> tuple[int, int, int]:
            owner = here()
            if owner is None or not owner.number:
                return 0, 0, 0
            free = [
                it.capacity for it in ranges.kept if it.state == native.lib.FREE and address(it.owner) == owner.number
            ]
            return int(native.ffi.cast("Allocator *", owner.number).again), len(free), sum(free)

        return held


class Range(Protocol):
    """An allocation, as far as C code has to know it. `is_read`: the host has wanted to know what was put there."""

    start: int
    size: int
    capacity: int
    marks: array[int]
    is_read: bool

    @property
    def number(self) -> int: ...


class Kept:
    """What C code has of an allocation; it has it from `begin` until `end`."""

    __slots__ = ("_given",)

    def __init__(self, allocation: Range, owner: Owner, buffer: int, queue: int) -> None:
        """The allocation lies in `buffer`, from its first byte on, and is written through `queue`: addresses."""
        ffi = native.ffi
        self._given = ffi.new("Kept *")
        given = self._given
        given.place = -1
        given.start, given.capacity, given.owner = (
            allocation.start,
            allocation.capacity,
            ffi.cast("void *", owner.number),
        )
        given.counted = given.size = allocation.size
        given.number, given.copied = allocation.number, allocation.is_read
        given.marks = ffi.cast("uint64_t *", allocation.marks.buffer_info()[0])
        given.buffer, given.queue = buffer, queue

    def begin(self, freed: bool) -> bool:
        """From here on C code has it, and if it is `freed` may allocate it. Whether there was room; asked again it is the same."""
        return bool(native.lib.keep(self._given, native.lib.FREE if freed else native.lib.USED))

    @property
    def words(self) -> Any:
        """What C code has now; None when it does not have it."""
        given = self._given
        if given.place < 0:
            return None
        words = ranges.kept[given.place]
        return words if words.start == given.start and words.state else None

    def end(self, freed: bool) -> bool:
        """C code has it no more, if it is `freed`, or is not. Whether that was so."""
        given = self._given
        if given.place < 0:
            return False
        state = native.lib.FREE if freed else native.lib.USED
        return bool(native.lib.take_back(given.place, given.start, state))


class Room:
    """Which ranges may be kept beside those that are."""

    def __init__(self) -> None:
        self._passed_over = self._pass_over = self._again = 0

    def wanted(self, capacity: int) -> bool:
        """Whether to keep a range of so many bytes. Where sizes change faster than ranges come again, most of those are passed over
        that would take the place of others."""
        if not self._in_the_way(capacity):
            return True
        self._passed_over += 1
        if self._passed_over <= self._pass_over:
            return False
        self._passed_over = 0
        return True

    @property
    def is_ample(self) -> bool:
        """Whether less than half of the places are taken."""
        return 2 * sum([bool(it.state) for it in ranges.kept]) < int(native.lib.KEPT)

    def surplus(self, capacity: int) -> int:
        """The start of a range that has to go for one of so many bytes: of those freed the one used longest ago; else 0."""
        start = self._in_the_way(capacity)
        if start:
            again, self._again = self._again, int(ranges.again)
            self._pass_over = 0 if again != self._again else min(2 * self._pass_over + 1, MOST_PASSED_OVER)
        return start

    def _in_the_way(self, capacity: int) -> int:
        return int(native.lib.surplus(capacity, MOST_HELD))


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


def _forked() -> None:
    native.lib.forked = 1


if native is not None:
    process.on_fork.append(_forked)
    trace.on_change.append(lambda listens: native.lib.listen(listens))
