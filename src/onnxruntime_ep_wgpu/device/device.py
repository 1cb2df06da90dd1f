"""One GPU as the runtime sees it: memory in, dispatches, memory out.

In: bytes, WGSL, dispatch lists. Out: buffers, pipelines, bytes. Invariants: submitting happens under one lock per
device, encoding and waiting for the GPU under none; a lost device is refused before wgpu-native is called, which would
abort the process; the queue runs uploads, copies and submits in the order of the calls.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from .. import process
from ..errors import DeviceError, DeviceLostError, LimitError, OutOfMemoryError, UnsupportedError
from ..live import LiveMap, LiveSet
from ..program.target import Target
from ..trace import carried, span
from . import debugger
from .adapters import Adapter
from .buffers import Buffer
from .cache import Caches
from .encoding import Copy, Dispatch, Encoder, Recording
from .native import USAGE_COPY_DST, USAGE_COPY_SRC, USAGE_MAP_READ, USAGE_STORAGE, USAGE_UNIFORM, errors, ffi, lib, new
from .owned import let_go, own, shared
from .parallel import in_threads
from .pipelines import BindGroup, Compiler, Pipeline
from .readback import Reader
from .request import request_device
from .scopes import error_scope
from .settings import DEFAULT, Settings
from .sizes import padded
from .timing import RESOLVE_USAGE, Timed, Timer

# Writes wait in wgpu-native's own staging memory until the next submit; past this many bytes we submit them ourselves.
FLUSH_BYTES = 64 << 20
# What is counted: `pipelines` and `bind_groups` that were made, and calls. `counters` adds what lives now: `buffers`,
# `buffer_bytes` and `held_pipelines`.
COUNTERS = ("pipelines", "submits", "dispatches", "bind_groups", "uploads", "downloads")
# Pipelines that are kept although nobody uses them now, for the next session with the same model.
KEPT_PIPELINES = 256
COMPILE_LOCKS = 61
# More threads than this gain nothing (16 cores, an H200) and hold much memory.
MOST_COMPILERS = 8
_NO_BYTES = new("char[]", 1)
NOTHING = Recording(())
# What buffers of each kind of cache are for.
_USAGE = {
    "storage": USAGE_STORAGE | USAGE_COPY_SRC | USAGE_COPY_DST,
    "uniform": USAGE_UNIFORM | USAGE_COPY_DST,
    "query_resolve": RESOLVE_USAGE,
    "default": USAGE_MAP_READ | USAGE_COPY_DST,
}
# (adapter, target, what to call on a loss) -> the device's handle, which the Device owns.
Acquire = Callable[[Adapter, Target, Callable[[int, str], None]], Any]


class Device:
    """A WebGPU device and its queue. Methods may be called from many threads. Made by a `Context`."""

    def __init__(
        self, adapter: Adapter, target: Target, acquire: Acquire = request_device, settings: Settings = DEFAULT
    ) -> None:
        """`acquire` gets the device and keeps what it depends on."""
        self.adapter = adapter
        self.target = target
        self._lost_reason: str | None = None
        # Nothing that the device holds refers back to it, so that it ends with its last user.
        this = weakref.ref(self)
        self._acquire = acquire
        let_go()  # of an earlier device's memory
        self._handle = acquire(adapter, target, lambda _reason, message: _note_loss(this, message))
        self._queue = own("Queue", lib.wgpuDeviceGetQueue, self._handle)
        # No finaliser takes one of these locks: garbage may be collected by a thread that has them.
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(COUNTERS, 0)
        self._count_lock = threading.Lock()
        self._compile_locks = tuple(threading.Lock() for _ in range(COMPILE_LOCKS))
        self._compiler = Compiler(self._handle, lambda: _alive(this)._problem())
        self._encoder = Encoder(self._handle)
        self._buffers: LiveSet[Buffer] = LiveSet()
        # A pipeline belongs to those who use it, and to the device while it is one of the last that were asked for.
        self._pipelines: LiveMap[tuple[str, tuple[str, ...], bool], Pipeline] = LiveMap()
        self._recent: deque[Pipeline] = deque(maxlen=KEPT_PIPELINES)
        self.caches = Caches(
            settings, lambda kind, nbytes, label: _alive(this)._of_kind(kind, nbytes, label), target.max_buffer_bytes
        )
        self._reader = Reader(
            self._handle,
            self.caches.default,
            lambda commands, what: _alive(this)._submit(commands, what),
            lambda: _alive(this)._look(),
            lambda problem: _alive(this)._refused(problem),
        )
        self._timer = Timer(
            self._handle,
            self._queue,
            self.caches.query_resolve,
            lambda commands, what: _alive(this)._submit(commands, what),
            lambda: _alive(this).wait(),
            self._reader,
        )
        self._unflushed = 0
        descriptor = new("WGPUBufferDescriptor *", {"size": 16, "usage": USAGE_COPY_DST})
        self._nothing = own("Buffer", lib.wgpuDeviceCreateBuffer, self._handle, descriptor)

    def __repr__(self) -> str:
        return f"Device({self.target.name!r}{', lost' if self.lost else ''})"

    @property
    def handle(self) -> Any:
        """wgpu-native's object."""
        return self._handle

    @property
    def lost(self) -> bool:
        """Whether the device went away; every further call raises DeviceLostError."""
        return self._lost_reason is not None

    def _check(self) -> None:
        process.check()
        if self._lost_reason is not None:
            raise DeviceLostError(
                f"the device {self.adapter.name!r} was lost ({self._lost_reason});"
                " tensors on it are gone, the next run of a session is on a new device"
            )

    @property
    def counters(self) -> dict[str, int]:
        """What the device has done so far and holds; see COUNTERS."""
        let_go()
        with self._count_lock:
            counts = dict(self._counts)
        sizes = [buffer.size for buffer in self._buffers]
        held = {"buffers": len(sizes), "buffer_bytes": sum(sizes), "held_pipelines": len(self._pipelines)}
        return counts | held

    def _count(self, **more: int) -> None:
        with self._count_lock:
            for name, number in more.items():
                self._counts[name] += number

    # Memory

    def _new(self, size: int, usage: int, label: str) -> Buffer:
        self._check()
        descriptor = new("WGPUBufferDescriptor *")
        descriptor.usage = usage
        descriptor.size = size
        handle = own("Buffer", lib.wgpuDeviceCreateBuffer, self._handle, descriptor)
        problem = self._problem()
        if problem:
            raise OutOfMemoryError(
                f"the device {self.adapter.name!r} has no memory for {label or 'a tensor'}, {size} bytes: {problem};"
                " use a smaller input or batch, or end other sessions"
            )
        buffer = Buffer(handle, size, usage, label)
        self._buffers.add(buffer)
        return buffer

    def _of_kind(self, kind: str, nbytes: int, label: str) -> Buffer:
        """A new buffer for the cache of a kind."""
        return self._buffer(nbytes, _USAGE[kind], label)

    def buffer(self, nbytes: int, label: str = "") -> Buffer:
        """A new, zeroed storage buffer of at least `nbytes` bytes. Raises LimitError above the adapter's buffer limit.

        `caches.storage` has used ones.
        """
        return self._buffer(nbytes, _USAGE["storage"], label)

    def _buffer(self, nbytes: int, usage: int, label: str) -> Buffer:
        size = padded(nbytes)
        limit = self.target.max_buffer_bytes
        if size > limit:
            raise LimitError(
                f"{label or 'a tensor'} needs {nbytes} bytes in one buffer;"
                f" the adapter {self.adapter.name!r} allows {limit} (max-buffer-size)"
            )
        return self._new(size, usage, label)

    def adopt(self, handle: Any, size: int, usage: int, label: str) -> Buffer:
        """A buffer of this device that was made elsewhere, with a reference of its own. Not counted."""
        return Buffer(shared("Buffer", handle), size, usage, label, lent=True)

    def uniform(self, data: bytes) -> Buffer:
        """A uniform buffer that holds `data`, padded with zeros to a multiple of 16 bytes. Raises LimitError.

        It comes from `caches.uniform`, where it may be given back. A binding of it is held to a lower limit than a buffer.
        """
        buffer = self.caches.uniform.take(len(data), "uniforms")
        size = padded(len(data))
        self._write(buffer, 0, ffi.from_buffer(data.ljust(size, b"\0")), size)
        return buffer

    def upload(self, buffer: Buffer, offset: int, data: Any) -> None:
        """Writes `data` (a C-contiguous buffer of any number of bytes) at `offset` bytes; it is copied before this returns.

        GPU memory is written in words of 4 bytes: the up to 3 bytes after the data in its last word become zero, and
        an `offset` inside a word costs a readback of that word.
        """
        # Released at once, also when an error leaves: a traceback may end in a cycle, and collecting a memoryview that is still
        # read through cffi ends a CPython 3.11 process.
        with ffi.from_buffer(data) as source:
            nbytes = len(source)
            if not nbytes:
                return
            _check_range(buffer, offset, nbytes, "upload")
            self._count(uploads=1)
            with span("upload", buffer.label or "tensor", bytes=nbytes):
                self._upload(buffer, offset, source, nbytes)

    def _upload(self, buffer: Buffer, offset: int, source: Any, nbytes: int) -> None:
        lead = offset & 3
        done = 0
        if lead:
            word = bytearray(4)
            self._reader.read([(buffer, offset - lead, ffi.from_buffer(word), 4)])
            done = min(4 - lead, nbytes)
            word[lead : lead + done] = ffi.buffer(source, done)[:]
            self._write(buffer, offset - lead, ffi.from_buffer(word), 4)
        whole = (nbytes - done) & ~3
        if whole:
            self._write(buffer, offset + done, source + done, whole)
            done += whole
        if done < nbytes:
            last = ffi.buffer(source + done, nbytes - done)[:].ljust(4, b"\0")
            self._write(buffer, offset + done, ffi.from_buffer(last), 4)

    def _write(self, buffer: Buffer, offset: int, source: Any, nbytes: int) -> None:
        self._check()
        lib.wgpuQueueWriteBuffer(self._queue, buffer.handle, offset, source, nbytes)
        self._raise("the upload")
        self._unflushed += nbytes
        if self._unflushed > FLUSH_BYTES:
            self._submit()

    def download(self, buffer: Buffer, offset: int, into: Any) -> None:
        """Fills `into` (a C-contiguous, writable buffer) from `offset` bytes on, after everything submitted so far has run.

        Other Python threads run meanwhile, and may use the device.
        """
        self.download_all([(buffer, offset, into)])

    def download_all(self, ranges: Iterable[tuple[Buffer, int, Any]]) -> None:
        """Several downloads (buffer, offset, into) at the cost of about one."""
        self._check()
        wanted: list[tuple[Buffer, int, Any, int]] = []
        try:
            for buffer, offset, into in ranges:
                target = ffi.from_buffer("char[]", into, require_writable=True)
                wanted.append((buffer, offset, target, len(target)))
                _check_range(buffer, offset, len(target), "download")
            self._download([it for it in wanted if it[3]])
        finally:
            for _, _, target, _ in wanted:
                ffi.release(target)  # see `upload`

    def _download(self, wanted: Sequence[tuple[Buffer, int, Any, int]]) -> None:
        if not wanted:
            return
        self._count(downloads=len(wanted))
        waited = self._timer.unfinished()
        what = wanted[0][0].label or "tensor" if len(wanted) == 1 else f"{len(wanted)} tensors"
        with span("download", what, bytes=sum(nbytes for *_, nbytes in wanted)):
            self._reader.read(wanted)
        self._timer.done(waited)

    def copy(self, src: Buffer, src_offset: int, dst: Buffer, dst_offset: int, nbytes: int) -> None:
        """Copies on the GPU. Offsets are multiples of 4; `nbytes` is rounded up to 4. `src` and `dst` must differ."""
        self.submit((), ((src, src_offset, dst, dst_offset, nbytes),))

    # Kernels

    def pipeline(self, wgsl: str, bindings: tuple[str, ...], label: str, checked: bool = False) -> Pipeline:
        """The compiled kernel of `wgsl` (entry point `main`, group 0), compiled once per device.

        `bindings` gives "read", "read_write" or "uniform" by binding number. `checked` adds bounds checks and loop
        guards. Several threads may compile different kernels at once. Raises ShaderError that names the label, the
        message and the line.
        """
        key = (wgsl, bindings, checked)
        known = self._pipelines.get(key)
        if known is None:
            self._check()
            # One of many locks, by the kernel: nobody waits for another kernel, but for a chance in as many.
            with self._compile_locks[hash(key) % COMPILE_LOCKS]:
                known = self._pipelines.get(key)
                if known is None:
                    self._check()
                    with span("pipeline", label):
                        known = self._compiler.compile(wgsl, bindings, label, checked)
                    self._pipelines.set(key, known)
                    self._count(pipelines=1)
        self._recent.append(known)
        return known

    def prepare(self, kernels: Sequence[tuple[str, tuple[str, ...], str]], checked: bool = False) -> list[Pipeline]:
        """The compiled `kernels` (WGSL, bindings, label), in their order; those that are new are compiled several at once.

        Most of the time of a first run: drivers compile on one core per kernel. Raises ShaderError.
        """
        new = {(wgsl, bindings): label for wgsl, bindings, label in kernels}
        jobs = [(*key, label, checked) for key, label in new.items() if self._pipelines.get((*key, checked)) is None]
        kept = []
        if len(jobs) > 1:
            kept = in_threads(min(os.cpu_count() or 1, MOST_COMPILERS), carried(self.pipeline), jobs)
        found = [self.pipeline(*kernel, checked) for kernel in kernels]
        del kept
        return found

    def bind_group(self, pipeline: Pipeline, entries: Sequence[tuple[Buffer, int, int]]) -> BindGroup:
        """The buffers of a dispatch: (buffer, offset, size) per binding, in bytes.

        Raises LimitError above the adapter's binding limit, DeviceError when the device refuses for another reason.
        """
        self._check()
        self._count(bind_groups=1)
        return self._compiler.bind_group(pipeline, entries, self.target.max_binding_bytes)

    def record(self, dispatches: Sequence[Dispatch]) -> Recording:
        """`dispatches` ready for `submit`, for lists that run more than once."""
        return Recording(dispatches)

    def submit(
        self,
        dispatches: Sequence[Dispatch] | Recording,
        copies_before: Sequence[Copy] = (),
        copies_after: Sequence[Copy] = (),
        per_submission: int = 0,
    ) -> None:
        """Runs `copies_before` (source, offset, destination, offset, bytes), then `dispatches` (kernel, buffers, xyz), then
        `copies_after`.

        At most `per_submission` dispatches are submitted at a time, 0 meaning all of them; nothing that another thread
        submits comes in between. Returns when the work is queued. Raises DeviceError when WebGPU refuses the work
        (nothing has run then) and DeviceLostError.
        """
        recording = dispatches if isinstance(dispatches, Recording) else Recording(dispatches)
        self._check()
        total = len(recording)
        step = per_submission or total or 1
        commands = []
        for first in range(0, max(total, 1), step):
            before = copies_before if first == 0 else ()
            after = copies_after if first + step >= total else ()
            commands.append(self._encoder.encode(recording, before, after, first, min(step, total - first)))
        self._submit(commands, "the work")
        self._count(submits=len(commands), dispatches=total)

    def _submit(self, commands: Sequence[Any] = (), what: str = "") -> int:
        """Submits command buffers one after another, or nothing but the uploads so far; gives the last index."""
        if errors.messages and commands:
            # Submitting an invalid command buffer would abort the process.
            self._raise(what)
        let_go()
        with self._lock:
            self._look()
            self._unflushed = 0
            index = 0
            for buffer in commands or (None,):
                array = ffi.NULL if buffer is None else new("WGPUCommandBuffer *", buffer)
                index = int(lib.wgpuQueueSubmitForIndex(self._queue, len(commands) and 1, array))
        return index

    def submit_alone(self, dispatch: Dispatch, what: str) -> None:
        """Runs one dispatch within error scopes; `what` names it in the DeviceError. For debugging: it is slow."""
        self._check()
        with error_scope(self._handle, what):
            commands = self._encoder.encode(Recording([dispatch]), ())
        with error_scope(self._handle, what):
            self._submit([commands], what)
        self._count(submits=1, dispatches=1)

    def captured(self) -> AbstractContextManager[None]:
        """A capture by the attached graphics debugger of what is submitted in a `with`. Raises DeviceError without one."""
        return debugger.capture(self._handle)

    @property
    def has_timestamps(self) -> bool:
        """Whether `submit_timed` and `measure` work."""
        return "timestamp-query" in self.target.features

    def submit_timed(
        self,
        recording: Recording,
        copies_before: Sequence[Copy] = (),
        copies_after: Sequence[Copy] = (),
        per_submission: int = 0,
    ) -> Timed:
        """As `submit`, and notes when each dispatch begins and ends on the GPU; every dispatch is a pass of its own.

        Raises UnsupportedError when the adapter has no timestamps.
        """
        if self.has_timestamps and not self._timer.clock.is_set:
            self._timer.calibrate()
        return self._submit_timed(recording, copies_before, copies_after, per_submission)

    def _submit_timed(
        self,
        recording: Recording,
        copies_before: Sequence[Copy] = (),
        copies_after: Sequence[Copy] = (),
        per_submission: int = 0,
    ) -> Timed:
        if not self.has_timestamps:
            raise UnsupportedError(f"the adapter {self.adapter.name!r} has no timestamps (feature timestamp-query)")
        self._check()
        timed, submits = self._timer.submit(recording, copies_before, copies_after, per_submission)
        timed.device = self
        self._count(submits=submits, dispatches=len(recording))
        return timed

    def measure(self, dispatches: Sequence[Dispatch]) -> list[float]:
        """Runs `dispatches` one after the other and gives the seconds that each took on the GPU.

        Raises UnsupportedError when the adapter has no timestamps.
        """
        timed = self._submit_timed(Recording(dispatches))
        period = self._timer.clock.period * 1e-9
        return [max(0, end - begin) * period for begin, end in timed.ticks()]

    def wait(self) -> None:
        """Returns when everything submitted so far has run. Other Python threads run meanwhile."""
        lib.wgpuDevicePoll(self._handle, True, new("WGPUSubmissionIndex *", self._submit()))

    def _look(self) -> None:
        """Raises DeviceLostError when the device is lost, also when nobody was told of it yet.

        For use before calls that end the process on a lost device. Writing nothing is the cheapest call (1.2 us) that only
        complains.
        """
        self._check()
        lib.wgpuQueueWriteBuffer(self._queue, self._nothing, 0, _NO_BYTES, 0)
        if errors.messages:
            self._raise("the work")

    def _problem(self) -> str:
        """What wgpu-native said about the calls before, "" when all is well; raises DeviceLostError for a lost device."""
        problem = errors.take()
        if problem:
            self._refused(problem)
        return problem

    def _refused(self, problem: str) -> None:
        """Raises DeviceLostError when that is what a message of wgpu-native says, or why it said it."""
        if "device is lost" in problem:  # known here before wgpu-native calls back about it
            self._lost_reason = self._lost_reason or problem
        self._check()

    def _raise(self, what: str) -> None:
        problem = self._problem()
        if problem:
            raise DeviceError(f"{what} was refused by the device {self.adapter.name!r}: {problem}")


def _note_loss(device: weakref.ref[Device], message: str) -> None:
    """wgpu-native's callback when a device is lost, or gone."""
    here = device()
    if here is not None:
        here._lost_reason = here._lost_reason or message or "no reason given"


def _alive(device: weakref.ref[Device]) -> Device:
    """A device whose method is running."""
    here = device()
    assert here is not None
    return here


def _check_range(buffer: Buffer, offset: int, nbytes: int, what: str) -> None:
    if offset < 0 or offset + nbytes > buffer.size:
        raise DeviceError(f"{what} of {nbytes} bytes at offset {offset} leaves {buffer!r}")
