"""One range that ONNX Runtime allocated: what lies in it, on which device.

In: offsets and byte counts within the range. Out: (device, buffer, offset).

Buffers are made when a tensor is first used, one per tensor: two tensors in one allocation are still two buffers, which WebGPU
wants when a dispatch reads one and writes the other. A buffer that cannot be made is an error there, where it can be
reported, and not in `Alloc`, whose failure ONNX Runtime does not look at.

Invariants: reading a range gives what was last written to it, however it was cut into tensors; a host copy exists only
while it equals the device's bytes; what lay on a device that was lost is gone, and reading it is an error until it is
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

# Tensors up to this size keep a host copy: they may be shapes, axes or indices that the host needs to know.
MIRROR_BYTES = 4096


# So many tensors of one size, one behind another, are rows of one.
ROWS = 16


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


# A tensor that sessions on several devices use in turns is copied in each run, wherever it lies.
_MOST_MOVES = 4

# What a mark of a range counts, see `Allocation`.
PLACE, VALUE = 0, 1


class Marked(NamedTuple):
    """What lies at an address: in which allocation, with which marks, where (None: in no single piece), the host copy
    that begins there, whether some host copy has a part of it, and whether it stays in its buffer when it is freed."""

    number: int
    marks: array[int]
    place: int
    value: int
    at: Located | None
    mirror: bytes | None
    mirrored: bool
    stays: bool


class Allocation:
    """A range from `start` on, of which `range` says which part has an owner, and which; new buffers are made on `device`,
    another one after a loss.

    `pieces` and `mirrors` are replaced, never changed in place. `marks`, which C code reads (csrc/runs.c), belong to the range
    its owner: two numbers that grow when pieces, and when mirrors are replaced, both before and after: an interrupt may
    come between, and so may a thread that looks at both.

    Of a range that is `lent`, buffers are known outside this package: it stays where it is, what would move it is an error, and
    an allocation that has one keeps no host copies.

    A range of an `owner` may stay in its buffer when it is freed (`pool.py`). C code, which then allocates and fills it, knows no
    host copies: those that are here are of what the range held when the mark of its value was `_mirrored_at`. Before it lies
    elsewhere, it is taken back from C code.
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

    # ---- its owner

    @property
    def is_freed(self) -> bool:
        """Whether it has no owner."""
        return bool(self.range.state >= pool.FREE)

    def may_be_pooled(self) -> bool:
        """Whether it may stay in its buffer when it is freed, as far as it goes; then C code may be given it."""
        whole = self._whole()
        if whole is None or self.owner is None or not self.owner.pools:
            return False
        self.range.lies(self.owner, address(whole.buffer.handle), address(whole.device.queue.shared))
        return True

    def leave_to_c(self, ends: int) -> None:
        """Leaves it to C code, to fill and to free it, if nothing has ended since `ends` and it lies where it did all the time."""
        whole = self._whole()
        if self.may_be_pooled():
            self.range.lend(ends)
            if self._whole() is not whole:
                self.range.take_back(pool.USED)

    def _bar(self) -> None:
        """From here on C code never has it."""
        self.range.words.barred = 1
        self.range.take_back(pool.USED)

    def _whole(self) -> Piece | None:
        """The piece that the whole range is, where one has been made for that (`write`)."""
        if len(self._pieces) != 1 or self._lent:
            return None
        piece = self._pieces[0]
        device, alone = piece.device, piece.start == piece.base == 0 and piece.end == self.capacity
        return piece if alone and not device.lost and _keeps_sizes(device) else None

    def _taken_for(self, device: Device, offset: int, nbytes: int) -> int:
        """How many bytes a tensor gets that is written to a place where nothing is: the whole range when no other tensor lies
        behind it, which would at a multiple of GRAIN, so that it fits another time as well. Of parts of words, such as a Loop's
        condition of a byte, it has to be all that was allocated: the rest could be written by itself."""
        last = nbytes == self.range.size or (nbytes > self.range.size - GRAIN and nbytes % 4 == 0)
        whole = offset == 0 and last and not self._pieces
        small = self.owner is not None and self.capacity <= pool.MOST_BYTES
        return self.capacity if whole and small and _keeps_sizes(device) else nbytes

    def _rest_of_rows(self, offset: int, nbytes: int) -> tuple[int, int] | None:
        """Where the rest of a tensor lies whose rows are written one after another, as a Scan does; None where this is no such row.
        Each of many rows in a buffer of its own would cost time that grows with the square of their number."""
        last = self._pieces[-ROWS:]
        ends = {piece.end - piece.start for piece in last}
        if len(last) < ROWS or ends != {nbytes}:
            return None
        if last[-1].end == offset and all(a.end == b.start for a, b in pairwise(last)):
            return offset, self.range.size
        if last[-1].start == offset + nbytes and all(a.start == b.end for a, b in pairwise(last)):
            return 0, offset + nbytes
        return None

    # ---- where it lies

    def read(self, offset: int, nbytes: int, what: str) -> Located:
        """Where a range lies, to read it. Raises like `AddressSpace.read`."""
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
        """Where a range lies, to overwrite it; its host copy is dropped. Raises like `AddressSpace.write`."""
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
        low, high = self._rest_of_rows(offset, nbytes) or (offset, offset + self._taken_for(device, offset, nbytes))
        buffer = device.caches.storage.take(high - low, f"{what} of {nbytes} bytes")
        with self._lock:
            left = [part for piece in self._pieces for part in _outside(piece, low, max(high, end))]
            self._lie_in(*left, Piece(low, high, buffer, 0, device))
        return Located(device, Place(buffer, offset - low))

    def move(self, offset: int, nbytes: int, device: Device, what: str, *, keeps: bool) -> Located | None:
        """The tensor at a range lies on `device` from here on, where a session uses it that would copy it in each run; with `keeps`
        what it holds goes there too. None where it stays: it is lent, in no single piece, captured, or went to and fro."""
        self.range.take_back(pool.USED)
        piece = next((it for it in self._pieces if it.start <= offset and offset + nbytes <= it.end), None)
        if piece is None or piece.device.lost or self._lent or self._moves >= _MOST_MOVES:
            return None
        held = min(piece.end, self.range.size) - piece.start  # the rest of its buffer holds nothing
        buffer = device.caches.storage.take(piece.end - piece.start, f"{what} of {nbytes} bytes")
        if keeps or held > nbytes:
            copy(Located(piece.device, Place(piece.buffer, piece.base)), Located(device, Place(buffer, 0)), held)
        with self._lock:
            if piece not in self._pieces:  # another thread was faster
                device.caches.storage.give(buffer)
                return None
            self.device, self._moves = device, self._moves + 1
            others = [it for it in self._pieces if it is not piece]
            # No other tensor gets the buffer that it had: a run on another thread may have looked before, and uses it soon.
            self._change_pieces((*others, Piece(piece.start, piece.end, buffer, 0, device)))
        return Located(device, Place(buffer, offset - piece.start))

    def stay(self) -> None:
        """From here on `move` leaves it where it is."""
        self._moves = _MOST_MOVES

    def release(self) -> None:
        """Lets go of all buffers, which are used again. For finalisers: no lock is taken."""
        self._lie_in()

    def set_mirror(self, offset: int, data: bytes) -> None:
        """Keeps a host copy of bytes that were just uploaded."""
        if self._lent:
            return
        with self._lock:
            self._set_mirrors(self._mirrored() | {offset: data})

    def _mirrored(self) -> dict[int, bytes]:
        """The host copies, by offset."""
        return self._mirrors if self._mirrored_at == self.marks[VALUE] else {}

    def _set_mirrors(self, mirrors: dict[int, bytes]) -> None:
        """Under the lock. An interrupt leaves none."""
        self.marks[VALUE] += 1
        self._mirrors = mirrors
        self.marks[VALUE] += 1
        self._mirrored_at = self.marks[VALUE]

    def mirror(self, offset: int, nbytes: int) -> bytes | None:
        """The host copy of a range, when there is one."""
        if self.device is not None and self.device.lost:
            return None
        data = self._mirrored().get(offset)
        return data[:nbytes] if data is not None and len(data) >= nbytes else None

    def note_read(self, offset: int) -> None:
        """The host wants to know what is there. What it put there itself it has a copy of from now on: C code, which keeps none,
        leaves it to Python."""
        if offset in self._mirrored() or self.range.filled == self.marks[VALUE]:
            self.range.words.copied = 1

    def marked(self, offset: int, nbytes: int) -> Marked:
        """What lies at a range, and marks that are as old as that at least."""
        marks = self.marks
        place, value = marks[PLACE], marks[VALUE]
        mirrors, end = self._mirrored(), offset + nbytes
        mirrored = any(at < end and at + len(data) > offset for at, data in mirrors.items())
        mirror = mirrors.get(offset)
        at = self._within(offset, nbytes)
        number, stays = self.range.number, self.range.state == pool.USED
        return Marked(number, marks, place, value, at, mirror, mirrored, stays)

    def room(self, offset: int) -> int:
        """How many bytes from an offset on lie in one piece."""
        return next((piece.end - offset for piece in self._pieces if piece.start <= offset < piece.end), 0)

    def lend(self, offset: int, nbytes: int) -> Located:
        """Where a range lies and stays until it is freed. Raises like `read`."""
        self._bar()
        found = self.read(offset, nbytes, "a tensor")
        found.place.buffer.lent = True
        self._mark_lent()
        return found

    def adopt(self, offset: int, nbytes: int, at: Located) -> None:
        """Makes an unused range lie in a buffer of another owner."""
        self._bar()
        with self._lock:
            self.device = at.device
            self._lie_in(Piece(offset, offset + nbytes, *at.place, at.device))
        self._mark_lent()

    def _mark_lent(self) -> None:
        with self._lock:
            self._lent = True
            self._set_mirrors({})

    def _opened(self) -> Device:
        device = self.device
        if device is None or device.lost:
            # Outside any lock: opening a device takes long. Two threads get the same one.
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
                    f"{what} of {nbytes} bytes lay on the device {piece.device.adapter.name!r}, which was lost:"
                    " its value is gone, make it again"
                )

    def _check_not_lent(self, offset: int, nbytes: int, done: str) -> None:
        """For what is to be `done` with a range that no single piece has: it would move the pieces that it touches."""
        if any(it.buffer.lent and it.start < offset + nbytes and offset < it.end for it in self._pieces):
            raise DeviceError(
                f"{nbytes} bytes at offset {offset} cannot be {done}: they have a part of a tensor that is shared with wgpu, which"
                " stays where it is. A part has to lie within that tensor; to be written, it also has to start at a multiple"
                " of 4 bytes and end at one, or at the tensor's end"
            )

    def _within(self, offset: int, nbytes: int, whole_words: bool = False) -> Located | None:
        """The place of a range that lies in one piece.

        With `whole_words` only when writing it cannot touch bytes beside it: GPU memory is written in words of 4 bytes.
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
        """Makes one piece of the pieces that a read touches; a range never written is a new buffer. Rare."""
        # In order of their starts: the last word of a copy may reach into the next piece, which then overwrites it.
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
        self._lie_in(*(piece for piece in self._pieces if piece not in touched), Piece(low, high, buffer, 0, device))
        return Located(device, Place(buffer, start - low))

    def _lie_in(self, *pieces: Piece) -> None:
        """From here on it lies in these, and buffers that it had are used again."""
        _recycle(self._change_pieces(pieces), pieces)

    def _change_pieces(self, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
        """From here on it lies in these. Gives those before."""
        self.marks[PLACE] += 1
        old, self._pieces = self._pieces, pieces
        self.marks[PLACE] += 1
        self.range.take_back(pool.USED)  # a thread that looked before may have left it to C code (`leave_to_c`)
        return old


def _keeps_sizes(device: Device) -> bool:
    """Whether buffers that are not used now stay, in size classes."""
    return device.caches.storage.mode == "bucket"


def _recycle(old: tuple[Piece, ...], new: tuple[Piece, ...]) -> None:
    gone = {(piece.device, piece.buffer) for piece in old} - {(piece.device, piece.buffer) for piece in new}
    for device, buffer in gone:
        if not device.lost and not buffer.lent:
            device.caches.storage.give(buffer)


def _take(device: Device, nbytes: int) -> Buffer:
    return device.caches.storage.take(nbytes, f"a tensor of {nbytes} bytes")


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
