"""ONNX Runtime's profiler of a session or a run: converts spans of the runtime to events of ONNX Runtime's JSON.

In: the callbacks of OrtEpProfilerImpl. Out: one event per span. ONNX Runtime profiles the making of the session, each run and
each node. It calls StartEvent before and StopEvent after each, on the same thread. So spans of that thread in between belong to
this profiler alone.

Invariant: times are relative to ONNX Runtime's own start. StartProfiling states how long ago that was, and StopEvent states
when an event ended. Both calls may be late, so the earliest start counts. Then nothing that follows an event is before its end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from .._ort import ffi
from ..trace import GPU_THREAD, Recorder, Span
from .abi import WARNING, Logger, Ort, message_of
from .callbacks import CallbackTable, callback

KERNEL, API = 2, 3  # categories of ONNX Runtime's events


class Profiler(CallbackTable, struct="OrtEpProfilerImpl"):
    """One recording. `begin` is called when it starts."""

    def __init__(self, ort: Ort, begin: Callable[[], None], logger: Logger) -> None:
        super().__init__(ort)
        self._recorder = Recorder()
        self._begin, self._logger = begin, logger
        self._base = 0  # ONNX Runtime's start of profiling, in nanoseconds of our clock

    @callback("StartProfiling", since=25)
    def start_profiling(self, elapsed: int) -> None:
        self._base = time.perf_counter_ns() - elapsed
        self._begin()

    @callback("StartEvent", since=25)
    def start_event(self, event: int) -> None:
        self._recorder.start(event)

    @callback("StopEvent", since=25)
    def stop_event(self, event: int, record: Any) -> None:
        self._recorder.stop(event)
        if record:
            begin, duration = ffi.new("int64_t *"), ffi.new("int64_t *")
            self.ort.check_status(self.ort.ep.ProfilingEvent_GetTimestampUs(record, begin))
            self.ort.check_status(self.ort.ep.ProfilingEvent_GetDurationUs(record, duration))
            self._base = min(self._base, time.perf_counter_ns() - 1000 * (begin[0] + duration[0]))

    @callback("EndProfiling", since=25)
    def end_profiling(self, container: Any) -> None:
        ort, made = self.ort, []
        try:
            made += [self._event(span) for span in self._recorder.finish()]
            if self._recorder.problem is not None:
                self._logger.log(WARNING, f"the profile has no GPU times: {message_of(self._recorder.problem)}")
            if made:
                array = ffi.new("const OrtProfilingEvent *[]", made)
                ort.check_status(ort.ep.ProfilingEventsContainer_AddEvents(container, array, len(made)))
        finally:
            for event in made:
                ort.ep.ReleaseProfilingEvent(event)

    @callback("Release", since=25)
    def released(self) -> None:
        self.release()

    def _event(self, span: Span) -> Any:
        args = {"kind": span.kind, **{key: _plain(str(value)) for key, value in span.args.items()}}
        texts = [ffi.new("char[]", text.encode()) for pair in args.items() for text in pair]
        begin, end = (span.begin - self._base) // 1000, (span.end - self._base) // 1000
        out = ffi.new("OrtProfilingEvent **")
        self.ort.check_status(
            self.ort.ep.CreateProfilingEvent(
                KERNEL if span.thread == GPU_THREAD else API,
                os.getpid(),
                span.thread,
                ffi.new("char[]", span.name.encode()),
                begin,
                end - begin,
                ffi.new("const char *[]", texts[0::2]),
                ffi.new("const char *[]", texts[1::2]),
                len(args),
                out,
            )
        )
        return out[0]


def _plain(text: str) -> str:
    """Puts a space before text that starts like a list or an object. ONNX Runtime would write it as JSON, even if it is not."""
    return " " + text if text.startswith(("[", "{")) else text
