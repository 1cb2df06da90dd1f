"""Staging buffers that the host maps. In: a buffer, and the submission after which it is free. Out: that it is mapped, or an error.

Invariant: no lock is held while waiting, and other Python threads run. C code waits and copies (csrc/readback.c), as what waited
for the GPU keeps it waiting.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from ..errors import DeviceError
from .buffers import Buffer
from .native import native
from .queue import COPIERS, Queue
from .webgpu.header import address, constant

LEAST_PROVIDED = 1 << 20  # bytes, below which that takes no time worth saving
Span = tuple[int, int, int]  # (offset in mapped memory, address, bytes)

_SUCCESS = constant("WGPUMapAsyncStatus_Success")


class Mapping:
    """A map of the first `nbytes` of a buffer that was asked for, in mode MAP_READ or MAP_WRITE; the submission with the ticket
    `submitted` uses the buffer last."""

    def __init__(self, queue: Queue, buffer: Buffer, mode: int, nbytes: int, submitted: int) -> None:
        self._queue = queue
        made = native.lib.map_buffer(queue.shared, address(buffer.handle), mode, nbytes, submitted)
        if made == native.ffi.NULL:
            raise MemoryError
        self._answer = native.ffi.gc(made, native.lib.answer_end)

    def wait(self, what: object) -> None:
        """Returns when the memory is mapped. Raises DeviceError that names `what`."""
        while not (status := native.lib.wait_for(self._queue.shared, self._answer)):
            # The callback may be running on another thread, one that waited at the same time.
            self._queue.look()
        if status != _SUCCESS:
            message = native.ffi.string(self._answer.text).decode(errors="replace")
            self._queue.refused(message)
            raise DeviceError(f"{what} cannot be mapped: {self._queue.library.readable(message)}")


def copy_out(queue: Queue, buffer: Buffer, nbytes: int, spans: Sequence[Span]) -> None:
    """Copies out of the first `nbytes` bytes of a mapped buffer, and unmaps it. Other Python threads run meanwhile. Raises
    DeviceError when it is not mapped any more."""
    rows = native.ffi.from_buffer("uint64_t[]", array("Q", [word for span in spans for word in span]))
    if not native.lib.copy_out(queue.shared, address(buffer.handle), nbytes, rows, len(spans)):
        raise DeviceError(f"{buffer!r} is not mapped")


def copy_bytes(destination: int, source: int, nbytes: int) -> None:
    """Copies between addresses, while other Python threads run."""
    native.lib.copy_bytes(destination, source, nbytes, COPIERS)


def provide_bytes(destination: int, nbytes: int) -> None:
    """Makes the system provide the memory that is copied to later, whose bytes stay as they are; other Python threads run."""
    if nbytes >= LEAST_PROVIDED:
        native.lib.provide_bytes(destination, nbytes, COPIERS)


def same_bytes(one: int, other: int, nbytes: int) -> bool:
    """Whether the bytes at two addresses are equal; other Python threads run meanwhile."""
    return bool(native.lib.same_bytes(one, other, nbytes, COPIERS))
