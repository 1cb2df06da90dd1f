"""The begin and end of each dispatch, from timestamp queries. In: dispatches. Out: GPU ticks, and times of the CPU's clock.

Invariants: every timed dispatch runs in a pass of its own, so the times exclude overlap between dispatches. Measuring does not
wait; only `TimedSubmission.read` does.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Collection, Sequence
from typing import Any

from ..live import LiveSet
from ..trace import span
from .buffers import Buffer
from .cache import BufferCache
from .clock import Clock, Sample
from .encoding import Copy, Recording, encode_copies
from .queue import Queue
from .readback import Reader
from .turn import Turn
from .webgpu.header import USAGE_COPY_SRC, USAGE_QUERY_RESOLVE, constant, ffi, new

# WebGPU allows 4,096 queries per set, two per dispatch, and requires offsets of resolved ones to be multiples of 256 bytes.
PER_SET = 2048
BYTES_PER_SET = 16 * PER_SET
RESOLVE_USAGE = USAGE_QUERY_RESOLVE | USAGE_COPY_SRC
ROUNDS = 8


class TimedSubmission:
    """A submission in flight. `read()` and `ticks()` wait for it."""

    def __init__(self, timer: Timer, count: int, resolved: Buffer | None, submitted: int) -> None:
        self._timer, self._count, self._resolved = timer, count, resolved
        self.submitted = submitted  # nanoseconds of the CPU's clock, before the submit
        self.finished: int | None = None  # when the CPU first observed that it was done, if ever
        self.device: object = None  # kept alive until the timestamps are read
        self._ticks: list[tuple[int, int]] | None = None

    def ticks(self) -> list[tuple[int, int]]:
        """Returns (begin, end) of every dispatch in GPU ticks. Waits for the GPU."""
        if self._ticks is None:
            self._ticks = self._timer.fetch(self, self._resolved, self._count)
            self._resolved = self.device = None
        return self._ticks

    def read(self) -> list[tuple[int, int]]:
        """Returns (begin, end) of every dispatch in nanoseconds of `time.perf_counter_ns()`. Waits for the GPU.

        The times have the clock's `error`. They are shifted so that none is before the submit or after `finished`.
        """
        device, ticks = self.device, self.ticks()
        clock = self._timer.clock
        if clock.is_stale and device is not None:  # a second setting accounts for the drift since the first
            self._timer.calibrate()
        del device  # the timer needs it until here
        times = [(clock.at(begin), clock.at(max(begin, end))) for begin, end in ticks]
        if not times:
            return []
        late = 0 if self.finished is None else max(0, times[-1][1] - self.finished)
        early = max(0, self.submitted - (times[0][0] - late))
        return [(begin - late + early, end - late + early) for begin, end in times]


class Timer:
    """Measures on one device. Thread safe. `cache` has buffers of RESOLVE_USAGE."""

    def __init__(self, queue: Queue, cache: BufferCache, reader: Reader) -> None:
        self._queue, self._device = queue, queue.device
        self._cache, self._reader = cache, reader
        self.clock = Clock(queue.library.timestamp_period(queue.handle))
        self._unfinished: LiveSet[TimedSubmission] = LiveSet()

    def submit(
        self,
        recording: Recording,
        before: Sequence[Copy],
        after: Sequence[Copy],
        per_submission: int,
        turn: Turn | None = None,
    ) -> tuple[TimedSubmission, int]:
        """Submits the copies `before`, the dispatches, each between two timestamps, and the copies `after`.

        A submission has at most `per_submission` dispatches; 0 means no limit. Also returns the number of submissions.
        """
        count, lib = len(recording), self._queue.lib
        sets = [self._query_set(2 * min(PER_SET, count - first)) for first in range(0, count, PER_SET)]
        resolved = self._cache.take(16 * count, "timestamps") if count else None
        encoders = [self._queue.encoder()]
        encode_copies(lib, encoders[0], before)
        for place, (pipeline, group, (x, y, z)) in enumerate(recording):
            if per_submission and place and place % per_submission == 0:
                encoders.append(self._queue.encoder())
            with _Pass(self._queue, encoders[-1], sets[place // PER_SET], place % PER_SET) as compute:
                lib.wgpuComputePassEncoderSetPipeline(compute, pipeline.handle)
                lib.wgpuComputePassEncoderSetBindGroup(compute, 0, group.handle, 0, ffi.NULL)
                lib.wgpuComputePassEncoderDispatchWorkgroups(compute, x, y, z)
        for number, queries in enumerate(sets):
            used = 2 * min(PER_SET, count - number * PER_SET)
            assert resolved is not None
            where = number * BYTES_PER_SET
            lib.wgpuCommandEncoderResolveQuerySet(encoders[-1], queries, 0, used, resolved.handle, where)
        encode_copies(lib, encoders[-1], after)
        begin = time.perf_counter_ns()
        self._queue.submit_encoded(encoders, "the measured work", turn)
        timed = TimedSubmission(self, count, resolved, begin)
        self._unfinished.add(timed)
        return timed, len(encoders)

    def unfinished(self) -> Collection[TimedSubmission]:
        """Removes and returns the submissions that may still run. Pass them to `done` after a wait for the queue."""
        if not self._unfinished:
            return ()
        waited = list(self._unfinished)
        for timed in waited:
            self._unfinished.discard(timed)
        return waited

    @staticmethod
    def done(waited: Collection[TimedSubmission]) -> None:
        """Records that these are done by now."""
        now = time.perf_counter_ns()
        for timed in waited:
            timed.finished = now

    def fetch(self, timed: TimedSubmission, resolved: Buffer | None, count: int) -> list[tuple[int, int]]:
        """Reads the timestamps of `count` dispatches."""
        self._unfinished.discard(timed)
        if resolved is None:
            return []
        data = bytearray(16 * count)
        self._reader.read([(resolved, 0, ffi.from_buffer(data), len(data))])
        self._cache.give(resolved)
        return list(struct.iter_unpack("<QQ", data))

    def calibrate(self) -> None:
        """Sets the clock by empty passes. The CPU times before the submit and after the wait enclose the GPU times."""
        with span("calibrate", "clock of the GPU") as args:
            self.clock.set(self._samples())
            if args is not None:
                args["error_us"] = round(self.clock.error / 1e3, 1)

    def _samples(self) -> list[Sample]:
        queries = self._query_set(2 * ROUNDS)
        resolved = self._cache.take(16 * ROUNDS, "timestamps")
        self._queue.wait()  # so that the first round does not measure earlier work
        around = []
        for number in range(ROUNDS):
            encoder = self._queue.encoder()
            with _Pass(self._queue, encoder, queries, number):
                pass
            if number == ROUNDS - 1:
                self._queue.lib.wgpuCommandEncoderResolveQuerySet(encoder, queries, 0, 2 * ROUNDS, resolved.handle, 0)
            before = time.perf_counter_ns()
            self._queue.submit_encoded([encoder], "the calibration")
            self._queue.wait()
            around.append((before, time.perf_counter_ns()))
        data = bytearray(16 * ROUNDS)
        self._reader.read([(resolved, 0, ffi.from_buffer(data), len(data))])
        self._cache.give(resolved)
        ticks = struct.iter_unpack("<QQ", data)
        return [Sample(begin, end, *cpu) for (begin, end), cpu in zip(ticks, around, strict=True)]

    def _query_set(self, count: int) -> Any:
        descriptor = new("WGPUQuerySetDescriptor *")
        descriptor.type = constant("WGPUQueryType_Timestamp")
        descriptor.count = count
        return self._queue.owner.own("QuerySet", self._queue.lib.wgpuDeviceCreateQuerySet, self._device, descriptor)


class _Pass:
    """A compute pass that writes its begin and end to the queries 2 * number and 2 * number + 1."""

    def __init__(self, queue: Queue, encoder: Any, queries: Any, number: int) -> None:
        self._lib = queue.lib
        writes = new("WGPUPassTimestampWrites *")
        writes.querySet = queries
        writes.beginningOfPassWriteIndex = 2 * number
        writes.endOfPassWriteIndex = 2 * number + 1
        descriptor = new("WGPUComputePassDescriptor *")
        descriptor.timestampWrites = writes
        begin = queue.lib.wgpuCommandEncoderBeginComputePass
        self._compute = queue.owner.own("ComputePassEncoder", begin, encoder, descriptor)

    def __enter__(self) -> Any:
        return self._compute

    def __exit__(self, *error: object) -> None:
        self._lib.wgpuComputePassEncoderEnd(self._compute)
