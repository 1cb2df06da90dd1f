"""The queue of a device: writes and submissions in the order of the calls, and the loss of the device.

In: command buffers and bytes. Out: the tickets of submissions, or an error that names the refused work. Invariants: submissions
are serialised by one lock, that of `shared`, the queue in C code (csrc/submit.c). A lost device is an error before the library
is called, because the library might abort the process.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

from .. import process
from ..errors import DeviceError, DeviceLostError
from ..live import LiveMap
from . import encoding
from .native import native, queues
from .turn import Turn
from .webgpu.api import Library
from .webgpu.header import USAGE_COPY_DST, address, new
from .webgpu.messages import errors, forget_errors
from .webgpu.owned import release_dead

# The library keeps writes in its own staging memory until the next submit. Past this many bytes we submit them. The library never
# shrinks that memory, so a tensor is written in parts. Weights are uploaded by `uploads`.
FLUSH_BYTES = 16 << 20
# Threads for a large copy: at most half of the processors, so that other threads make progress.
COPIERS = max(1, min(4, (os.cpu_count() or 1) // 2))
_NO_BYTES = new("char[]", 1)


class RepeatedWork(Protocol):
    """Work that C code submits repeatedly (`work.py`)."""

    def record_ahead(self) -> None:
        """Records the commands of the next run."""


class Queue:
    """Owns the device's handle. `acquire` opens the device, receives the callback for a loss, and is kept with its references."""

    def __init__(self, library: Library, name: str, acquire: Callable[[Callable[[int, str], None]], Any]) -> None:
        self.library, self.lib, self.owner = library, library.lib, library.owner
        self._name = name
        self.lost: str | None = None  # the reason, once a loss was reported to a caller
        self._loss: str | None = None  # the library's message, which may come before the device is used
        self.shared: Any = None  # a Queue of csrc/submit.c, once there is a device
        this = weakref.ref(self)  # weak: the objects of the device do not refer back to it
        self._acquire = acquire
        release_dead()  # frees memory of an earlier device
        self.device = acquire(lambda _reason, message: _note_loss(this, message))
        self.handle = self.owner.own("Queue", self.lib.wgpuDeviceGetQueue, self.device)
        self.tickets = library.tickets(self.device, self.handle)
        self.works: LiveMap[int, RepeatedWork] = LiveMap()  # by address
        descriptor = new("WGPUBufferDescriptor *", {"size": 16, "usage": USAGE_COPY_DST})
        self._nothing = self.owner.own("Buffer", self.lib.wgpuDeviceCreateBuffer, self.device, descriptor)
        self.shared = self._share()

    def _share(self) -> Any:
        words = native.ffi.new("Queue *")
        words.functions = native.ffi.from_buffer("uint64_t[]", encoding.functions_of(self.library))
        words.tickets, words.copiers = self.tickets, COPIERS
        words.device, words.queue = address(self.device), address(self.handle)
        words.nothing = address(self._nothing)
        words.most_unflushed = FLUSH_BYTES
        native.lib.queue_begin(words)
        queues.set(address(words), self)
        words.lost = self._loss is not None
        return native.ffi.gc(words, native.lib.queue_end)

    def mark_lost(self, why: str) -> None:
        """Marks the device as lost."""
        self.lost = self.lost or why
        if self.shared is not None:
            self.shared.lost = 1

    def check_not_lost(self) -> None:
        """Raises DeviceLostError if the device is known to be lost. The first call after a loss makes it known."""
        process.check_not_forked()
        if self._loss is not None and self.lost is None:
            self.lost = self._loss
        if self.lost is not None:
            forget_errors()
            raise DeviceLostError(
                f"the device {self._name!r} was lost ({self.lost});"
                " tensors on it are gone, the next run of a session is on a new device"
            )

    def write(self, buffer: Any, offset: int, source: Any, nbytes: int) -> None:
        """Writes whole words to a buffer, by its handle. They are copied before this returns."""
        self.check_not_lost()
        for at in range(0, nbytes, FLUSH_BYTES):
            part = min(FLUSH_BYTES, nbytes - at)
            self.lib.wgpuQueueWriteBuffer(self.handle, buffer, offset + at, source + at, part)
            self.raise_if_refused("the upload")
            if native.lib.wrote(self.shared, part) >= FLUSH_BYTES:
                self.submit()

    @property
    def reused(self) -> tuple[int, int, int]:
        """Memory of this device that was reused without Python (csrc/memory.c): the number of reuses, free ranges, free bytes."""
        words = self.shared
        return int(words.reused), int(words.free_ranges), int(words.free_bytes)

    @property
    def read_in_c(self) -> tuple[int, int, int]:
        """Readbacks by C code: the number of tensors, of staging buffers, and the bytes of those."""
        words = self.shared
        return int(words.downloads), int(words.staging_bytes > 0), int(words.staging_bytes)

    def submit(self, commands: Sequence[Any] = (), what: str = "", turn: Turn | None = None) -> int:
        """Submits command buffers in order; without any, only the uploads so far. Returns the last ticket.

        `turn`: that of the graph.
        """
        if errors.messages and commands:
            # Submitting an invalid command buffer may abort the process.
            self.raise_if_refused(what)
        release_dead()
        ticket = native.ffi.new("uint64_t *")
        words = [address(it) for it in commands]
        self.check_not_lost()
        turn_words = native.ffi.NULL if turn is None else turn.words
        if not native.lib.submit(self.shared, turn_words, words, len(words), ticket):
            self.raise_refusal(what or "the work")
        return int(ticket[0])

    def encoder(self) -> Any:
        """Creates a command encoder."""
        return self.owner.own("CommandEncoder", self.lib.wgpuDeviceCreateCommandEncoder, self.device, native.ffi.NULL)

    def submit_encoded(self, encoders: Sequence[Any], what: str, turn: Turn | None = None) -> int:
        """Finishes command encoders and submits their command buffers. Returns the ticket."""
        own, finish = self.owner.own, self.lib.wgpuCommandEncoderFinish
        return self.submit([own("CommandBuffer", finish, it, native.ffi.NULL) for it in encoders], what, turn)

    def wait(self) -> None:
        """Returns when everything submitted so far has run. Other Python threads run during the wait."""
        self.tickets.wait(self.tickets, self.submit())

    def run_deferred(self) -> None:
        """Call this before a wait for the GPU. Records the next run of each work that C code repeated since the last call."""
        words = self.shared
        runs, seen = words.runs, words.runs_seen
        if runs == seen:
            return
        words.runs_seen, new_ones = runs, min(runs - seen, len(words.last))
        release_dead()
        for number in {words.last[(runs - k) % len(words.last)] for k in range(new_ones)}:
            work = self.works.get(number)
            if work is not None:
                work.record_ahead()

    def check_loss(self) -> None:
        """Raises DeviceLostError if the device is lost, also if the loss was not reported yet.

        For use before calls that abort the process on a lost device. Writing zero bytes is the cheapest call (1.2 us) that only
        reports an error.
        """
        self.check_not_lost()
        self.lib.wgpuQueueWriteBuffer(self.handle, self._nothing, 0, _NO_BYTES, 0)
        if errors.messages:
            self.raise_if_refused("the work")

    def take_problem(self) -> str:
        """Returns the library's messages about the previous calls, "" without an error. Raises DeviceLostError after a loss."""
        problem = errors.take(self.device)
        if not problem:
            return ""
        self.raise_if_lost(problem)
        return self.library.readable(problem)

    def raise_if_lost(self, problem: str) -> None:
        """Raises DeviceLostError if the message reports a loss of the device, or if a loss caused it."""
        if self.library.means_loss(problem):  # the message comes before the callback
            self.mark_lost(self.library.readable(problem))
        self.check_not_lost()

    def raise_if_refused(self, what: str) -> None:
        """Raises DeviceError if the library refused `what`."""
        problem = self.take_problem()
        if problem:
            self._raise(what, problem)

    def raise_refusal(self, what: str, then: str = "") -> NoReturn:
        """Call this if C code reports a refusal. Raises DeviceLostError, or DeviceError with `then` after the message."""
        problem = self.take_problem()
        self.check_not_lost()
        self._raise(what, (problem or "no reason given") + then)

    def _raise(self, what: str, problem: str) -> NoReturn:
        raise DeviceError(f"{what} was refused by the device {self._name!r}: {problem}")


def _note_loss(queue: weakref.ref[Queue], message: str) -> None:
    """A library's callback for a device that is lost or destroyed."""
    here = queue()
    if here is not None:
        here._loss = here.library.readable(message) or "no reason given"
        if here.shared is not None:
            here.shared.lost = 1
