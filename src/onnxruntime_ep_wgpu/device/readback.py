"""Copies GPU memory to host memory. In: ranges of buffers. Out: their bytes, in memory of the caller.

Invariants: ranges are packed into pieces that go through cached staging buffers. One piece is in flight while another is copied
out, so a readback of any size needs little memory. No lock is held during a wait, and other Python threads run.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from .buffers import Buffer
from .cache import BufferCache
from .encoding import encode_copies
from .mapped import Mapping, copy_out, provide_bytes
from .native import native
from .queue import Queue
from .webgpu.header import MAP_READ, address

PIECE_BYTES = 16 << 20
MOST_LEFT = 2 << 20
# (buffer, offset, C pointer, bytes): the bytes of the buffer from the offset on are copied to the pointer.
Range = tuple[Buffer, int, Any, int]


class Reader:
    """Reads buffers of one device. Thread safe.

    `staging` has buffers that the host can map.
    """

    def __init__(self, queue: Queue, staging: BufferCache, pooled: bool = False) -> None:
        """`pooled`: C code pools the memory of tensors (csrc/memory.c) and reads it."""
        self._queue = queue
        self._staging = staging
        # Held while memory is mapped and read. Code that destroys the device, which unmaps the memory, takes it too.
        self.mapping = threading.Lock()
        self._leaves = pooled and staging.mode == "bucket"
        self._left: list[Buffer] = []  # staging buffers that C code uses

    def read(self, ranges: Iterable[Range]) -> None:
        """Copies ranges to host memory, after everything submitted so far has run. One submit per 16 MiB.

        Pages of new host memory are faulted in while the GPU works: for 64 MiB of logits this takes up to 11 ms.
        """
        pieces: deque[_Piece] = deque()
        ranges = list(ranges)
        for spans in _packed(ranges):
            pieces.append(self._start(spans))
            if len(pieces) == 1:
                for _, _, target, nbytes in ranges:
                    provide_bytes(address(target), nbytes)
            if len(pieces) > 1:
                self._finish(pieces.popleft())
        while pieces:
            self._finish(pieces.popleft())

    def _start(self, spans: list[_Packed]) -> _Piece:
        length = spans[-1].place + spans[-1].length
        staging = self._staging.take(length, "a readback")
        encoder = self._queue.encoder()
        copies = [(span.buffer, span.start, staging, span.place, span.length) for span in spans]
        encode_copies(self._queue.lib, encoder, copies)
        piece = _Piece(staging, length, spans)
        submitted = self._queue.submit_encoded([encoder], "the download")
        piece.mapping = Mapping(self._queue, staging, MAP_READ, length, submitted)
        return piece

    def _finish(self, piece: _Piece) -> None:
        self._queue.run_deferred()
        assert piece.mapping is not None
        spans = [(it.place + it.skip, it.destination, it.nbytes) for it in piece.spans]
        piece.mapping.wait(piece.spans[0].buffer)
        with self.mapping:
            self._queue.check_loss()
            copy_out(self._queue, piece.staging, piece.length, spans)
        if not self._leave(piece.staging):
            self._staging.give(piece.staging)

    def _leave(self, staging: Buffer) -> bool:
        """Gives a staging buffer to C code for repeated readbacks of small tensors, if C code has none as large.

        C code's smaller buffer is released. Returns whether it was given.
        """
        words = self._queue.shared
        if not (self._leaves and words.staging_bytes < staging.size <= MOST_LEFT):
            return False
        self._left = [*self._left, staging]
        native.lib.leave_staging(words, address(staging.handle), staging.size)
        self._left = [it for it in self._left if address(it.handle) == words.staging]
        return staging in self._left


class _Packed(NamedTuple):
    """Whole words of a buffer in a staging buffer.

    `length` bytes of `buffer` from `start` on are copied to `place` in the staging buffer. Of these, `nbytes` after the first
    `skip` bytes are copied to the address `destination`.
    """

    buffer: Buffer
    start: int
    length: int
    place: int
    skip: int
    nbytes: int
    destination: int


def _packed(ranges: Iterable[Range]) -> Iterator[list[_Packed]]:
    """Splits and packs the ranges into pieces of at most PIECE_BYTES, or one word more."""
    spans: list[_Packed] = []
    place = 0
    for buffer, offset, target, nbytes in ranges:
        destination, done = address(target), 0
        while done < nbytes:
            count = min(nbytes - done, PIECE_BYTES - place)
            start = (offset + done) & ~3
            length = ((offset + done + count + 3) & ~3) - start
            spans.append(_Packed(buffer, start, length, place, offset + done - start, count, destination + done))
            done, place = done + count, place + length
            if place >= PIECE_BYTES:
                yield spans
                spans, place = [], 0
    if spans:
        yield spans


class _Piece:
    """A staging buffer in flight, with its contents."""

    def __init__(self, staging: Buffer, length: int, spans: list[_Packed]) -> None:
        self.staging = staging
        self.length = length
        self.spans = spans
        self.mapping: Mapping | None = None
