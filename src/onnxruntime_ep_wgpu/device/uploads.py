"""Large uploads from host to GPU memory, such as the weights of a model.

In: buffers, and bytes for them. Out: queued copies, in the order of the calls. Invariant: the host copies each byte once, into
one of two mapped pieces, while the GPU copies from the other one. The pieces are released at the end of the `with`.

wgpu-native keeps the staging memory of `Queue.write` for later: 121 MiB of host memory after 420 MB of weights. It also allocates
new staging memory for each write. A process with 447 MB of weights on lavapipe uses 615 MiB instead of 719.
"""

from __future__ import annotations

import ctypes
from typing import Any

from ..errors import OutOfMemoryError
from .buffers import Buffer
from .encoding import encode_copies
from .mapped import Mapping, copy_bytes
from .queue import Queue
from .readback import Reader
from .webgpu.header import MAP_WRITE, USAGE_COPY_SRC, USAGE_MAP_WRITE, address, ffi, new
from .webgpu.owned import release_dead

PIECE_BYTES = 8 << 20
LEAST_BYTES = 1 << 20  # of a tensor; smaller ones are written by `Queue.write`


class Uploads:
    """Uploads to buffers of one device. For one thread."""

    def __init__(self, queue: Queue, reader: Reader) -> None:
        self._queue, self._mapping = queue, reader.mapping
        self._pieces: list[_Piece] = []

    def __enter__(self) -> Uploads:
        return self

    def __exit__(self, *_error: object) -> None:
        self._pieces.clear()
        release_dead()

    def write(self, buffer: Buffer, source: Any, nbytes: int, offset: int = 0) -> None:
        """Queues a write of `nbytes` bytes at the pointer `source` to a buffer, at `offset`, which is a multiple of 4.

        The bytes are copied before this returns. Up to 3 bytes after them, in their last word, become zero.
        """
        begin, done = address(source), 0
        while done < nbytes:
            piece = self._free()
            count = min(nbytes - done, PIECE_BYTES)
            words = (count + 3) & ~3
            with self._mapping:
                self._queue.check_loss()
                place = self._queue.lib.wgpuBufferGetMappedRange(piece.staging.handle, 0, PIECE_BYTES)
                there = int(ffi.cast("uintptr_t", place))
                copy_bytes(there, begin + done, count)
                ctypes.memset(there + count, 0, words - count)
                self._queue.lib.wgpuBufferUnmap(piece.staging.handle)
            self._send(piece, buffer, offset + done, words)
            done += count

    def _free(self) -> _Piece:
        """Returns a mapped piece: a new one, or the one that was sent before the last one."""
        if len(self._pieces) < 2:
            self._pieces.append(_Piece(self._new()))
            return self._pieces[-1]
        piece = self._pieces.pop(0)
        self._pieces.append(piece)
        assert piece.mapping is not None
        piece.mapping.wait(piece.staging)
        return piece

    def _new(self) -> Buffer:
        self._queue.check_not_lost()
        usage = USAGE_MAP_WRITE | USAGE_COPY_SRC
        descriptor = new("WGPUBufferDescriptor *", {"size": PIECE_BYTES, "usage": usage, "mappedAtCreation": True})
        handle = self._queue.owner.own("Buffer", self._queue.lib.wgpuDeviceCreateBuffer, self._queue.device, descriptor)
        problem = self._queue.take_problem()
        if problem:
            raise OutOfMemoryError(f"there is no memory for uploads, {PIECE_BYTES} bytes of the host: {problem}")
        return Buffer(handle, PIECE_BYTES, usage, "an upload")

    def _send(self, piece: _Piece, buffer: Buffer, offset: int, nbytes: int) -> None:
        encoder = self._queue.encoder()
        encode_copies(self._queue.lib, encoder, [(piece.staging, 0, buffer, offset, nbytes)])
        submitted = self._queue.submit_encoded([encoder], "the upload")
        piece.mapping = Mapping(self._queue, piece.staging, MAP_WRITE, PIECE_BYTES, submitted)


class _Piece:
    """A staging buffer, and the map requested after the submission that read it. It is mapped at creation."""

    def __init__(self, staging: Buffer) -> None:
        self.staging = staging
        self.mapping: Mapping | None = None
