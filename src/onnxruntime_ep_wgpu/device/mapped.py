"""Staging buffers that the host maps. In: a buffer, and the submission after which it is free. Out: that it is mapped, or an error.

Invariant: no lock is held while waiting, and other Python threads run. C code waits and copies (csrc/readback.c), as whoever waited
for the GPU keeps it waiting.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from typing import Any

from .. import _readback  # type: ignore[attr-defined,unused-ignore]
from ..errors import DeviceError
from . import encoding
from .buffers import Buffer
from .native import address, ffi, lib, new, readable
from .queue import Queue

native: Any = _readback

# Threads that copy a large piece: at most half of the processors, so that others go on.
COPIERS = max(1, min(4, (os.cpu_count() or 1) // 2))
LEAST_PROVIDED = 1 << 20  # bytes, below which that takes no time worth saving
Span = tuple[int, int, int]  # (offset in mapped memory, address, bytes)

_functions = native.ffi.new(
    "Functions *",
    [address(it) for it in (lib.wgpuDevicePoll, lib.wgpuBufferGetConstMappedRange, lib.wgpuBufferUnmap)],
)
_answered = address(native.ffi.addressof(native.lib, "answered"))


class Mapping:
    """A map of the first `nbytes` of a buffer that was asked for, in mode MAP_READ or MAP_WRITE."""

    def __init__(self, queue: Queue, buffer: Buffer, mode: int, nbytes: int) -> None:
        self._queue = queue
        info = new("WGPUBufferMapCallbackInfo *")
        info.mode = lib.WGPUCallbackMode_AllowProcessEvents
        self._answered = native.ffi.gc(native.lib.answer_begin(), native.lib.answer_end)
        info.callback = ffi.cast(ffi.typeof(info.callback), _answered)
        info.userdata1 = ffi.cast("void *", address(self._answered))
        lib.wgpuBufferMapAsync(buffer.handle, mode, 0, nbytes, info[0])

    def wait(self, index: int, what: object) -> None:
        """Returns when the memory is mapped, which is after the submission `index`. Raises DeviceError that names `what`."""
        answer = self._answer(index)
        while answer is None:
            # The callback may be running on another thread, one that polled at the same time.
            self._queue.look()
            answer = self._answer(index)
        status, message = answer
        if status != lib.WGPUMapAsyncStatus_Success:
            self._queue.refused(message)
            raise DeviceError(f"{what} cannot be mapped: {message}")

    def _answer(self, index: int) -> tuple[int, str] | None:
        """(status, message), when it comes not long after the submission `index` is done."""
        status = native.lib.wait_for(_functions, address(self._queue.device), index, self._answered)
        failed = status != lib.WGPUMapAsyncStatus_Success
        text = native.ffi.string(self._answered.text).decode(errors="replace") if status and failed else ""
        return (status, readable(text)) if status else None


def copy_out(buffer: Buffer, nbytes: int, spans: Sequence[Span]) -> None:
    """Copies out of the first `nbytes` bytes of a mapped buffer, and unmaps it. Other Python threads run meanwhile. Raises
    DeviceError when it is not mapped any more."""
    rows = native.ffi.from_buffer("uint64_t[]", array("Q", [word for span in spans for word in span]))
    if not native.lib.copy_out(_functions, address(buffer.handle), nbytes, rows, len(spans), COPIERS):
        raise DeviceError(f"{buffer!r} is not mapped")


def copy_bytes(destination: int, source: int, nbytes: int) -> None:
    """Copies between addresses, while other Python threads run."""
    encoding.native.lib.copy_bytes(destination, source, nbytes, COPIERS)


def provide_bytes(destination: int, nbytes: int) -> None:
    """Makes the system provide the memory that is copied to later, whose bytes stay as they are; other Python threads run."""
    if nbytes >= LEAST_PROVIDED:
        encoding.native.lib.provide_bytes(destination, nbytes, COPIERS)
