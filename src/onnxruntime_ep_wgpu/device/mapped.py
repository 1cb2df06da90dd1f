"""Staging buffers that the host maps. In: a buffer, and the submission after which it is free. Out: that it is mapped, or an error.

Invariant: no lock is held while waiting, and other Python threads run. C code waits and copies (csrc/readback.c), as whoever waited
for the GPU keeps it waiting.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any

from .. import _readback  # type: ignore[attr-defined,unused-ignore]
from ..errors import DeviceError
from . import encoding
from .buffers import Buffer
from .queue import Queue
from .webgpu.api import Library
from .webgpu.header import address, constant, ffi, new

native: Any = _readback

# Threads that copy a large piece: at most half of the processors, so that others go on.
COPIERS = max(1, min(4, (os.cpu_count() or 1) // 2))
LEAST_PROVIDED = 1 << 20  # bytes, below which that takes no time worth saving
Span = tuple[int, int, int]  # (offset in mapped memory, address, bytes)

_answered = address(native.ffi.addressof(native.lib, "answered"))
_PROCESS_EVENTS = constant("WGPUCallbackMode_AllowProcessEvents")
_SUCCESS = constant("WGPUMapAsyncStatus_Success")


@cache
def _functions_of(library: Library) -> Any:
    """The functions of a library that csrc/readback.c calls."""
    lib = library.lib
    return native.ffi.new("Functions *", [*map(address, (lib.wgpuBufferGetConstMappedRange, lib.wgpuBufferUnmap))])


class Mapping:
    """A map of the first `nbytes` of a buffer that was asked for, in mode MAP_READ or MAP_WRITE; the submission with the ticket
    `submitted` uses the buffer last."""

    def __init__(self, queue: Queue, buffer: Buffer, mode: int, nbytes: int, submitted: int) -> None:
        self._queue = queue
        info = new("WGPUBufferMapCallbackInfo *")
        info.mode = _PROCESS_EVENTS
        self._answered = native.ffi.gc(native.lib.answer_begin(), native.lib.answer_end)
        info.callback = ffi.cast(ffi.typeof(info.callback), _answered)
        info.userdata1 = ffi.cast("void *", address(self._answered))
        future = queue.lib.wgpuBufferMapAsync(buffer.handle, mode, 0, nbytes, info[0])
        self._ticket = queue.library.mapping_ticket(submitted, future)

    def wait(self, what: object) -> None:
        """Returns when the memory is mapped. Raises DeviceError that names `what`."""
        answer = self._answer()
        while answer is None:
            # The callback may be running on another thread, one that waited at the same time.
            self._queue.look()
            answer = self._answer()
        status, message = answer
        if status != _SUCCESS:
            self._queue.refused(message)
            raise DeviceError(f"{what} cannot be mapped: {self._queue.library.readable(message)}")

    def _answer(self) -> tuple[int, str] | None:
        """(status, message), when it comes not long after the wait."""
        tickets = native.ffi.cast("Tickets *", self._queue.tickets_address)
        status = native.lib.wait_for(tickets, self._ticket, self._answered)
        text = native.ffi.string(self._answered.text).decode(errors="replace") if status not in (0, _SUCCESS) else ""
        return (status, text) if status else None


def copy_out(queue: Queue, buffer: Buffer, nbytes: int, spans: Sequence[Span]) -> None:
    """Copies out of the first `nbytes` bytes of a mapped buffer, and unmaps it. Other Python threads run meanwhile. Raises
    DeviceError when it is not mapped any more."""
    rows = native.ffi.from_buffer("uint64_t[]", array("Q", [word for span in spans for word in span]))
    if not native.lib.copy_out(_functions_of(queue.library), address(buffer.handle), nbytes, rows, len(spans), COPIERS):
        raise DeviceError(f"{buffer!r} is not mapped")


def copy_bytes(destination: int, source: int, nbytes: int) -> None:
    """Copies between addresses, while other Python threads run."""
    encoding.native.lib.copy_bytes(destination, source, nbytes, COPIERS)


def provide_bytes(destination: int, nbytes: int) -> None:
    """Makes the system provide the memory that is copied to later, whose bytes stay as they are; other Python threads run."""
    if nbytes >= LEAST_PROVIDED:
        encoding.native.lib.provide_bytes(destination, nbytes, COPIERS)
