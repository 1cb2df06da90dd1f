"""Device addresses: numbers that ONNX Runtime may calculate with, each naming a place in a GPU buffer.

In: sizes from ONNX Runtime's allocator calls, later addresses with byte counts. Out: (device, buffer, offset).

A GPU buffer has no address, but ONNX Runtime adds offsets to what `Alloc` returns (from a session's second run on, many
tensors share one allocation). So allocations are ranges of reserved address space without memory behind it; what lies in one
is its own affair (`allocation.py`).

One address space per process: ONNX Runtime knows all adapters as one kind of memory (vendor 0, device 0), so only the address
distinguishes them.
"""

from __future__ import annotations

import bisect
import contextlib
import threading
from array import array
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..._ort import lib
from ...device.sizes import GRAIN, size_class
from ...errors import DeviceError
from ..abi import address as address_of
from . import pool
from .allocation import Allocation, Located, Marked

if TYPE_CHECKING:
    from ...device import Context, Device

RESERVED_BYTES = 1 << 40
_MOST_DROPPED = 8  # ranges for one; the next one makes more room
# Uploads by Python to a tensor, before C code does them if it can: asked again after twice as many each time.
_FILLS = 2


class AddressSpace:
    """All device memory that ONNX Runtime holds. Thread safe."""

    def __init__(self, size: int = RESERVED_BYTES) -> None:
        """Reserves up to `size` bytes of addresses; less where the process may not have as many."""
        while not (start := address_of(lib.reserve(size))):
            size //= 2
            if size < 1 << 30:
                raise DeviceError("the system refuses to reserve 1 GiB of addresses for device memory")
        self.start, self.end = start, start + size
        self._next = start + GRAIN
        self._allocations: dict[int, Allocation] = {}
        # Every range that was ever cut out, vacant ones too; in order, as they are cut one behind the other.
        self._starts: list[int] = []
        self._vacant: dict[int, deque[int]] = {}
        self._marks: dict[int, array[int]] = {}  # by start
        self._lock = threading.Lock()  # to cut ranges
        self._forgotten = int(pool.ranges.gone)
        self._admission = pool.Admission()

    @property
    def allocations_made(self) -> int:
        """The number of the newest allocation."""
        return int(pool.ranges.made)

    @property
    def bytes_in_use(self) -> int:
        return int(pool.ranges.begun + pool.ranges.changed)

    @property
    def bytes_at_most(self) -> int:
        return int(pool.ranges.at_most)

    def owns(self, address: int) -> bool:
        """Whether an address is one of ours, and not host memory."""
        return self.start <= address < self.end

    def allocate(self, nbytes: int, opener: Callable[[], Device]) -> int:
        """A range of `nbytes` on the device that `opener` gives; 0 when the addresses are used up."""
        allocation = self.reserve(nbytes, opener)
        return 0 if allocation is None else self.begin(allocation)

    def reserve(self, nbytes: int, opener: Callable[[], Device], owner: pool.Owner | None = None) -> Allocation | None:
        """A range for `begin`; C code knows the allocator if it is the `owner`. Forgetting it costs addresses and nothing else.
        None when the addresses are used up."""
        capacity = size_class(nbytes)
        start = self._vacant_start(capacity) or self._cut(capacity)
        if not start:
            return None
        marks = self._marks.get(start)
        if marks is None:
            marks = self._marks.setdefault(start, array("Q", (0, 0)))
        range = pool.Range(start, nbytes, capacity, marks)
        return Allocation(range, start, capacity, opener, marks, owner)

    def begin(self, allocation: Allocation) -> int:
        """From here on the range is allocated; its start. No call is made then, so this is done wholly or not at all."""
        counts, start, size = pool.ranges, allocation.start, allocation.range.size
        self._allocations[start] = allocation
        counts.begun += size
        if counts.begun + counts.changed > counts.at_most:
            counts.at_most = counts.begun + counts.changed
        return start

    def _vacant_start(self, capacity: int) -> int:
        vacant = self._vacant.get(capacity)
        if vacant:
            with contextlib.suppress(IndexError):  # another thread was faster
                return vacant.popleft()
        return 0

    def _cut(self, capacity: int) -> int:
        with self._lock:
            start = self._next
            # The gap keeps the end of one range from being the start of the next.
            if start + capacity + GRAIN > self.end:
                return 0
            self._next = start + capacity + GRAIN
            self._starts.append(start)
            return start

    def free(self, start: int, answered: Callable[[int], object] = bool) -> None:
        """ONNX Runtime has freed a range; its buffers are used again. An unknown start is ignored: ONNX Runtime never asks twice.

        For finalisers: no lock of Python is taken, as garbage may be collected by a thread that has it. After an interrupt it is
        called again, unless it has `answered`: from then on the range may have another owner.
        """
        self._forget_gone()
        allocation = self._allocations.get(start)
        if allocation is None or allocation.range.state != pool.PYTHONS:
            return
        allocation.range.give_free(self._admitted(allocation), answered)
        if allocation.range.state == pool.GONE:
            self._forget(allocation)

    def _admitted(self, allocation: Allocation) -> int:
        """Since which end a range that is freed may stay where it lies (`pool.py`), `pool.NEVER` when it may not. Those that it
        takes the place of go."""
        ends = int(pool.ranges.ends)
        if allocation.capacity > pool.MOST_BYTES or not allocation.may_be_pooled():
            return pool.NEVER
        self._drop_each(self._admission.lost)
        if not self._admission.admits(allocation.capacity):
            return pool.NEVER
        self._drop_each(lambda: self._admission.surplus(allocation.capacity))
        return ends

    def _drop_each(self, find: Callable[[], int]) -> None:
        """Drops the ranges at the starts that `find` gives one after another, until that is 0, or there were many."""
        for _ in range(_MOST_DROPPED):
            start = find()
            if not start:
                break
            self._drop(start)

    def filled(self, address: int) -> None:
        """A tensor was uploaded to an address. What is uploaded there again and again is left to C code (`pool.py`)."""
        allocation, offset = self._find(address, 0)
        fills = allocation.fills = allocation.fills + 1
        if offset or fills < _FILLS or fills & (fills - 1) or allocation.range.words.copied:
            return
        ends = int(pool.ranges.ends)
        small = allocation.capacity <= pool.MOST_BYTES and allocation.range.state == pool.PYTHONS
        if small and allocation.may_be_pooled() and self._admission.has_ample_room:
            allocation.leave_to_c(ends)

    def _drop(self, start: int) -> None:
        """A range that waits in the pool goes, unless it has just been allocated again."""
        allocation = self._allocations.get(start)
        if allocation is not None and allocation.range.take_back(pool.FREE) == pool.GONE:
            self._forget(allocation)

    def end_pooling(self, owner: pool.Owner | None = None, context: Context | None = None) -> None:
        """An allocator ends, or the last session of a context: what waits in the pool goes, and the rest when it is freed. Before
        it, the owner or the context was told (`Owner.pools`)."""
        lib.end_some()
        device = None if context is None else context.current()
        for allocation in self._allocations.copy().values():
            its = allocation.owner
            there = device is not None and allocation.device is device  # a tensor that was moved there
            if its is not None and (its is owner or its.context is context or there):
                allocation.range.take_back(pool.USED | pool.FREE)
            if allocation.range.state == pool.GONE:
                self._forget(allocation)

    def _forget_gone(self) -> None:
        """Forgets what has no owner, where an interrupt came between taking it back and that."""
        gone = int(pool.ranges.gone)
        if gone != self._forgotten:
            for allocation in self._allocations.copy().values():
                if allocation.range.state == pool.GONE:
                    self._forget(allocation)
            self._forgotten = gone

    def _forget(self, allocation: Allocation) -> None:
        """Of a range that is GONE; by several threads, and again after an interrupt."""
        allocation.release()
        allocations, start, capacity = self._allocations, allocation.start, allocation.capacity
        vacant = self._vacant.get(capacity)
        if vacant is None:
            vacant = self._vacant.setdefault(capacity, deque())
        # No calls from here on: done wholly or not at all, by one thread.
        if start in allocations and allocations[start] is allocation:
            del allocations[start]
            self._forgotten += 1
            vacant += (start,)

    def start_of(self, address: int) -> int:
        """The start of the range that an address lies in. Raises like `read`."""
        return self._find(address, 0)[0].start

    def number(self, address: int) -> int:
        """Which allocation an address is in: they are numbered as they are made. Raises DeviceError when it is none."""
        return self._find(address, 0)[0].range.number

    def read(self, address: int, nbytes: int, what: str = "a tensor") -> Located:
        """Where a range lies, to read it. Raises DeviceError when it is not ours, LimitError when it is too large, and
        DeviceLostError when its device was lost since it was written."""
        allocation, offset = self._find(address, nbytes)
        return allocation.read(offset, nbytes, what)

    def write(self, address: int, nbytes: int, what: str = "a tensor") -> Located:
        """Where a range lies, to overwrite it; its host copy is dropped. Raises like `read`."""
        allocation, offset = self._find(address, nbytes)
        return allocation.write(offset, nbytes, what)

    def move(self, address: int, nbytes: int, device: Device, what: str, *, keeps: bool) -> Located | None:
        """A tensor lies on `device` from here on; None where it cannot. See `Allocation.move`."""
        allocation, offset = self._find(address, nbytes)
        return allocation.move(offset, nbytes, device, what, keeps=keeps)

    def stay(self, address: int) -> None:
        """From here on `move` leaves what is allocated there on its device."""
        allocation, _ = self._find(address, 0)
        allocation.stay()

    def set_mirror(self, address: int, data: bytes) -> None:
        """Keeps a host copy of bytes that were just uploaded."""
        allocation, offset = self._find(address, len(data))
        allocation.set_mirror(offset, data)

    def mirror(self, address: int, nbytes: int) -> bytes | None:
        """The host copy of a range, when there is one."""
        allocation, offset = self._find(address, nbytes)
        return allocation.mirror(offset, nbytes)

    def note_read(self, address: int) -> None:
        """The host wants to know what is at an address."""
        allocation, offset = self._find(address, 0)
        allocation.note_read(offset)

    def marked(self, address: int, nbytes: int) -> Marked:
        """What lies at a range, and marks that are as old as that at least. Raises DeviceError when it is not ours."""
        allocation, offset = self._find(address, nbytes)
        return allocation.marked(offset, nbytes)

    def lend(self, address: int, nbytes: int) -> Located:
        """Where a range lies and stays until it is freed, for use outside this package. Raises like `read`."""
        allocation, offset = self._find(address, nbytes)
        return allocation.lend(offset, nbytes)

    def adopt(self, address: int, nbytes: int, at: Located) -> None:
        """Makes an unused range lie in a buffer of another owner."""
        allocation, offset = self._find(address, nbytes)
        allocation.adopt(offset, nbytes, at)

    def room(self, address: int) -> int:
        """How many bytes from an address on, which is allocated, lie in one piece."""
        allocation, offset = self._find(address, 0)
        return allocation.room(offset)

    def _range(self, address: int, nbytes: int) -> Allocation | None:
        allocation = self._allocations.get(address)
        if allocation is None:
            index = bisect.bisect_right(self._starts, address) - 1
            allocation = self._allocations.get(self._starts[index]) if index >= 0 else None
        within = allocation is not None and address + nbytes <= allocation.start + allocation.capacity
        return allocation if within else None

    def _find(self, address: int, nbytes: int) -> tuple[Allocation, int]:
        allocation = self._range(address, nbytes)
        if allocation is None or allocation.is_freed:
            raise DeviceError(f"the device address {address:#x} (+{nbytes} bytes) is not allocated: was it freed?")
        return allocation, address - allocation.start


_space: AddressSpace | None = None
_space_lock = threading.Lock()


def space() -> AddressSpace:
    """The address space of this process, reserved when first asked for."""
    global _space
    if _space is None:
        with _space_lock:
            if _space is None:
                made = AddressSpace()
                pool.ranges.start, pool.ranges.end = made.start, made.end  # whose tensors C code knows
                _space = made
    return _space
