"""Staging buffers that are mapped for the host. In: a buffer, and its last submission. Out: a mapped buffer, or an error.

Invariant: a wait holds no lock, and other Python threads run. C code waits and copies (csrc/readback.c), because the GPU may be
idle until the waiting thread goes on.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from ..errors import DeviceError
from .buffers import Buffer
from .native import native
from .queue import COPIERS, Queue
from .webgpu.header import address, constant

LEAST_PROVIDED = 1 << 20  # bytes; for less, faulting pages in ahead saves nothing
Span = tuple[int, int, int]  # (offset in mapped memory, address, bytes)

_SUCCESS = constant("WGPUMapAsyncStatus_Success")


class Mapping:
    """A requested map of the first `nbytes` of a buffer, in mode MAP_READ or MAP_WRITE. `submitted` is the ticket of the buffer's
    last submission."""

    def __init__(self, queue: Queue, buffer: Buffer, mode: int, nbytes: int, submitted: int) -> None:
        self._queue = queue
        made = native.lib.map_buffer(queue.shared, address(buffer.handle), mode, nbytes, submitted)
        if made == native.ffi.NULL:
            raise MemoryError
        self._answer = native.ffi.gc(made, native.lib.answer_end)

    def wait(self, what: object) -> None:
        """Returns when the memory is mapped. Raises DeviceError that names `what`."""
        while not (status := native.lib.wait_for(self._queue.shared, self._answer)):
            # The callback may still run, on another thread that waited at the same time.
            self._queue.check_loss()
        if status != _SUCCESS:
            message = native.ffi.string(self._answer.text).decode(errors="replace")
            self._queue.raise_if_lost(message)
            raise DeviceError(f"{what} cannot be mapped: {self._queue.library.readable(message)}")


def copy_out(queue: Queue, buffer: Buffer, nbytes: int, spans: Sequence[Span]) -> None:
    """Copies from the first `nbytes` bytes of a mapped buffer, and unmaps it. Other Python threads run during the copy.

    Raises DeviceError if the buffer is no longer mapped.
    """
    rows = native.ffi.from_buffer("uint64_t[]", array("Q", [word for span in spans for word in span]))
    if not native.lib.copy_out(queue.shared, address(buffer.handle), nbytes, rows, len(spans)):
        raise DeviceError(f"{buffer!r} is not mapped")


def copy_bytes(destination: int, source: int, nbytes: int) -> None:
    """Copies between two addresses. Other Python threads run during the copy."""
    native.lib.copy_bytes(destination, source, nbytes, COPIERS)


def provide_bytes(destination: int, nbytes: int) -> None:
    """Faults in the pages of the destination of a later copy. The bytes do not change. Other Python threads run meanwhile."""
    if nbytes >= LEAST_PROVIDED:
        native.lib.provide_bytes(destination, nbytes, COPIERS)


def same_bytes(one: int, other: int, nbytes: int) -> bool:
    """Whether the bytes at two addresses are equal. Other Python threads run during the comparison."""
    return bool(native.lib.same_bytes(one, other, nbytes, COPIERS))
