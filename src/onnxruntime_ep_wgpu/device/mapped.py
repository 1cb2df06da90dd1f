"""Staging buffers that the host maps. In: a buffer, and the submission after which it is free. Out: that it is mapped, or an error.

Invariant: no lock is held while waiting, and other Python threads run.
"""

from __future__ import annotations

import ctypes
import os
from queue import Empty, SimpleQueue

from ..errors import DeviceError
from . import encoding
from .buffers import Buffer
from .native import expect as expect_answer
from .native import ffi, lib, new, on_mapped
from .queue import Queue

# Threads that copy a large piece: at most half of the processors, so that others go on.
COPIERS = max(1, min(4, (os.cpu_count() or 1) // 2))


class Mapping:
    """A map of the first `nbytes` of a buffer that was asked for, in mode MAP_READ or MAP_WRITE."""

    def __init__(self, queue: Queue, buffer: Buffer, mode: int, nbytes: int) -> None:
        self._queue = queue
        # Not an Event: an interrupt within its Python code leaves it locked.
        self._answers: SimpleQueue[tuple[int, str]] = SimpleQueue()
        info = new("WGPUBufferMapCallbackInfo *")
        info.mode = lib.WGPUCallbackMode_AllowProcessEvents
        info.callback = on_mapped
        info.userdata1 = expect_answer(self._on_mapped)
        lib.wgpuBufferMapAsync(buffer.handle, mode, 0, nbytes, info[0])

    def _on_mapped(self, status: int, message: str) -> None:
        self._answers.put((status, message))

    def wait(self, index: int, what: object) -> None:
        """Returns when the memory is mapped, which is after the submission `index`. Raises DeviceError that names `what`."""
        device = self._queue.device
        lib.wgpuDevicePoll(device, True, new("WGPUSubmissionIndex *", index))
        # The callback may be running on another thread, one that polled at the same time.
        while (answer := self._answer(0.01)) is None:
            self._queue.look()
            lib.wgpuDevicePoll(device, False, ffi.NULL)
        status, message = answer
        if status != lib.WGPUMapAsyncStatus_Success:
            self._queue.refused(message)
            raise DeviceError(f"{what} cannot be mapped: {message}")

    def _answer(self, seconds: float) -> tuple[int, str] | None:
        """(status, message), when it comes within so long."""
        try:
            return self._answers.get(timeout=seconds)
        except Empty:
            return None


def copy_bytes(destination: int, source: int, nbytes: int) -> None:
    """Copies between addresses, while other Python threads run."""
    if encoding.native is None:
        ctypes.memmove(destination, source, nbytes)
    else:
        encoding.native.lib.copy_bytes(destination, source, nbytes, COPIERS)
