"""One range that ONNX Runtime allocated: its contents, and the device they lie on.

In: offsets and byte counts within the range. Out: (device, buffer, offset).

A buffer is made when a tensor is first used, one per tensor. Two tensors in one allocation have two buffers, because WebGPU
requires that if a dispatch reads one and writes the other. If a buffer cannot be made, the error is raised at that first use,
where it can be reported. It is not raised in `Alloc`, because ONNX Runtime does not check whether that fails.

Invariants: reading a range gives the bytes that were last written to it, however it is divided into tensors. A host copy exists
only while it equals the bytes on the device. Contents on a lost device are gone. Reading them is an error until they are
written again, on a new device.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ...device import Place
from ...device.sizes import GRAIN
from ...device.webgpu.header import address
from ...errors import DeviceError, DeviceLostError
from . import pool

if TYPE_CHECKING:
    from ...device import Buffer, Device

# Tensors up to this size keep a host copy: they may be shapes, axes or indices that the host needs.
MIRROR_BYTES = 4096


# This many consecutive tensors of one size are treated as rows of one tensor.
ROWS = 16


class Located(NamedTuple):
    """Bytes on a device."""

    device: Device
    place: Place


class Piece(NamedTuple):
    """The bytes `start` to `end` of an allocation, which lie in `buffer` of `device` from `base` on."""

    start: int
    end: int
    buffer: Buffer
    base: int
    device: Device


# Moves per allocation. If sessions on several devices use a tensor alternately, it is copied in each run wherever it lies.
_MOST_MOVES = 4

# Indices of the marks of a range, see `Allocation`.
PLACE, VALUE = 0, 1


class Marked(NamedTuple):
    """The contents of an address.

    - `number` is the number of the allocation, `marks` has its marks, `place` and `value` are the values of these.
    - `at` is where it lies, None if it is not in a single piece.
    - `mirror` is the host copy that begins there; `mirrored`: some host copy has a part of it.
    - `stays`: it stays in its buffer when it is freed.
    """

    number: int
    marks: array[int]
    place: int
    value: int
    at: Located | None
    mirror: bytes | None
    mirrored: bool
    stays: bool


class Allocation:
    """A range of addresses from `start` on. `range` has its size in use and its state.

    New buffers are made on `device`, or on another device after a loss.

    `_pieces` and `_mirrors` are replaced, never changed in place. C code reads `marks` (csrc/runs.c). They belong to the
    addresses, and later allocations there use them too. One number grows when the pieces are replaced, the other when the
    mirrors are. Each grows both before and after the change, because an interrupt or a read by another thread may come between.

    If a part of the range is lent, code outside this package has its buffer. That part stays in place, and an operation that
    would move it is an error. The allocation then keeps no host copies.

    A range with an `owner` may stay in its buffer when it is freed (`pool.py`). C code then allocates and fills it, and does
    not update host copies. So the host copies here are valid only while the mark of the value is `_mirrored_at`. Before the
    range moves elsewhere, it is taken back from C code.
    """

    __slots__ = (
        "_lent",
        "_lock",
        "_mirrored_at",
        "_mirrors",
        "_moves",
        "_opener",
        "_pieces",
        "capacity",
        "device",
        "fills",
        "marks",
        "owner",
        "range",
        "start",
    )

    def __init__(
        self,
        range: pool.Range,
        start: int,
        capacity: int,
        opener: Callable[[], Device],
        marks: array[int],
        owner: pool.Owner | None = None,
    ) -> None:
        self.range, self.start, self.capacity, self._opener = range, start, capacity, opener
        self.marks, self.owner = marks, owner
        self.device: Device | None = None
        self._pieces: tuple[Piece, ...] = ()
        self._mirrors: dict[int, bytes] = {}
        self._mirrored_at = marks[VALUE]
        self._lent = False
        self._moves = 0  # to other devices
        self._lock = threading.Lock()
        self.fills = 0  # uploads by Python

    # ---- ownership

    @property
    def is_freed(self) -> bool:
        """Whether it has no owner."""
        return bool(self.range.state >= pool.FREE)

    @property
    def is_lost(self) -> bool:
        """Whether some of it lay on a device that was lost."""
        return any(piece.device.lost for piece in self._pieces)

    def may_be_pooled(self) -> bool:
        """Returns whether the range may stay in its buffer when it is freed, and may be left to C code.

        Only this range is checked, not the pool. If it may, its buffer is recorded for C code.
        """
        whole = self._whole()
        if whole is None or self.owner is None or not self.owner.pools:
            return False
        self.range.set_buffer(self.owner, address(whole.buffer.handle), address(whole.device.queue.shared))
        return True

    def leave_to_c(self, ends: int) -> None:
        """Lets C code fill and free the range, if it stays in place meanwhile.

        It does so only if no allocator and no context's last session has ended since `ends`.
        """
        whole = self._whole()
        if self.may_be_pooled():
            self.range.lend(ends)
            if self._whole() is not whole:
                self.range.take_back(pool.USED)

    def _exclude_from_pool(self) -> None:
        """Keeps the range from C code from now on."""
        self.range.words.barred = 1
        self.range.take_back(pool.USED)

    def _whole(self) -> Piece | None:
        """Returns the piece that covers the whole range, if one was made for that (`write`), else None."""
        if len(self._pieces) != 1 or self._lent:
            return None
        piece = self._pieces[0]
        device, alone = piece.device, piece.start == piece.base == 0 and piece.end == self.capacity
        return piece if alone and not device.lost and _keeps_sizes(device) else None

    def _bytes_to_take(self, device: Device, offset: int, nbytes: int) -> int:
        """Returns how many bytes to take for a tensor that is written where nothing lies.

        This is the whole range if no other tensor can lie after it, so that the buffer also fits later tensors. Another tensor
        would begin at a multiple of GRAIN. A tensor with a part of a word, such as a Loop's condition of one byte, must fill
        all that was allocated, because the rest could be written separately.
        """
        last = nbytes == self.range.size or (nbytes > self.range.size - GRAIN and nbytes % 4 == 0)
        whole = offset == 0 and last and not self._pieces
        small = self.owner is not None and self.capacity <= pool.MOST_BYTES
        return self.capacity if whole and small and _keeps_sizes(device) else nbytes

    def _place_after_rows(self, offset: int, nbytes: int) -> tuple[int, int] | None:
        """Returns where the rest of a tensor lies if its rows are written one after another, as by a Scan; else None.

        If each of many rows had a buffer of its own, the time would grow with the square of their number.
        """
        last = self._pieces[-ROWS:]
        ends = {piece.end - piece.start for piece in last}
        if len(last) < ROWS or ends != {nbytes}:
            return None
        if last[-1].end == offset and all(a.end == b.start for a, b in pairwise(last)):
            return offset, self.range.size
        if last[-1].start == offset + nbytes and all(a.start == b.end for a, b in pairwise(last)):
            return 0, offset + nbytes
        return None

    # ---- location

    def read(self, offset: int, nbytes: int, what: str) -> Located:
        """Returns where a range lies, to read it. Raises like `AddressSpace.read`."""
        found = self._within(offset, nbytes)
        if found is not None and not found.device.lost:
            return found
        self._check_not_lost(offset, nbytes, what)
        self.range.take_back(pool.USED)
        device = self._opened()
        with self._lock:
            found = self._within(offset, nbytes)
            if found is None:
                self._check_not_lent(offset, nbytes, "read")
                found = self._gather(device, offset, offset + nbytes)
        return found

    def write(self, offset: int, nbytes: int, what: str) -> Located:
        """Returns where a range lies, to overwrite it, and drops its host copy. Raises like `AddressSpace.write`."""
        end = offset + nbytes
        if self._mirrors:
            with self._lock:
                self._set_mirrors(
                    {at: data for at, data in self._mirrored().items() if at >= end or at + len(data) <= offset}
                )
        found = self._within(offset, nbytes, whole_words=True)
        if found is not None and not found.device.lost:
            return found
        if self._lent:
            self._check_not_lost(offset, nbytes, what)
            self._check_not_lent(offset, nbytes, "written")
        self.range.take_back(pool.USED)
        device = self._opened()
        low, high = self._place_after_rows(offset, nbytes) or (
            offset,
            offset + self._bytes_to_take(device, offset, nbytes),
        )
        buffer = device.caches.storage.take(high - low, f"{what} of {nbytes} bytes")
        with self._lock:
            left = [part for piece in self._pieces for part in _parts_outside(piece, low, max(high, end))]
            self._place_in(*left, Piece(low, high, buffer, 0, device))
        return Located(device, Place(buffer, offset - low))

    def move(self, offset: int, nbytes: int, device: Device, what: str, *, keeps: bool) -> Located | None:
        """Moves the tensor at a range to `device`, because a session there would otherwise copy it in each run.

        With `keeps`, its contents move too. Returns its new place. Returns None if it stays: it is lent, not in a single piece,
        captured, was moved too often, or lies on a lost device.
        """
        self.range.take_back(pool.USED)
        piece = next((it for it in self._pieces if it.start <= offset and offset + nbytes <= it.end), None)
        if piece is None or piece.device.lost or self._lent or self._moves >= _MOST_MOVES:
            return None
        held = min(piece.end, self.range.size) - piece.start  # the rest of its buffer is unused
        buffer = device.caches.storage.take(piece.end - piece.start, f"{what} of {nbytes} bytes")
        if keeps or held > nbytes:
            copy(Located(piece.device, Place(piece.buffer, piece.base)), Located(device, Place(buffer, 0)), held)
        with self._lock:
            if piece not in self._pieces:  # another thread was faster
                device.caches.storage.give(buffer)
                return None
            self.device, self._moves = device, self._moves + 1
            others = [it for it in self._pieces if it is not piece]
            # The old buffer is not reused, because a run on another thread may have found it before and use it soon.
            self._change_pieces((*others, Piece(piece.start, piece.end, buffer, 0, device)))
        return Located(device, Place(buffer, offset - piece.start))

    def pin(self) -> None:
        """Makes `move` leave the range where it is, from now on."""
        self._moves = _MOST_MOVES

    def release(self) -> None:
        """Gives all buffers back for reuse. Takes no Python lock, so finalizers may call it."""
        self._place_in()

    def set_mirror(self, offset: int, data: bytes) -> None:
        """Keeps a host copy of bytes that were just uploaded."""
        if self._lent:
            return
        with self._lock:
            self._set_mirrors(self._mirrored() | {offset: data})

    def _mirrored(self) -> dict[int, bytes]:
        """Returns the valid host copies, by offset."""
        return self._mirrors if self._mirrored_at == self.marks[VALUE] else {}

    def _set_mirrors(self, mirrors: dict[int, bytes]) -> None:
        """Replaces the host copies. Call it under the lock. After an interrupt none is valid."""
        self.marks[VALUE] += 1
        self._mirrors = mirrors
        self.marks[VALUE] += 1
        self._mirrored_at = self.marks[VALUE]

    def mirror(self, offset: int, nbytes: int) -> bytes | None:
        """Returns the host copy of a range, or None."""
        if self.device is not None and self.device.lost:
            return None
        data = self._mirrored().get(offset)
        return data[:nbytes] if data is not None and len(data) >= nbytes else None

    def note_read(self, offset: int) -> None:
        """Records that the host reads the value at an offset.

        If the host also wrote it, Python keeps a host copy from now on. C code keeps none, so it leaves these uploads to
        Python.
        """
        if offset in self._mirrored() or self.range.filled == self.marks[VALUE]:
            self.range.words.copied = 1

    def marked(self, offset: int, nbytes: int) -> Marked:
        """Returns what lies at a range, with marks that are at least as old."""
        marks = self.marks
        place, value = marks[PLACE], marks[VALUE]
        mirrors, end = self._mirrored(), offset + nbytes
        mirrored = any(at < end and at + len(data) > offset for at, data in mirrors.items())
        mirror = mirrors.get(offset)
        at = self._within(offset, nbytes)
        number, stays = self.range.number, self.range.state == pool.USED
        return Marked(number, marks, place, value, at, mirror, mirrored, stays)

    def room(self, offset: int) -> int:
        """Returns how many bytes from an offset on lie in one piece."""
        return next((piece.end - offset for piece in self._pieces if piece.start <= offset < piece.end), 0)

    def lend(self, offset: int, nbytes: int) -> Located:
        """Returns where a range lies, and keeps it there until it is freed. Raises like `read`."""
        self._exclude_from_pool()
        found = self.read(offset, nbytes, "a tensor")
        found.place.buffer.lent = True
        self._mark_lent()
        return found

    def adopt(self, offset: int, nbytes: int, at: Located) -> None:
        """Places an unused range in a buffer of another owner."""
        self._exclude_from_pool()
        with self._lock:
            self.device = at.device
            self._place_in(Piece(offset, offset + nbytes, *at.place, at.device))
        self._mark_lent()

    def _mark_lent(self) -> None:
        with self._lock:
            self._lent = True
            self._set_mirrors({})

    def _opened(self) -> Device:
        device = self.device
        if device is None or device.lost:
            # Not under a lock, because opening a device takes long. Two threads get the same device.
            opened = self._opener()
            with self._lock:
                if self.device is device:
                    self._set_mirrors({})
                    self.device = opened
            return opened
        return device

    def _check_not_lost(self, offset: int, nbytes: int, what: str) -> None:
        for piece in self._pieces:
            if piece.device.lost and piece.start < offset + nbytes and offset < piece.end:
                raise DeviceLostError(
                    f"{what} of {nbytes} bytes was on the device {piece.device.adapter.name!r}, which was lost:"
                    " its value is lost and must be computed again"
                )

    def _check_not_lent(self, offset: int, nbytes: int, done: str) -> None:
        """Raises DeviceError if an operation would move a lent piece.

        Call it for a range that is not in a single piece, where the operation moves all pieces that it touches. `done` is the
        name of the operation in the message.
        """
        if any(it.buffer.lent and it.start < offset + nbytes and offset < it.end for it in self._pieces):
            raise DeviceError(
                f"{nbytes} bytes at offset {offset} cannot be {done}: they contain a part of a tensor that is shared with wgpu"
                " and cannot be moved. A part must lie within that tensor; to be written, it must also start at a multiple"
                " of 4 bytes and end at one, or at the tensor's end"
            )

    def _within(self, offset: int, nbytes: int, whole_words: bool = False) -> Located | None:
        """Returns the place of a range that lies in one piece, else None.

        With `whole_words`, also returns None if a write could change bytes beside it: GPU memory is written in words of 4
        bytes.
        """
        end = offset + nbytes
        for piece in self._pieces:
            if piece.start <= offset and end <= piece.end:
                at = piece.base + offset - piece.start
                if whole_words and (at | nbytes) & 3:
                    alone = sum(other.buffer is piece.buffer for other in self._pieces) == 1
                    if at & 3 or not alone or (end != piece.end and nbytes != self.range.size):
                        return None
                return Located(piece.device, Place(piece.buffer, at))
        return None

    def _gather(self, device: Device, start: int, end: int) -> Located:
        """Joins the pieces that a read touches. A range that was never written gets a new buffer. This is rare."""
        # Sorted by start: the last word of a copy may extend into the next piece, which is copied later and overwrites it.
        touched = sorted(
            (piece for piece in self._pieces if piece.start < end and start < piece.end), key=lambda piece: piece.start
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
        self._place_in(*(piece for piece in self._pieces if piece not in touched), Piece(low, high, buffer, 0, device))
        return Located(device, Place(buffer, start - low))

    def _place_in(self, *pieces: Piece) -> None:
        """Places the range in these pieces, and gives back the buffers that it no longer uses."""
        _recycle(self._change_pieces(pieces), pieces)

    def _change_pieces(self, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
        """Places the range in these pieces. Returns the previous ones."""
        self.marks[PLACE] += 1
        old, self._pieces = self._pieces, pieces
        self.marks[PLACE] += 1
        self.range.take_back(pool.USED)  # a thread that read the old pieces may have called `leave_to_c`
        return old


def _keeps_sizes(device: Device) -> bool:
    """Returns whether the device keeps unused buffers, in size classes."""
    return device.caches.storage.mode == "bucket"


def _recycle(old: tuple[Piece, ...], new: tuple[Piece, ...]) -> None:
    gone = {(piece.device, piece.buffer) for piece in old} - {(piece.device, piece.buffer) for piece in new}
    for device, buffer in gone:
        if not device.lost and not buffer.lent:
            device.caches.storage.give(buffer)


def _take(device: Device, nbytes: int) -> Buffer:
    return device.caches.storage.take(nbytes, f"a tensor of {nbytes} bytes")


def _parts_outside(piece: Piece, start: int, end: int) -> list[Piece]:
    """Returns the parts of a piece outside of `start` to `end`."""
    left = piece._replace(end=min(piece.end, start))
    first = max(piece.start, end)
    right = piece._replace(start=first, base=piece.base + first - piece.start)
    return [part for part in (left, right) if part.start < part.end]


def copies_on_device(source: Located, destination: Located) -> bool:
    """Returns whether WebGPU can copy this: on one device, between two buffers, at offsets of whole words."""
    (device, here), (other, there) = source, destination
    return device is other and here.buffer is not there.buffer and (here.offset | there.offset) & 3 == 0


def copy(source: Located, destination: Located, nbytes: int) -> None:
    """Copies on the device if WebGPU can, else through the host (see `copies_on_device`)."""
    if copies_on_device(source, destination):
        source.device.copy(*source.place, *destination.place, nbytes)
        return
    data = bytearray(nbytes)
    source.device.download(*source.place, data)
    destination.device.upload(*destination.place, data)
