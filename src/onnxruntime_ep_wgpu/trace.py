"""What happened when: spans of compiling, planning, copying and of every dispatch, for the recorders of a thread.

In: `span(...)` around work on the CPU, and submissions whose dispatches leave timestamps. Out: a `Recorder`'s spans.
Invariants: a recorder hears only threads that it listens on, so what is recorded at once does not mix; without a recorder,
nothing is measured and nothing is kept. Times are nanoseconds of `time.perf_counter_ns()`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from .errors import WgpuEpError

# Work of the CPU, and `dispatch`, which is the GPU's.
KINDS = ("compile", "pipeline", "plan", "upload", "download", "submit", "calibrate", "dispatch")
GPU_THREAD = -1
MOST_PENDING = 256  # submissions whose timestamps wait to be read


@dataclass(frozen=True, slots=True)
class Span:
    """One thing that took time. `begin` and `end` in nanoseconds, `thread` the system's number, GPU_THREAD for the GPU."""

    kind: str
    name: str
    begin: int
    end: int
    thread: int
    args: Mapping[str, Any] = field(default_factory=dict)


class Timed(Protocol):
    """A submission whose dispatches leave timestamps."""

    def read(self) -> Sequence[tuple[int, int]]:
        """(begin, end) of every dispatch in nanoseconds; waits for the GPU."""


_Result = TypeVar("_Result")
Described = tuple[str, Mapping[str, Any]]  # the name of a dispatch, and what else is known of it


class Recorder:
    """Collects spans until `finish`. `start` and `stop` say when the calling thread is listened on."""

    def __init__(self) -> None:
        self.finished = False
        self.problem: WgpuEpError | None = None  # why times of the GPU are missing, as after the loss of a device
        self._lock = threading.Lock()
        self._spans: list[tuple[Scope, Span]] = []
        self._pending: list[tuple[Scope, Timed, Sequence[Described]]] = []

    def start(self, key: object) -> None:
        """From here on the calling thread is listened on, until `stop` with the same key. Pairs may be nested."""
        _set([*_open(), Scope(self, key)])

    def stop(self, key: object) -> None:
        """Ends what `start` with this key began, and what began within it and was left open by an error."""
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
        """Notes a submission; its timestamps are read at the end, or when many wait, the oldest of which are done."""
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
        """Everything, by time; waits for the GPU. Left out is what comes later, and what was never brought to an end."""
        with self._lock:
            pending, self._pending = self._pending, []
        self._read([it for it in pending if it[0].ended])
        with self._lock:
            self.finished = True
            ended = [span for scope, span in self._spans if scope.ended]
            self._spans.clear()
        return sorted(ended, key=lambda span: (span.begin, -span.end))


class Scope:
    """A stretch of work of one thread that a recorder listens to.

    Only what lies in scopes that ended counts: ONNX Runtime does not say when a run fails early, and what the thread does
    after that is not this recorder's.
    """

    __slots__ = ("ended", "key", "recorder")

    def __init__(self, recorder: Recorder, key: object) -> None:
        self.recorder, self.key, self.ended = recorder, key, False

    def add(self, span: Span) -> None:
        self.recorder.add(self, span)

    def dispatched(self, timed: Timed, dispatches: Sequence[Described]) -> None:
        self.recorder.dispatched(self, timed, dispatches)


class _Thread(threading.local):
    """The open scopes of one thread in the order they began, and the innermost one of each recorder."""

    scopes: Sequence[Scope] = ()
    innermost: tuple[Scope, ...] = ()


_thread = _Thread()
# Called on a thread when its first recorder begins, and when its last one ends.
on_change: list[Callable[[bool], None]] = []
_ever = False  # whether anybody has listened in this process: else a span costs next to nothing


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
    """The recorders of this thread; mostly none."""
    if not _ever:
        return ()
    scopes = _thread.innermost
    if scopes and any(scope.recorder.finished for scope in scopes):
        _set(_open())  # an error kept `stop` from being called
        scopes = _thread.innermost
    return scopes


def with_listeners(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """`function` for another thread: the listeners of this one get what it does there."""
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
    """A span on its way. `args` may be added to while it lasts; it is recorded even when the work fails."""

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


_UNHEARD: contextlib.AbstractContextManager[dict[str, Any] | None] = contextlib.nullcontext()


def span(kind: str, name: str, **args: Any) -> contextlib.AbstractContextManager[dict[str, Any] | None]:
    """Around work of the CPU: recorded where there is a recorder. Gives the span's args, None without one."""
    scopes = listeners()
    return _Work(scopes, kind, name, args) if scopes else _UNHEARD
