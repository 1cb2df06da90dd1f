"""GPU memory to host memory. In: ranges of buffers. Out: their bytes, in memory of the caller.

Invariant: ranges travel packed into pieces through cached staging buffers, one on its way while another is copied out, so a
readback needs little memory however large it is; no lock is held while waiting, and other Python threads run.
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
# (buffer, offset, C pointer, bytes): the bytes of the buffer from the offset on belong at the pointer.
Range = tuple[Buffer, int, Any, int]


class Reader:
    """Reads buffers of one device; many threads may use it at once.

    `staging` has buffers that the host can map; `submit(commands, what)` gives a submission's ticket; `look()` raises when
    the device is lost; `refused(problem)` when a message says so.
    """

    def __init__(self, queue: Queue, staging: BufferCache, pooled: bool = False) -> None:
        """`pooled`: memory of tensors stays with C code (csrc/memory.c), which reads it then."""
        self._queue = queue
        self._staging = staging
        # Held while memory is mapped and read: what destroys the device, and so unmaps it, has to take it as well.
        self.mapping = threading.Lock()
        self._leaves = pooled and staging.mode == "bucket"
        self._left: list[Buffer] = []  # that C code reads

    def read(self, ranges: Iterable[Range]) -> None:
        """Copies ranges to host memory, after everything submitted so far has run; one submit for every 16 MiB.

        The system provides new memory while the GPU still calculates: for 64 MiB of logits it takes as long as 11 ms.
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
            self._queue.look()
            copy_out(self._queue, piece.staging, piece.length, spans)
        if not self._leave(piece.staging):
            self._staging.give(piece.staging)

    def _leave(self, staging: Buffer) -> bool:
        """Leaves a buffer to C code, for small tensors that are read again and again, where it has none as large; those that it had
        go. Whether it did."""
        words = self._queue.shared
        if not (self._leaves and words.staging_bytes < staging.size <= MOST_LEFT):
            return False
        self._left = [*self._left, staging]
        native.lib.leave_staging(words, address(staging.handle), staging.size)
        self._left = [it for it in self._left if address(it.handle) == words.staging]
        return staging in self._left


class _Packed(NamedTuple):
    """`length` bytes of `buffer` from `start` on (whole words) go to `place` in a staging buffer; `nbytes` of them, after
    `skip`, belong at the address `destination`."""

    buffer: Buffer
    start: int
    length: int
    place: int
    skip: int
    nbytes: int
    destination: int


def _packed(ranges: Iterable[Range]) -> Iterator[list[_Packed]]:
    """The ranges cut and packed into pieces of at most PIECE_BYTES (or one word more)."""
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
    """A staging buffer on its way, with what is in it."""

    def __init__(self, staging: Buffer, length: int, spans: list[_Packed]) -> None:
        self.staging = staging
        self.length = length
        self.spans = spans
        self.mapping: Mapping | None = None
