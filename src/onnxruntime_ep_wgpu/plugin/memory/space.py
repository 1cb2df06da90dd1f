"""Device addresses: numbers that ONNX Runtime may calculate with, each naming a place in a GPU buffer.

In: sizes from ONNX Runtime's allocator calls, later addresses with byte counts. Out: (device, buffer, offset).

A GPU buffer has no address, but ONNX Runtime adds offsets to what `Alloc` returns (from a session's second run on, many
tensors share one allocation). So allocations are ranges of reserved address space without memory behind it, and buffers
are made when a tensor is first used, one per tensor: two tensors in one allocation are still two buffers, which WebGPU
wants when a dispatch reads one and writes the other. A buffer that cannot be made is an error there, where it can be
reported, and not in `Alloc`, whose failure ONNX Runtime does not look at.

Invariants: reading a range gives what was last written to it, however it was cut into tensors; a host copy exists only
while it equals the device's bytes; what lay on a device that was lost is gone, and reading it is an error until it is
written again, on a new device. One address space per process: ONNX Runtime knows all adapters as one kind of memory
(vendor 0, device 0), so only the address can tell them apart.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import threading
from array import array
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..._ort import lib
from ...device import Place
from ...device.sizes import GRAIN, size_class
from ...errors import DeviceError, DeviceLostError
from ..abi import address as address_of

if TYPE_CHECKING:
    from ...device import Buffer, Device

RESERVED_BYTES = 1 << 40
# Tensors up to this size keep a host copy: they may be shapes, axes or indices that the host needs to know.
MIRROR_BYTES = 4096


class Located(NamedTuple):
    """Bytes on a device."""

    device: Device
    place: Place


class Piece(NamedTuple):
    """The bytes `start` to `end` of an allocation lie in `buffer` of `device` from `base` on."""

    start: int
    end: int
    buffer: Buffer
    base: int
    device: Device


# What a mark of a range counts, see `Allocation`.
PLACE, VALUE = 0, 1


class Allocation:
    """One range that ONNX Runtime allocated, the `number`th of all; new buffers are made on `device`, another one after a
    loss.

    `pieces` and `mirrors` are replaced, never changed in place. `marks`, which C code reads (csrc/memo.c), belong to the range
    whoever has it: two numbers that grow when pieces, and when mirrors are replaced, both before and after: an interrupt may
    come between, and so may a thread that looks at both.

    Of a range that is `lent`, buffers are known outside this package: it stays where it is and has no host copies.
    """

    __slots__ = (
        "capacity", "device", "lent", "lock", "marks", "mirrors", "number", "opener", "pieces", "size", "start",
    )  # fmt: skip

    def __init__(
        self, number: int, start: int, size: int, capacity: int, opener: Callable[[], Device], marks: array[int]
    ) -> None:
        self.number, self.start, self.size, self.capacity, self.opener = number, start, size, capacity, opener
        self.marks = marks
        self.device: Device | None = None
        self.pieces: tuple[Piece, ...] = ()
        self.mirrors: dict[int, bytes] = {}
        self.lent = False
        self.lock = threading.Lock()


class Marked(NamedTuple):
    """What lies at an address: in which allocation, with which marks, where (None: in no single piece), the host copy
    that begins there, and whether some host copy has a part of it."""

    number: int
    marks: array[int]
    place: int
    value: int
    at: Located | None
    mirror: bytes | None
    mirrored: bool


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
        allocation.marks[PLACE] += 1
        pieces, allocation.pieces = allocation.pieces, ()
        allocation.marks[PLACE] += 1
        self._recycle(pieces, ())
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
        found = self._within(allocation, offset, nbytes)
        if found is not None and not found.device.lost:
            return found
        self._check_not_lost(allocation, offset, nbytes, what)
        device = self._device(allocation)
        with allocation.lock:
            found = self._within(allocation, offset, nbytes)
            if found is None:
                found = self._gather(device, allocation, offset, offset + nbytes)
        return found

    def write(self, address: int, nbytes: int, what: str = "a tensor") -> Located:
        """Where a range lies, to overwrite it; its host copy is dropped. Raises like `read`."""
        allocation, offset = self._find(address, nbytes)
        end = offset + nbytes
        if allocation.mirrors:
            with allocation.lock:
                allocation.marks[VALUE] += 1
                allocation.mirrors = {
                    at: kept for at, kept in allocation.mirrors.items() if at >= end or at + len(kept) <= offset
                }
                allocation.marks[VALUE] += 1
        found = self._within(allocation, offset, nbytes, whole_words=True)
        if found is not None and not found.device.lost:
            return found
        if allocation.lent:
            self._check_not_lost(allocation, offset, nbytes, what)
            raise DeviceError(
                f"{nbytes} bytes at offset {offset} of a tensor that is shared with wgpu cannot be written: a part of it has"
                " to start at a multiple of 4 bytes and end at one, or at the tensor's end"
            )
        device = self._device(allocation)
        buffer = _take(device, nbytes, what)
        with allocation.lock:
            old = allocation.pieces
            kept = [part for piece in old for part in _outside(piece, offset, end)]
            allocation.marks[PLACE] += 1
            allocation.pieces = (*kept, Piece(offset, end, buffer, 0, device))
            allocation.marks[PLACE] += 1
        self._recycle(old, allocation.pieces)
        return Located(device, Place(buffer, 0))

    def set_mirror(self, address: int, data: bytes) -> None:
        """Keeps a host copy of bytes that were just uploaded."""
        allocation, offset = self._find(address, len(data))
        if allocation.lent:
            return
        with allocation.lock:
            allocation.marks[VALUE] += 1
            allocation.mirrors = allocation.mirrors | {offset: data}
            allocation.marks[VALUE] += 1

    def mirror(self, address: int, nbytes: int) -> bytes | None:
        """The host copy of a range, when there is one."""
        allocation, offset = self._find(address, nbytes)
        if allocation.device is not None and allocation.device.lost:
            return None
        data = allocation.mirrors.get(offset)
        return data[:nbytes] if data is not None and len(data) >= nbytes else None

    def marked(self, address: int, nbytes: int) -> Marked:
        """What lies at a range, and marks that are as old as that at least. Raises DeviceError when it is not ours."""
        allocation, offset = self._find(address, nbytes)
        marks = allocation.marks
        place, value = marks[PLACE], marks[VALUE]
        mirrors, end = allocation.mirrors, offset + nbytes
        mirrored = any(at < end and at + len(kept) > offset for at, kept in mirrors.items())
        mirror = mirrors.get(offset)
        at = self._within(allocation, offset, nbytes)
        return Marked(allocation.number, marks, place, value, at, mirror, mirrored)

    def lend(self, address: int, nbytes: int) -> Located:
        """Where a range lies and stays until it is freed, for use outside this package. Raises like `read`."""
        found = self.read(address, nbytes)
        found.place.buffer.lent = True
        self._mark_lent(self._find(address, nbytes)[0])
        return found

    def adopt(self, address: int, nbytes: int, at: Located) -> None:
        """Makes a range that nobody has used yet lie in a buffer of somebody else."""
        allocation, offset = self._find(address, nbytes)
        with allocation.lock:
            allocation.device = at.device
            allocation.marks[PLACE] += 1
            allocation.pieces = (Piece(offset, offset + nbytes, *at.place, at.device),)
            allocation.marks[PLACE] += 1
        self._mark_lent(allocation)

    def _mark_lent(self, allocation: Allocation) -> None:
        with allocation.lock:
            allocation.lent = True
            allocation.marks[VALUE] += 1
            allocation.mirrors = {}
            allocation.marks[VALUE] += 1

    def _find(self, address: int, nbytes: int) -> tuple[Allocation, int]:
        allocation = self._allocations.get(address)
        if allocation is None:
            index = bisect.bisect_right(self._starts, address) - 1
            allocation = self._allocations.get(self._starts[index]) if index >= 0 else None
        if allocation is None or address + nbytes > allocation.start + allocation.capacity:
            raise DeviceError(f"the device address {address:#x} (+{nbytes} bytes) is not allocated: was it freed?")
        return allocation, address - allocation.start

    def _device(self, allocation: Allocation) -> Device:
        device = allocation.device
        if device is None or device.lost:
            # Outside any lock: opening a device takes long. Two threads get the same one.
            opened = allocation.opener()
            with allocation.lock:
                if allocation.device is device:
                    allocation.marks[VALUE] += 1
                    allocation.device, allocation.mirrors = opened, {}
                    allocation.marks[VALUE] += 1
            return opened
        return device

    def _check_not_lost(self, allocation: Allocation, offset: int, nbytes: int, what: str) -> None:
        for piece in allocation.pieces:
            if piece.device.lost and piece.start < offset + nbytes and offset < piece.end:
                raise DeviceLostError(
                    f"{what} of {nbytes} bytes lay on the device {piece.device.adapter.name!r}, which was lost:"
                    " its value is gone, make it again"
                )

    def _within(self, allocation: Allocation, offset: int, nbytes: int, whole_words: bool = False) -> Located | None:
        """The place of a range that lies in one piece.

        With `whole_words` only when writing it cannot touch bytes beside it: GPU memory is written in words of 4 bytes.
        """
        end = offset + nbytes
        for piece in allocation.pieces:
            if piece.start <= offset and end <= piece.end:
                at = piece.base + offset - piece.start
                if whole_words and (at | nbytes) & 3:
                    alone = sum(other.buffer is piece.buffer for other in allocation.pieces) == 1
                    if at & 3 or end != piece.end or not alone:
                        return None
                return Located(piece.device, Place(piece.buffer, at))
        return None

    def _gather(self, device: Device, allocation: Allocation, start: int, end: int) -> Located:
        """Makes one piece of the pieces that a read touches; a range never written is a new buffer. Rare."""
        # In order of their starts: the last word of a copy may reach into the next piece, which then overwrites it.
        touched = sorted(
            (piece for piece in allocation.pieces if piece.start < end and start < piece.end),
            key=lambda piece: piece.start,
        )
        low = min([start, *(piece.start for piece in touched)])
        high = max([end, *(piece.end for piece in touched)])
        buffer = _take(device, high - low)
        for piece in touched:
            copy(
                Located(device, Place(piece.buffer, piece.base)),
                Located(device, Place(buffer, piece.start - low)),
                piece.end - piece.start,
            )
        old = allocation.pieces
        allocation.marks[PLACE] += 1
        allocation.pieces = (*(piece for piece in old if piece not in touched), Piece(low, high, buffer, 0, device))
        allocation.marks[PLACE] += 1
        self._recycle(old, allocation.pieces)
        return Located(device, Place(buffer, start - low))

    def _recycle(self, old: tuple[Piece, ...], new: tuple[Piece, ...]) -> None:
        gone = {(piece.device, piece.buffer) for piece in old} - {(piece.device, piece.buffer) for piece in new}
        for device, buffer in gone:
            if not device.lost and not buffer.lent:
                device.caches.storage.give(buffer)


def _take(device: Device, nbytes: int, what: str = "a tensor") -> Buffer:
    return device.caches.storage.take(nbytes, f"{what} of {nbytes} bytes")


def _outside(piece: Piece, start: int, end: int) -> list[Piece]:
    """What is left of a piece when `start` to `end` is taken out."""
    left = piece._replace(end=min(piece.end, start))
    first = max(piece.start, end)
    right = piece._replace(start=first, base=piece.base + first - piece.start)
    return [part for part in (left, right) if part.start < part.end]


def copies_on_device(source: Located, destination: Located) -> bool:
    """Whether WebGPU can copy this: on one device, between two buffers, at whole words."""
    (device, here), (other, there) = source, destination
    return device is other and here.buffer is not there.buffer and (here.offset | there.offset) & 3 == 0


def copy(source: Located, destination: Located, nbytes: int) -> None:
    """Copies on the device, or through the host between devices, within a buffer and at odd offsets."""
    if copies_on_device(source, destination):
        source.device.copy(*source.place, *destination.place, nbytes)
        return
    data = bytearray(nbytes)
    source.device.download(*source.place, data)
    destination.device.upload(*destination.place, data)


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
