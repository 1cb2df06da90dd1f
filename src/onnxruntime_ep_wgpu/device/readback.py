"""GPU memory to host memory. In: a buffer and a range. Out: the bytes, in memory of the caller.

Invariant: the range travels in pieces through pooled staging buffers, one on its way while another is copied out, so a
readback needs little memory however large it is; no lock is held while waiting, and other Python threads run.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from ..errors import DeviceError
from .buffers import Buffer, StagingPool
from .native import MAP_READ, TYPES, errors, expect, ffi, lib, new, on_mapped

PIECE_BYTES = 16 << 20


class Reader:
    """Reads buffers of one device; many threads may use it at once.

    `submit(commands, what)` gives a submission's index; `look()` raises when the device is lost; `refused(problem)` when a
    message says so.
    """

    def __init__(
        self,
        device: Any,
        create: Callable[[int], Any],
        submit: Callable[[Any, str], int],
        look: Callable[[], None],
        refused: Callable[[str], None],
    ) -> None:
        self._device = device
        self._staging = StagingPool(create)
        self._submit = submit
        self._look = look
        self._refused = refused
        # Held while memory is mapped and read: what destroys the device, and so unmaps it, has to take it as well.
        self.mapping = threading.Lock()

    def read(self, buffer: Buffer, offset: int, target: Any, nbytes: int) -> None:
        """Copies `nbytes` at `offset` to the C pointer `target`, after everything submitted so far has run."""
        destination = int(ffi.cast(TYPES["uintptr_t"], target))
        pieces: deque[_Piece] = deque()
        for place in range(offset, offset + nbytes, PIECE_BYTES):
            length = min(PIECE_BYTES, offset + nbytes - place)
            pieces.append(self._start(buffer, place, length, destination + place - offset))
            if len(pieces) > 1:
                self._finish(buffer, pieces.popleft())
        while pieces:
            self._finish(buffer, pieces.popleft())

    def _start(self, buffer: Buffer, offset: int, nbytes: int, destination: int) -> _Piece:
        start = offset & ~3
        length = ((offset + nbytes + 3) & ~3) - start
        staging, size = self._staging.take(length)
        encoder = lib.wgpuDeviceCreateCommandEncoder(self._device, ffi.NULL)
        lib.wgpuCommandEncoderCopyBufferToBuffer(encoder, buffer.handle, start, staging, 0, length)
        commands = lib.wgpuCommandEncoderFinish(encoder, ffi.NULL)
        lib.wgpuCommandEncoderRelease(encoder)
        piece = _Piece(staging, size, length, offset - start, nbytes, destination)
        piece.index = self._submit(commands, "the download")
        info = new("WGPUBufferMapCallbackInfo *")
        info.mode = lib.WGPUCallbackMode_AllowProcessEvents
        info.callback = on_mapped
        info.userdata1 = expect(piece.on_mapped)
        lib.wgpuBufferMapAsync(staging, MAP_READ, 0, length, info[0])
        return piece

    def _finish(self, buffer: Buffer, piece: _Piece) -> None:
        lib.wgpuDevicePoll(self._device, True, new("WGPUSubmissionIndex *", piece.index))
        # The callback may be running on another thread, one that polled at the same time.
        while not piece.answered.wait(0.01):
            self._look()
            lib.wgpuDevicePoll(self._device, False, ffi.NULL)
        errors.raise_interrupt()
        if piece.status != lib.WGPUMapAsyncStatus_Success:
            lib.wgpuBufferRelease(piece.staging)
            self._refused(piece.message)
            raise DeviceError(f"{buffer!r} cannot be read: {piece.message}")
        with self.mapping:
            self._look()
            source = int(
                ffi.cast(TYPES["uintptr_t"], lib.wgpuBufferGetConstMappedRange(piece.staging, 0, piece.length))
            )
            # ctypes.memmove lets other Python threads run, unlike a copy between memoryviews.
            ctypes.memmove(piece.destination, source + piece.skip, piece.nbytes)
            lib.wgpuBufferUnmap(piece.staging)
        self._staging.give(piece.staging, piece.size)


class _Piece:
    """A staging buffer on its way: `nbytes` of its `length` bytes, after `skip`, belong at address `destination`."""

    def __init__(self, staging: Any, size: int, length: int, skip: int, nbytes: int, destination: int) -> None:
        self.staging = staging
        self.size = size
        self.length = length
        self.skip = skip
        self.nbytes = nbytes
        self.destination = destination
        self.index = 0
        self.answered = threading.Event()
        self.status = 0
        self.message = ""

    def on_mapped(self, status: int, message: str) -> None:
        self.status, self.message = status, message
        self.answered.set()
