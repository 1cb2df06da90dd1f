"""Device addresses: numbers that ONNX Runtime may calculate with, each naming a place in a GPU buffer.

In: sizes from ONNX Runtime's allocator calls, later addresses with byte counts. Out: (device, buffer, offset).

A GPU buffer has no address, but ONNX Runtime adds offsets to what `Alloc` returns (from a session's second run on, many
tensors share one allocation). So allocations are ranges of reserved address space without memory behind it; what lies in one
is its own affair (`allocation.py`).

One address space per process: ONNX Runtime knows all adapters as one kind of memory (vendor 0, device 0), so only the address
can tell them apart.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import threading
from array import array
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ..._ort import lib
from ...device.sizes import GRAIN, size_class
from ...errors import DeviceError
from ..abi import address as address_of
from . import kept
from .allocation import Allocation, Located, Marked

if TYPE_CHECKING:
    from ...device import Context, Device, Place

RESERVED_BYTES = 1 << 40
_MOST_DROPPED = 8  # ranges for one; the next one makes more room
_FILLS = 2  # uploads by Python to a tensor, before C code does them


class AddressSpace:
    """All device memory that ONNX Runtime holds. Thread safe."""

    def __init__(self, size: int = RESERVED_BYTES) -> None:
        """Reserves up to `size` bytes of addresses; less where the process may not have as many."""
        while not (start := address_of(lib.wgpu_reserve(size))):
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
        self._counts: Counts = _Counts()
        self._numbers = itertools.count(1)
        self._room = kept.Room()

    def let_c_allocate(self) -> None:
        """This is the space whose ranges C code allocates again: that of the process, before anything is allocated."""
        self._counts = kept.ranges
        self._counts.start, self._counts.end = self.start, self.end

    def _next_number(self) -> int:
        if self._counts is not kept.ranges:
            self._counts.made = next(self._numbers)
            return self._counts.made
        return int(kept.native.lib.next_number())

    @property
    def allocations_made(self) -> int:
        """The number of the newest allocation."""
        return int(self._counts.made)

    @property
    def bytes_in_use(self) -> int:
        return int(self._counts.by_python + self._counts.by_c)

    @property
    def bytes_at_most(self) -> int:
        return int(self._counts.at_most)

    def owns(self, address: int) -> bool:
        """Whether an address is one of ours, and not host memory."""
        return self.start <= address < self.end

    def allocate(self, nbytes: int, opener: Callable[[], Device]) -> int:
        """A range of `nbytes` on the device that `opener` gives; 0 when the addresses are used up."""
        allocation = self.reserve(nbytes, opener)
        return 0 if allocation is None else self.begin(allocation)

    def reserve(self, nbytes: int, opener: Callable[[], Device], owner: kept.Owner | None = None) -> Allocation | None:
        """A range for `begin`; C code knows the allocator if it is the `owner`. Forgetting it costs addresses and nothing else.
        None when the addresses are used up."""
        capacity = size_class(nbytes)
        start = self._vacant_start(capacity) or self._cut(capacity)
        if not start:
            return None
        marks = self._marks.get(start)
        if marks is None:
            marks = self._marks.setdefault(start, array("Q", (0, 0)))
        return Allocation(self._next_number(), start, nbytes, capacity, opener, marks, owner)

    def begin(self, allocation: Allocation) -> int:
        """From here on the range is allocated; its start. No call is made, so this is done wholly or not at all."""
        self._allocations[allocation.start] = allocation
        counts = self._counts
        counts.by_python += allocation.size
        if counts.by_python + counts.by_c > counts.at_most:
            counts.at_most = counts.by_python + counts.by_c
        return allocation.start

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

    def free(self, start: int) -> None:
        """Forgets a range; its buffers are used again. An unknown start is ignored: ONNX Runtime never asks twice.

        For finalisers: no lock is taken, as garbage may be collected by a thread that has it. After an interrupt it may be
        called again: the range becomes vacant in the last step.
        """
        known = self._allocations.get(start)
        if known is None or known.is_freed or self._keep(known):
            return
        known.end_keeping(freed=False)
        self._forget(start)

    def _keep(self, allocation: Allocation) -> bool:
        """Whether a range that is freed stays where it lies (`kept.py`). Those that it takes the place of go."""
        if allocation.capacity > kept.MOST_BYTES or not allocation.may_be_kept:
            return False
        if not self._room.wanted(allocation.capacity):
            return False
        for _ in range(_MOST_DROPPED):
            start = self._room.surplus(allocation.capacity)
            if not start:
                break
            self._drop(start)
        return allocation.keep()

    def filled(self, address: int) -> None:
        """A tensor was uploaded to an address. What is uploaded there a third time is left to C code (`kept.py`)."""
        allocation, offset = self._find(address, 0)
        allocation.fills += 1
        often = offset == 0 and allocation.fills == _FILLS and not allocation.is_read
        if often and allocation.capacity <= kept.MOST_BYTES and allocation.may_be_kept and self._room.is_ample:
            allocation.keep(freed=False)

    def _drop(self, start: int) -> None:
        """A range that was kept goes, unless it has just been allocated again."""
        allocation = self._allocations.get(start)
        if allocation is not None and allocation.end_keeping(freed=True):
            self._forget(start)

    def end_keeping(self, owner: kept.Owner | None = None, context: Context | None = None) -> None:
        """An allocator ends, or the last session of a context: what was kept of it goes, and is not kept when it is freed."""
        for start, allocation in self._allocations.copy().items():
            its = allocation.owner
            if its is not None and (its is owner or its.context is context):
                self._drop(start)
                allocation.end_keeping(freed=False)

    def _forget(self, start: int) -> None:
        allocation = self._allocations.pop(start, None)
        if allocation is None:
            return
        self._counts.by_python -= allocation.size
        allocation.release()
        vacant = self._vacant.get(allocation.capacity)
        if vacant is None:
            vacant = self._vacant.setdefault(allocation.capacity, deque())
        vacant += (start,)  # an operator and no call, which could be interrupted behind it

    def start_of(self, address: int) -> int:
        """The start of the range that an address lies in. Raises like `read`."""
        return self._find(address, 0)[0].start

    def number(self, address: int) -> int:
        """Which allocation an address is in: they are numbered as they are made. Raises DeviceError when it is none."""
        return self._find(address, 0)[0].number

    def read(self, address: int, nbytes: int, what: str = "a tensor") -> Located:
        """Where a range lies, to read it. Raises DeviceError when it is not ours, LimitError when it is too large, and
        DeviceLostError when its device was lost since it was written."""
        allocation, offset = self._find(address, nbytes)
        return allocation.read(offset, nbytes, what)

    def write(self, address: int, nbytes: int, what: str = "a tensor") -> Located:
        """Where a range lies, to overwrite it; its host copy is dropped. Raises like `read`."""
        allocation, offset = self._find(address, nbytes)
        return allocation.write(offset, nbytes, what)

    def set_mirror(self, address: int, data: bytes) -> None:
        """Keeps a host copy of bytes that were just uploaded."""
        allocation, offset = self._find(address, len(data))
        allocation.set_mirror(offset, data)

    def mirror(self, address: int, nbytes: int) -> bytes | None:
        """The host copy of a range, when there is one."""
        allocation, offset = self._find(address, nbytes)
        return allocation.mirror(offset, nbytes)

    def marked(self, address: int, nbytes: int) -> Marked:
        """What lies at a range, and marks that are as old as that at least. Raises DeviceError when it is not ours."""
        allocation, offset = self._find(address, nbytes)
        return allocation.marked(offset, nbytes)

    def lend(self, address: int, nbytes: int) -> Located:
        """Where a range lies and stays until it is freed, for use outside this package. Raises like `read`."""
        allocation, offset = self._find(address, nbytes)
        return allocation.lend(offset, nbytes)

    def adopt(self, address: int, nbytes: int, at: Located) -> None:
        """Makes a range that nobody has used yet lie in a buffer of somebody else."""
        allocation, offset = self._find(address, nbytes)
        allocation.adopt(offset, nbytes, at)

    def known_place(self, address: int, nbytes: int) -> Place | None:
        """Where a range lies that is allocated or kept, in one piece; else None."""
        allocation = self._range(address, nbytes)
        return None if allocation is None else allocation.place_of(address - allocation.start, nbytes)

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


class Counts(Protocol):
    """What is counted, as C code knows it too (csrc/memory.c): allocations, and bytes by who counted them."""

    made: int
    by_python: int
    by_c: int
    at_most: int
    start: int
    end: int


class _Counts:
    """Where no C code allocates."""

    made = by_python = by_c = at_most = start = end = 0


_space: AddressSpace | None = None
_space_lock = threading.Lock()


def space() -> AddressSpace:
    """The address space of this process, reserved when first asked for."""
    global _space
    if _space is None:
        with _space_lock:
            if _space is None:
                made = AddressSpace()
                if kept.native is not None:
                    made.let_c_allocate()
                _space = made
    return _space
