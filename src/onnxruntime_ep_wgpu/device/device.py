"""One GPU, as the runtime uses it.

In: bytes, WGSL, dispatch lists. Out: buffers, pipelines, bytes. `queue` submits and records the loss of the device, and `memory`
has buffers and transfers. This file has kernels and counters.

Invariants: submissions of a device are serialised by one lock. Encoding and waiting for the GPU hold no lock. The queue runs
uploads, copies and submits in the order of the calls.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ..errors import UnsupportedError
from ..live import LiveMap
from ..program.target import TIMESTAMPS, Target
from ..trace import span, with_listeners
from . import debugger
from .adapters import Adapter
from .buffers import Buffer, BufferBinding
from .cache import Caches
from .encoding import Copy, Dispatch, Encoder, Recording
from .memory import Memory
from .parallel import JobsBegun, Workers
from .pipelines import BindGroup, Compiler, Pipeline
from .queue import Queue
from .request import request_device
from .scopes import in_error_scope
from .settings import DEFAULT, Settings
from .timing import TimedSubmission, Timer
from .turn import Turn
from .webgpu.owned import release_dead
from .work import Submission, Work

# Created `pipelines` and `bind_groups`, and numbers of calls. `counters` adds the live objects: `buffers`, `buffer_bytes` and
# `held_pipelines`.
COUNTERS = ("pipelines", "submits", "dispatches", "bind_groups", "uploads", "downloads")
# Unused pipelines that are kept for the next session with the same model.
KEPT_PIPELINES = 256
COMPILE_LOCKS = 61
# Each thread of a driver uses much memory. With 16 instead of 8 on 16 cores, the pipelines of ResNet-50 take 0.34 s (0.58), and
# those of a MobileNet 0.70 (0.82): an H200, medians of two.
MOST_COMPILERS = 16
# (adapter, target, callback for a loss) -> the device's handle, which the Device owns.
Acquire = Callable[[Adapter, Target, Callable[[int, str], None]], Any]


class Device:
    """A WebGPU device and its queue. Thread safe. Made by a `Context`."""

    def __init__(
        self, adapter: Adapter, target: Target, acquire: Acquire = request_device, settings: Settings = DEFAULT
    ) -> None:
        """`acquire` opens the device and keeps the objects that it depends on."""
        self.adapter = adapter
        self.target = target
        # The objects of the device do not refer back to it, so that it ends with its last user.
        self.queue = Queue(adapter.library, adapter.name, lambda on_loss: acquire(adapter, target, on_loss))
        self.memory = Memory(self.queue, adapter.name, target, settings)
        # No finaliser takes one of these locks, because a thread that holds one may collect garbage.
        self._counts = dict.fromkeys(COUNTERS, 0)
        self._count_lock = threading.Lock()
        self._compile_locks = tuple(threading.Lock() for _ in range(COMPILE_LOCKS))
        self._compiler = Compiler(adapter.library, self.handle, self.queue.take_problem)
        self._encoder = Encoder(adapter.library, self.handle)
        # Strong references: the users of a pipeline, and the device for the last ones that were requested.
        self._pipelines: LiveMap[tuple[str, tuple[str, ...], bool], Pipeline] = LiveMap()
        self._recent: deque[Pipeline] = deque(maxlen=KEPT_PIPELINES)
        self._compilers = Workers(min(os.cpu_count() or 1, MOST_COMPILERS))
        self._timer = Timer(self.queue, self.caches.query_resolve, self.memory.reader)

    def __repr__(self) -> str:
        return f"Device({self.target.name!r}{', lost' if self.lost else ''})"

    @property
    def handle(self) -> Any:
        """The library's handle."""
        return self.queue.device

    @property
    def lost(self) -> bool:
        """Whether the device is lost. Every further call raises DeviceLostError."""
        return self.queue.lost is not None

    @property
    def counters(self) -> dict[str, int]:
        """The counters of the device; see COUNTERS."""
        release_dead()
        with self._count_lock:
            counts = dict(self._counts)
        for name in ("submits", "dispatches", "uploads", "downloads"):
            counts[name] += getattr(self.queue.shared, name)
        sizes = self.memory.sizes
        held = {"buffers": len(sizes), "buffer_bytes": sum(sizes), "held_pipelines": len(self._pipelines)}
        return counts | held

    def _count(self, **more: int) -> None:
        with self._count_lock:
            for name, number in more.items():
                self._counts[name] += number

    # Memory

    @property
    def caches(self) -> Caches:
        """The caches of free buffers."""
        return self.memory.caches

    def buffer(self, nbytes: int, label: str = "") -> Buffer:
        """Creates a zeroed storage buffer; see `Memory.buffer`."""
        return self.memory.buffer(nbytes, label)

    def upload(self, buffer: Buffer, offset: int, data: Any) -> None:
        """Writes `data` (a C-contiguous buffer of any number of bytes) at `offset` bytes; see `Memory.upload`."""
        if self.memory.upload(buffer, offset, data):
            self._count(uploads=1)

    @contextmanager
    def uploading(self) -> Iterator[Callable[[Buffer, Any], None]]:
        """Yields a function for large uploads, such as a model's weights: it writes the beginning of a buffer. For one thread."""
        with self.memory.uploads() as uploads:

            def upload(buffer: Buffer, data: Any) -> None:
                if self.memory.upload_much(uploads, buffer, data):
                    self._count(uploads=1)

            yield upload

    def download(self, buffer: Buffer, offset: int, into: Any) -> None:
        """Fills `into` (a C-contiguous, writable buffer) from `offset` bytes on, after everything submitted so far has run.

        Other Python threads run during the wait, and may use the device.
        """
        self.download_all([(buffer, offset, into)])

    def download_all(self, ranges: Iterable[tuple[Buffer, int, Any]]) -> None:
        """Several downloads (buffer, offset, into), at about the cost of one."""
        self.memory.download(ranges, self._downloading)

    def _downloading(self, count: int) -> Callable[[], None]:
        self._count(downloads=count)
        waited = self._timer.unfinished()
        return lambda: self._timer.done(waited)

    def copy(self, src: Buffer, src_offset: int, dst: Buffer, dst_offset: int, nbytes: int) -> None:
        """Copies on the GPU. Offsets are multiples of 4, and `nbytes` is rounded up to 4. `src` and `dst` must differ."""
        self.submit((), ((src, src_offset, dst, dst_offset, nbytes),))

    # Kernels

    def pipeline(
        self,
        wgsl: str,
        bindings: tuple[str, ...],
        label: str,
        bounds_checks: bool = False,
        made: Callable[[float], None] = lambda seconds: None,
    ) -> Pipeline:
        """Returns the compiled kernel of `wgsl` (entry point `main`, group 0). It is compiled once per device.

        `bindings` gives "read", "read_write" or "uniform" by binding number. `bounds_checks` adds bounds checks and loop
        guards. `made` is called with the seconds of a compilation, but not after a hit. Several threads may compile different
        kernels at once. Raises ShaderError with the label, the message and the line.
        """
        key = (wgsl, bindings, bounds_checks)
        known = self._pipelines.get(key)
        if known is None:
            self.queue.check_not_lost()
            # One of many locks, selected by the kernel's hash: threads rarely wait for the compilation of another kernel.
            with self._compile_locks[hash(key) % COMPILE_LOCKS]:
                known = self._pipelines.get(key)
                if known is None:
                    self.queue.check_not_lost()
                    begun = time.perf_counter()
                    with span("pipeline", label):
                        known = self._compiler.compile(wgsl, bindings, label, bounds_checks)
                    self._pipelines.set(key, known)
                    self._count(pipelines=1)
                    made(time.perf_counter() - begun)
        self._recent.append(known)
        return known

    def prepare(
        self,
        kernels: Sequence[tuple[str, tuple[str, ...], str]],
        bounds_checks: bool = False,
        made: Callable[[float], None] = lambda seconds: None,
    ) -> list[Pipeline]:
        """Returns the compiled `kernels` (WGSL, bindings, label), in their order. Compiles new ones on several threads.

        This takes most of the time of a first run, because drivers compile a kernel on one core. `made` is called for each.
        Raises ShaderError.
        """
        return self.begin(kernels, bounds_checks, made).wait()

    def begin(
        self,
        kernels: Sequence[tuple[str, tuple[str, ...], str]],
        bounds_checks: bool = False,
        made: Callable[[float], None] = lambda seconds: None,
    ) -> Preparing:
        """Starts `prepare` on other threads. `Preparing.wait` returns the pipelines."""
        new = {(wgsl, bindings): label for wgsl, bindings, label in kernels}
        jobs = [
            (*key, label, bounds_checks, made)
            for key, label in new.items()
            if self._pipelines.get((*key, bounds_checks)) is None
        ]
        # The longest first: drivers take longest for them, and one that starts last would delay the end alone.
        jobs.sort(key=lambda job: -len(job[0]))
        batch = self._compilers.begin(with_listeners(self.pipeline), jobs)
        return Preparing(batch, lambda: [self.pipeline(*kernel, bounds_checks, made) for kernel in kernels])

    def bind_group(self, pipeline: Pipeline, entries: Sequence[BufferBinding]) -> BindGroup:
        """Creates the bind group of a dispatch.

        Raises LimitError above the adapter's binding limit, and DeviceError if the device refuses for another reason.
        """
        self.queue.check_not_lost()
        self._count(bind_groups=1)
        return self._compiler.bind_group(pipeline, entries, self.target.max_binding_bytes)

    def record(self, dispatches: Sequence[Dispatch]) -> Recording:
        """Prepares `dispatches` for `submit`, for lists that run more than once."""
        return Recording(dispatches)

    def submit(
        self,
        dispatches: Sequence[Dispatch] | Recording,
        copies_before: Sequence[Copy] = (),
        copies_after: Sequence[Copy] = (),
        per_submission: int = 0,
        turn: Turn | None = None,
    ) -> None:
        """Runs `copies_before` (source, offset, destination, offset, bytes), then `dispatches` (kernel, bind group, xyz), then
        `copies_after`. Returns when the work is queued.

        A submission has at most `per_submission` dispatches; 0 means no limit. Other threads' submissions do not come in between.
        `turn`: that of the graph, which orders this work before or after its repeated runs (`work`). Raises DeviceError if WebGPU
        refuses the work (nothing has run then), and DeviceLostError.
        """
        recording = dispatches if isinstance(dispatches, Recording) else Recording(dispatches)
        self.queue.check_not_lost()
        total = len(recording)
        step = per_submission or total or 1
        commands = []
        for first in range(0, max(total, 1), step):
            before = copies_before if first == 0 else ()
            after = copies_after if first + step >= total else ()
            commands.append(self._encoder.encode(recording, before, after, first, min(step, total - first)))
        self.queue.submit(commands, "the work", turn)
        self._count(submits=len(commands), dispatches=total)

    def work(self, submission: Submission, per_submission: int = 0, turn: Turn | None = None) -> Work:
        """Prepares the work of `submit` for C code."""
        return Work(self.queue, submission, per_submission, turn)

    def submit_alone(self, dispatch: Dispatch, what: str) -> None:
        """Runs one dispatch within error scopes. `what` names it in the DeviceError. For debugging: it is slow."""
        self.queue.check_not_lost()
        commands = in_error_scope(
            self.queue.library, self.handle, what, self._encoder.encode, Recording([dispatch]), ()
        )
        in_error_scope(self.queue.library, self.handle, what, self.queue.submit, [commands], what)
        self._count(submits=1, dispatches=1)

    def debugger_capture(self) -> AbstractContextManager[None]:
        """The attached graphics debugger captures what is submitted during the `with`. Raises DeviceError without a debugger."""
        return debugger.capture(self.queue.library, self.handle)

    @property
    def has_timestamps(self) -> bool:
        """Whether `submit_timed` and `measure` work."""
        return TIMESTAMPS in self.target.features

    def submit_timed(
        self,
        recording: Recording,
        copies_before: Sequence[Copy] = (),
        copies_after: Sequence[Copy] = (),
        per_submission: int = 0,
        turn: Turn | None = None,
        *,
        host_clock: bool = True,
    ) -> TimedSubmission:
        """Like `submit`, and measures the begin and end of each dispatch on the GPU. Every dispatch is in a pass of its own.

        `host_clock`: the times are comparable with the host's clock. The first such call measures the offset of the two clocks.
        Raises UnsupportedError if the adapter has no timestamps.
        """
        if not self.has_timestamps:
            raise UnsupportedError(f"the adapter {self.adapter.name!r} has no timestamps (feature {TIMESTAMPS})")
        if host_clock and not self._timer.clock.is_set:
            self._timer.calibrate()
        self.queue.check_not_lost()
        timed, submits = self._timer.submit(recording, copies_before, copies_after, per_submission, turn)
        timed.device = self
        self._count(submits=submits, dispatches=len(recording))
        return timed

    def measure(self, dispatches: Sequence[Dispatch]) -> list[float]:
        """Runs `dispatches` one after the other and returns the seconds of each on the GPU.

        Raises UnsupportedError if the adapter has no timestamps.
        """
        timed = self.submit_timed(Recording(dispatches), host_clock=False)
        period = self._timer.clock.period * 1e-9
        return [max(0, end - begin) * period for begin, end in timed.ticks()]

    def wait(self) -> None:
        """Returns when everything submitted so far has run. Other Python threads run during the wait."""
        self.queue.wait()


class Preparing:
    """Pipelines in compilation."""

    def __init__(self, batch: JobsBegun[Pipeline], found: Callable[[], list[Pipeline]]) -> None:
        self._batch, self._found = batch, found

    @property
    def count(self) -> int:
        """The number of new ones."""
        return self._batch.count

    def wait(self, step: Callable[[int, int], None] = lambda done, count: None) -> list[Pipeline]:
        """Returns the pipelines in the order of the kernels. Call it once.

        `step` is called after each new pipeline with the number of finished ones and the total. Raises ShaderError.
        """
        kept = self._batch.wait(step)
        found = self._found()
        del kept
        return found

    def leave(self) -> None:
        """Cancels the kernels that no thread has begun to compile."""
        self._batch.leave()
