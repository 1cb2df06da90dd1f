"""The queue of a device: what is written and submitted, in the order of the calls; and whether the device is still there.

In: command buffers and bytes. Out: the tickets of submits, or an error that says what was refused. Invariants: submitting happens
under one lock, which is that of `shared`, the queue in C code (csrc/submit.c); a lost device is refused before
the library is called, which might abort the process.
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
from .webgpu.owned import let_go

# Writes wait in the library's own staging memory until the next submit; past this many bytes we submit them ourselves. It keeps
# what it needed at most, so a tensor is written in parts. Weights have a way of their own (`uploads`).
FLUSH_BYTES = 16 << 20
# Threads that copy a large piece: at most half of the processors, so that others go on.
COPIERS = max(1, min(4, (os.cpu_count() or 1) // 2))
_NO_BYTES = new("char[]", 1)


class RepeatedWork(Protocol):
    """Work that C code submits again and again (`work.py`)."""

    def record_ahead(self) -> None:
        """Records what its next run submits."""


class Queue:
    """Owns the device's handle, which `acquire` gives for what is to be called on a loss, and keeps what it depends on."""

    def __init__(self, library: Library, name: str, acquire: Callable[[Callable[[int, str], None]], Any]) -> None:
        self.library, self.lib, self.owner = library, library.lib, library.owner
        self._name = name
        self.lost: str | None = None  # why, once that was reported
        self._loss: str | None = None  # by the library, which may do so before the device is used
        self.shared: Any = None  # a Queue of csrc/submit.c, once there is a device
        this = weakref.ref(self)  # what the device holds does not refer back to it
        self._acquire = acquire
        let_go()  # of an earlier device's memory
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

    def lose(self, why: str) -> None:
        """The device is lost."""
        self.lost = self.lost or why
        if self.shared is not None:
            self.shared.lost = 1

    def check_not_lost(self) -> None:
        """Raises DeviceLostError when the device is known to be lost: from its first use after that on."""
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
        """Writes words to a buffer, by its handle; they are copied before this returns."""
        self.check_not_lost()
        for at in range(0, nbytes, FLUSH_BYTES):
            part = min(FLUSH_BYTES, nbytes - at)
            self.lib.wgpuQueueWriteBuffer(self.handle, buffer, offset + at, source + at, part)
            self.complain("the upload")
            if native.lib.wrote(self.shared, part) >= FLUSH_BYTES:
                self.submit()

    @property
    def reused(self) -> tuple[int, int, int]:
        """How often memory of this device that was freed came again without Python (csrc/memory.c), and what lies free: ranges,
        bytes."""
        words = self.shared
        return int(words.reused), int(words.free_ranges), int(words.free_bytes)

    @property
    def read_in_c(self) -> tuple[int, int, int]:
        """How many tensors C code has read, and its staging buffers for that: how many, bytes."""
        words = self.shared
        return int(words.downloads), int(words.staging_bytes > 0), int(words.staging_bytes)

    def submit(self, commands: Sequence[Any] = (), what: str = "", turn: Turn | None = None) -> int:
        """Submits command buffers one after another, or nothing but the uploads so far; gives the last ticket. `turn`: of the
        graph that they are of."""
        if errors.messages and commands:
            # Submitting an invalid command buffer may abort the process.
            self.complain(what)
        let_go()
        ticket = native.ffi.new("uint64_t *")
        words = [address(it) for it in commands]
        self.check_not_lost()
        turn_words = native.ffi.NULL if turn is None else turn.words
        if not native.lib.submit(self.shared, turn_words, words, len(words), ticket):
            self.was_refused(what or "the work")
        return int(ticket[0])

    def encoder(self) -> Any:
        """A new command encoder."""
        return self.owner.own("CommandEncoder", self.lib.wgpuDeviceCreateCommandEncoder, self.device, native.ffi.NULL)

    def submit_encoded(self, encoders: Sequence[Any], what: str, turn: Turn | None = None) -> int:
        """Submits what command encoders have; gives the ticket."""
        own, finish = self.owner.own, self.lib.wgpuCommandEncoderFinish
        return self.submit([own("CommandBuffer", finish, it, native.ffi.NULL) for it in encoders], what, turn)

    def wait(self) -> None:
        """Returns when everything submitted so far has run. Other Python threads run meanwhile."""
        self.tickets.wait(self.tickets, self.submit())

    def run_deferred(self) -> None:
        """For a thread that is about to wait for the GPU, which has work: prepares what C code has repeated since the last time."""
        words = self.shared
        runs, looked = words.runs, words.looked
        if runs == looked:
            return
        words.looked, new_ones = runs, min(runs - looked, len(words.last))
        let_go()
        for number in {words.last[(runs - k) % len(words.last)] for k in range(new_ones)}:
            work = self.works.get(number)
            if work is not None:
                work.record_ahead()

    def look(self) -> None:
        """Raises DeviceLostError when the device is lost, also when that was not reported yet.

        For use before calls that end the process on a lost device. Writing nothing is the cheapest call (1.2 us) that only
        complains.
        """
        self.check_not_lost()
        self.lib.wgpuQueueWriteBuffer(self.handle, self._nothing, 0, _NO_BYTES, 0)
        if errors.messages:
            self.complain("the work")

    def problem(self) -> str:
        """What the library said about the calls before, "" when all is well; raises DeviceLostError for a lost device."""
        problem = errors.take(self.device)
        if not problem:
            return ""
        self.refused(problem)
        return self.library.readable(problem)

    def refused(self, problem: str) -> None:
        """Raises DeviceLostError when that is what a message of the library says, or why it said it."""
        if self.library.means_loss(problem):  # known here before it calls back about it
            self.lose(self.library.readable(problem))
        self.check_not_lost()

    def complain(self, what: str) -> None:
        """Raises DeviceError when the library refused `what`."""
        problem = self.problem()
        if problem:
            self._raise(what, problem)

    def was_refused(self, what: str, then: str = "") -> NoReturn:
        """Of C code that says so. Raises DeviceLostError, or DeviceError with `then` behind what the library says."""
        problem = self.problem()
        self.check_not_lost()
        self._raise(what, (problem or "no reason given") + then)

    def _raise(self, what: str, problem: str) -> NoReturn:
        raise DeviceError(f"{what} was refused by the device {self._name!r}: {problem}")


def _note_loss(queue: weakref.ref[Queue], message: str) -> None:
    """A library's callback when a device is lost, or gone."""
    here = queue()
    if here is not None:
        here._loss = here.library.readable(message) or "no reason given"
        if here.shared is not None:
            here.shared.lost = 1
