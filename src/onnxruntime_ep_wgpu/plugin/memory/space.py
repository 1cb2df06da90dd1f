"""Device addresses: numbers for places in GPU buffers, with which ONNX Runtime may calculate.

In: sizes from ONNX Runtime's allocator calls, later addresses with byte counts. Out: (device, buffer, offset).

A GPU buffer has no address, but ONNX Runtime adds offsets to what `Alloc` returns: from a session's second run on, many tensors
share one allocation. So an allocation is a range of reserved address space without memory. `allocation.py` manages the contents
of a range.

A process has one address space. For ONNX Runtime all adapters are one kind of memory (vendor 0, device 0), so only the address
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
_MOST_DROPPED = 8  # Ranges dropped for one new range. The next one drops more.
# Uploads to a tensor by Python before C code does them, if it can. This is tried again each time their number has doubled.
_FILLS = 2


class AddressSpace:
    """All device memory that ONNX Runtime holds. Thread safe."""

    def __init__(self, size: int = RESERVED_BYTES) -> None:
        """Reserves up to `size` bytes of addresses, less if the process may not have that many. Raises DeviceError."""
        while not (start := address_of(lib.reserve(size))):
            size //= 2
            if size < 1 << 30:
                raise DeviceError("the system cannot reserve 1 GiB of addresses for device memory")
        self.start, self.end = start, start + size
        self._next = start + GRAIN
        self._allocations: dict[int, Allocation] = {}
        # The starts of all ranges that were ever made, vacant ones too. Sorted, because `_reserve_new` makes them in order.
        self._starts: list[int] = []
        self._vacant: dict[int, deque[int]] = {}
        self._marks: dict[int, array[int]] = {}  # by start
        self._lock = threading.Lock()  # for `_reserve_new`
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
        """Returns whether an address is a device address, and not host memory."""
        return self.start <= address < self.end

    def allocate(self, nbytes: int, opener: Callable[[], Device]) -> int:
        """Allocates `nbytes` on the device that `opener` returns. Returns the address, or 0 if the addresses are used up."""
        allocation = self.reserve(nbytes, opener)
        return 0 if allocation is None else self.begin(allocation)

    def reserve(self, nbytes: int, opener: Callable[[], Device], owner: pool.Owner | None = None) -> Allocation | None:
        """Returns a range for `begin`, or None if the addresses are used up.

        `owner` is the allocator if C code may reuse the range. A range that is not passed to `begin` costs only addresses.
        """
        capacity = size_class(nbytes)
        start = self._vacant_start(capacity) or self._reserve_new(capacity)
        if not start:
            return None
        marks = self._marks.get(start)
        if marks is None:
            marks = self._marks.setdefault(start, array("Q", (0, 0)))
        range = pool.Range(start, nbytes, capacity, marks)
        return Allocation(range, start, capacity, opener, marks, owner)

    def begin(self, allocation: Allocation) -> int:
        """Makes the range allocated and returns its start.

        The change itself makes no calls, so an interrupt leaves it done completely or not at all.
        """
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

    def _reserve_new(self, capacity: int) -> int:
        with self._lock:
            start = self._next
            # Because of the gap, the end of one range is not the start of the next.
            if start + capacity + GRAIN > self.end:
                return 0
            self._next = start + capacity + GRAIN
            self._starts.append(start)
            return start

    def free(self, start: int, on_freed: Callable[[int], object] = bool) -> None:
        """Frees a range, so that its buffers are reused. An unknown start is ignored: ONNX Runtime frees no range twice.

        Takes no Python lock, because a finalizer may call it on a thread that holds the lock. After an interrupt it is called
        again, unless it has called `on_freed`: from then on the range may have another owner.
        """
        self._forget_gone()
        allocation = self._allocations.get(start)
        if allocation is None or allocation.range.state != pool.PYTHONS:
            return
        allocation.range.give_free(self._admitted(allocation), on_freed)
        if allocation.range.state == pool.GONE:
            self._forget(allocation)

    def _admitted(self, allocation: Allocation) -> int:
        """Returns the counter `ends` if a freed range may stay in its buffer (`pool.py`), else `pool.NEVER`.

        Drops the ranges that it replaces.
        """
        ends = int(pool.ranges.ends)
        if allocation.capacity > pool.MOST_BYTES or not allocation.may_be_pooled():
            return pool.NEVER
        self._drop_each(self._admission.lost)
        if not self._admission.admits(allocation.capacity):
            return pool.NEVER
        self._drop_each(lambda: self._admission.surplus(allocation.capacity))
        return ends

    def _drop_each(self, find: Callable[[], int]) -> None:
        """Drops the ranges at the starts that `find` returns, until it returns 0, but at most `_MOST_DROPPED`."""
        for _ in range(_MOST_DROPPED):
            start = find()
            if not start:
                break
            self._drop(start)

    def record_upload(self, address: int) -> None:
        """Records an upload to an address. If uploads to it are repeated, they are left to C code (`pool.py`)."""
        allocation, offset = self._find(address, 0)
        fills = allocation.fills = allocation.fills + 1
        if offset or fills < _FILLS or fills & (fills - 1) or allocation.range.words.copied:
            return
        ends = int(pool.ranges.ends)
        small = allocation.capacity <= pool.MOST_BYTES and allocation.range.state == pool.PYTHONS
        if small and allocation.may_be_pooled() and self._admission.has_ample_room:
            allocation.leave_to_c(ends)

    def _drop(self, start: int) -> None:
        """Drops a range that waits in the pool, unless it has just been allocated again."""
        allocation = self._allocations.get(start)
        if allocation is not None and allocation.range.take_back(pool.FREE) == pool.GONE:
            self._forget(allocation)

    def end_pooling(self, owner: pool.Owner | None = None, context: Context | None = None) -> None:
        """Ends pooling for an allocator, or for a context after its last session.

        Ranges that wait in the pool are dropped now, the others when they are freed. Call it after `Owner.pools` has become
        false.
        """
        lib.end_some()
        device = None if context is None else context.current()
        for allocation in self._allocations.copy().values():
            its = allocation.owner
            there = device is not None and allocation.device is device  # a tensor was moved there
            if its is not None and (its is owner or its.context is context or there):
                allocation.range.take_back(pool.USED | pool.FREE)
            if allocation.range.state == pool.GONE:
                self._forget(allocation)

    def _forget_gone(self) -> None:
        """Forgets ranges that are GONE, if an interrupt came before `_forget`."""
        gone = int(pool.ranges.gone)
        if gone != self._forgotten:
            for allocation in self._allocations.copy().values():
                if allocation.range.state == pool.GONE:
                    self._forget(allocation)
            self._forgotten = gone

    def _forget(self, allocation: Allocation) -> None:
        """Forgets a range that is GONE. Several threads may call it, and it may be called again after an interrupt."""
        allocation.release()
        allocations, start, capacity = self._allocations, allocation.start, allocation.capacity
        vacant = self._vacant.get(capacity)
        if vacant is None:
            vacant = self._vacant.setdefault(capacity, deque())
        # There are no calls from here on, so one thread does this, completely or not at all.
        if start in allocations and allocations[start] is allocation:
            del allocations[start]
            self._forgotten += 1
            vacant += (start,)

    def is_lost(self, address: int) -> bool:
        """Returns whether some of the allocation at an address lay on a device that was lost. Raises like `number`."""
        return self._find(address, 0)[0].is_lost

    def start_of(self, address: int) -> int:
        """Returns the start of the range that an address lies in. Raises like `read`."""
        return self._find(address, 0)[0].start

    def number(self, address: int) -> int:
        """Returns the number of the allocation at an address: they are numbered in order. Raises DeviceError if there is none."""
        return self._find(address, 0)[0].range.number

    def read(self, address: int, nbytes: int, what: str = "a tensor") -> Located:
        """Returns where a range lies, to read it.

        Raises DeviceError if it is not allocated here, LimitError if it is too large, and DeviceLostError if its device was
        lost after it was written.
        """
        allocation, offset = self._find(address, nbytes)
        return allocation.read(offset, nbytes, what)

    def write(self, address: int, nbytes: int, what: str = "a tensor") -> Located:
        """Returns where a range lies, to overwrite it, and drops its host copy. Raises like `read`."""
        allocation, offset = self._find(address, nbytes)
        return allocation.write(offset, nbytes, what)

    def move(self, address: int, nbytes: int, device: Device, what: str, *, keeps: bool) -> Located | None:
        """Moves a tensor to `device`. Returns None if it cannot. See `Allocation.move`."""
        allocation, offset = self._find(address, nbytes)
        return allocation.move(offset, nbytes, device, what, keeps=keeps)

    def pin(self, address: int) -> None:
        """Makes `move` leave the allocation at an address on its device, from now on."""
        allocation, _ = self._find(address, 0)
        allocation.pin()

    def set_mirror(self, address: int, data: bytes) -> None:
        """Keeps a host copy of bytes that were just uploaded."""
        allocation, offset = self._find(address, len(data))
        allocation.set_mirror(offset, data)

    def mirror(self, address: int, nbytes: int) -> bytes | None:
        """Returns the host copy of a range, or None."""
        allocation, offset = self._find(address, nbytes)
        return allocation.mirror(offset, nbytes)

    def note_read(self, address: int) -> None:
        """Records that the host reads the value at an address."""
        allocation, offset = self._find(address, 0)
        allocation.note_read(offset)

    def marked(self, address: int, nbytes: int) -> Marked:
        """Returns what lies at a range, with marks that are at least as old. Raises DeviceError if it is not allocated here."""
        allocation, offset = self._find(address, nbytes)
        return allocation.marked(offset, nbytes)

    def lend(self, address: int, nbytes: int) -> Located:
        """Returns the place of a range, and keeps it there until it is freed, for use outside this package. Raises like `read`."""
        allocation, offset = self._find(address, nbytes)
        return allocation.lend(offset, nbytes)

    def adopt(self, address: int, nbytes: int, at: Located) -> None:
        """Places an unused range in a buffer of another owner."""
        allocation, offset = self._find(address, nbytes)
        allocation.adopt(offset, nbytes, at)

    def room(self, address: int) -> int:
        """Returns how many bytes from an allocated address on lie in one piece."""
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
    """Returns the address space of this process. The first call reserves it."""
    global _space
    if _space is None:
        with _space_lock:
            if _space is None:
                made = AddressSpace()
                pool.ranges.start, pool.ranges.end = made.start, made.end  # C code recognizes device addresses by these
                _space = made
    return _space
