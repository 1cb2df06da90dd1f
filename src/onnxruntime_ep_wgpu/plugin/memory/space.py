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
from typing import TYPE_CHECKING

from ..._ort import lib
from ...device.sizes import GRAIN, size_class
from ...errors import DeviceError
from ..abi import address as address_of
from .allocation import Allocation, Located, Marked

if TYPE_CHECKING:
    from ...device import Device

RESERVED_BYTES = 1 << 40


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
        self._numbers = itertools.count(1)
        self.bytes_in_use = self.bytes_at_most = self.allocations_made = 0

    def owns(self, address: int) -> bool:
        """Whether an address is one of ours, and not host memory."""
        return self.start <= address < self.end

    def allocate(self, nbytes: int, opener: Callable[[], Device]) -> int:
        """A range of `nbytes` on the device that `opener` gives; 0 when the addresses are used up."""
        allocation = self.reserve(nbytes, opener)
        return 0 if allocation is None else self.begin(allocation)

    def reserve(self, nbytes: int, opener: Callable[[], Device]) -> Allocation | None:
        """A range for `begin`; forgetting it costs addresses and nothing else. None when the addresses are used up."""
        capacity = size_class(nbytes)
        start = self._vacant_start(capacity) or self._cut(capacity)
        if not start:
            return None
        marks = self._marks.get(start)
        if marks is None:
            marks = self._marks.setdefault(start, array("Q", (0, 0)))
        return Allocation(next(self._numbers), start, nbytes, capacity, opener, marks)

    def begin(self, allocation: Allocation) -> int:
        """From here on the range is allocated; its start. No call is made, so this is done wholly or not at all."""
        self._allocations[allocation.start] = allocation
        if allocation.number > self.allocations_made:
            self.allocations_made = allocation.number
        self.bytes_in_use += allocation.size
        if self.bytes_in_use > self.bytes_at_most:
            self.bytes_at_most = self.bytes_in_use
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
        allocation = self._allocations.pop(start, None)
        if allocation is None:
            return
        self.bytes_in_use -= allocation.size
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

    def _find(self, address: int, nbytes: int) -> tuple[Allocation, int]:
        allocation = self._allocations.get(address)
        if allocation is None:
            index = bisect.bisect_right(self._starts, address) - 1
            allocation = self._allocations.get(self._starts[index]) if index >= 0 else None
        if allocation is None or address + nbytes > allocation.start + allocation.capacity:
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
                _space = AddressSpace()
    return _space
