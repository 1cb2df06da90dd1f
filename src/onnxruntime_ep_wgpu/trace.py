"""Timing spans of compilation, planning, copies and every dispatch, recorded per thread.

In: `span(...)` around work on the CPU, and submissions with timestamp queries. Out: the spans of a `Recorder`.
Invariants: a recorder receives spans only from the threads that it listens on, so concurrent recordings do not mix. Without a
recorder, nothing is measured or stored. Times are nanoseconds of `time.perf_counter_ns()`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from .errors import WgpuEpError

# All kinds are CPU work, except `dispatch`, which is GPU work.
KINDS = ("compile", "pipeline", "plan", "upload", "download", "submit", "calibrate", "dispatch")
GPU_THREAD = -1
MOST_PENDING = 256  # submissions with unread timestamps


@dataclass(frozen=True, slots=True)
class Span:
    """One timed interval. `begin` and `end` are in nanoseconds. `thread` is the system's thread id, or GPU_THREAD."""

    kind: str
    name: str
    begin: int
    end: int
    thread: int
    args: Mapping[str, Any] = field(default_factory=dict)


class Timed(Protocol):
    """A submission with timestamp queries."""

    def read(self) -> Sequence[tuple[int, int]]:
        """Returns (begin, end) of every dispatch in nanoseconds; waits for the GPU."""


_Result = TypeVar("_Result")
Described = tuple[str, Mapping[str, Any]]  # the name of a dispatch and its further properties


class Recorder:
    """Collects spans until `finish`. Listens on a thread from `start` to `stop`."""

    def __init__(self) -> None:
        self.finished = False
        self.problem: WgpuEpError | None = None  # why GPU times are missing, for example the loss of a device
        self._lock = threading.Lock()
        self._spans: list[tuple[Scope, Span]] = []
        self._pending: list[tuple[Scope, Timed, Sequence[Described]]] = []

    def start(self, key: object) -> None:
        """Listens on the calling thread until `stop` with the same key. Pairs may be nested."""
        _set([*_open(), Scope(self, key)])

    def stop(self, key: object) -> None:
        """Ends the scope of `start` with this key, and inner scopes that an error left open."""
        scopes = _open()
        place = next((k for k, it in enumerate(scopes) if it.recorder is self and it.key == key), len(scopes))
        for scope in scopes[place:]:
            if scope.recorder is self:
                scope.ended = True
        _set([*scopes[:place], *(it for it in scopes[place:] if not it.ended)])

    @contextlib.contextmanager
    def listening(self) -> Iterator[Recorder]:
        """Listens on the calling thread during the `with`."""
        key = object()
        self.start(key)
        try:
            yield self
        finally:
            self.stop(key)

    def add(self, scope: Scope, span: Span) -> None:
        with self._lock:
            if not self.finished:
                self._spans.append((scope, span))

    def dispatched(self, scope: Scope, timed: Timed, dispatches: Sequence[Described]) -> None:
        """Adds a submission. Timestamps are read at the end, or earlier for the older half when more than MOST_PENDING wait."""
        with self._lock:
            self._pending.append((scope, timed, dispatches))
            old = self._pending[: MOST_PENDING // 2] if len(self._pending) > MOST_PENDING else []
            del self._pending[: len(old)]
        self._read(old)

    def _read(self, pending: Sequence[tuple[Scope, Timed, Sequence[Described]]]) -> None:
        for scope, timed, dispatches in pending:
            try:
                times = timed.read()
            except WgpuEpError as problem:
                self.problem = problem
                continue
            for (begin, end), (name, args) in zip(times, dispatches, strict=True):
                self.add(scope, Span("dispatch", name, begin, end, GPU_THREAD, args))

    def finish(self) -> list[Span]:
        """Returns all spans, sorted by time; waits for the GPU. Omits later spans and those of scopes that never ended."""
        with self._lock:
            pending, self._pending = self._pending, []
        self._read([it for it in pending if it[0].ended])
        with self._lock:
            self.finished = True
            ended = [span for scope, span in self._spans if scope.ended]
            self._spans.clear()
        return sorted(ended, key=lambda span: (span.begin, -span.end))


class Scope:
    """A period of work on one thread that a recorder listens to.

    Only spans in ended scopes count. ONNX Runtime does not report that a run failed early, and the thread's later work does
    not belong to this recorder.
    """

    __slots__ = ("ended", "key", "recorder")

    def __init__(self, recorder: Recorder, key: object) -> None:
        self.recorder, self.key, self.ended = recorder, key, False

    def add(self, span: Span) -> None:
        self.recorder.add(self, span)

    def dispatched(self, timed: Timed, dispatches: Sequence[Described]) -> None:
        self.recorder.dispatched(self, timed, dispatches)


class _Thread(threading.local):
    """The open scopes of one thread in order of their begin, and the innermost scope of each recorder."""

    scopes: Sequence[Scope] = ()
    innermost: tuple[Scope, ...] = ()


_thread = _Thread()
# Callbacks, called on a thread when its first recorder starts and when its last one stops.
on_change: list[Callable[[bool], None]] = []
_ever = False  # whether any recorder has listened in this process; if not, a span costs next to nothing


def _open() -> list[Scope]:
    return [it for it in _thread.scopes if not it.recorder.finished]


def _set(scopes: list[Scope]) -> None:
    global _ever
    _ever = True
    _thread.scopes = scopes
    _thread.innermost = tuple({it.recorder: it for it in scopes}.values())
    for notify in on_change:
        notify(bool(scopes))


def listeners() -> tuple[Scope, ...]:
    """Returns the innermost scope of each recorder on this thread; mostly none."""
    if not _ever:
        return ()
    scopes = _thread.innermost
    if scopes and any(scope.recorder.finished for scope in scopes):
        _set(_open())  # an error skipped the call of `stop`
        scopes = _thread.innermost
    return scopes


def with_listeners(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Returns `function` for another thread, where its spans go to the recorders of this thread."""
    scopes = listeners()
    if not scopes:
        return function

    def listened_to(*args: Any) -> _Result:
        before = list(_thread.scopes)
        _set([*before, *scopes])
        try:
            return function(*args)
        finally:
            _set(before)

    return listened_to


class _Work:
    """A span in progress. `args` may be extended until it ends. It is recorded even if the work raises."""

    __slots__ = ("_begin", "_kind", "_name", "_scopes", "args")

    def __init__(self, scopes: tuple[Scope, ...], kind: str, name: str, args: dict[str, Any]) -> None:
        self._scopes, self._kind, self._name, self.args = scopes, kind, name, args

    def __enter__(self) -> dict[str, Any]:
        self._begin = time.perf_counter_ns()
        return self.args

    def __exit__(self, *error: object) -> None:
        end = time.perf_counter_ns()
        span = Span(self._kind, self._name, self._begin, end, threading.get_native_id(), self.args)
        for scope in self._scopes:
            scope.add(span)


_NO_SPAN: contextlib.AbstractContextManager[dict[str, Any] | None] = contextlib.nullcontext()


def span(kind: str, name: str, **args: Any) -> contextlib.AbstractContextManager[dict[str, Any] | None]:
    """Records CPU work in the `with` if there is a recorder. Yields the span's args, or None without a recorder."""
    scopes = listeners()
    return _Work(scopes, kind, name, args) if scopes else _NO_SPAN
