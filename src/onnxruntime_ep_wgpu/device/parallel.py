"""Independent jobs on a few threads. In: a function and its arguments, once per job. Out: the results, in order.

All jobs share one FIFO queue, so there are never more worker threads than seats.

Invariant: after an interrupt of the waiting thread, no thread is left waiting. Only threads of this module take jobs, and
interrupts do not reach these. `concurrent.futures` and `threading.Thread` do not have this property, because both use
`threading.Condition`. An interrupt between two lines of its Python code leaves its lock locked. Then the threads of the pool
hang, and the process hangs at its exit.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

_Result = TypeVar("_Result")


class JobsBegun(Generic[_Result]):
    """Jobs that were started together by `Workers.begin`."""

    def __init__(self, function: Callable[..., _Result], count: int, ensure: Callable[[], None]) -> None:
        """`ensure` starts a thread if jobs wait without one."""
        self.count, self._function, self._ensure = count, function, ensure
        self._done: SimpleQueue[tuple[int, _Result | None, BaseException | None]] = SimpleQueue()
        self._left = False

    def run(self, number: int, job: tuple[Any, ...]) -> None:
        """Runs a job on a worker thread."""
        if self._left:
            return
        try:
            self._done.put((number, self._function(*job), None))
        except BaseException as error:
            self._done.put((number, None, error))

    def wait(self, step: Callable[[int, int], None] = lambda done, count: None) -> list[_Result]:
        """Returns the results. Call it once. `step` is called with the number of finished jobs after each one.

        If a job fails, raises its error and cancels the jobs that no thread has begun.
        """
        results: dict[int, Any] = {}
        try:
            self._ensure()
            while len(results) < self.count:
                number, result, error = self._done.get()
                if error is not None:
                    raise error
                results[number] = result
                step(len(results), self.count)
        finally:
            self.leave()
        return [results[number] for number in range(self.count)]

    def leave(self) -> None:
        """Cancels the jobs that no thread has begun."""
        self._left = True


class Workers:
    """At most `threads` threads, which end when no job waits. Each holds a lock, its seat."""

    def __init__(self, threads: int) -> None:
        self._waiting: SimpleQueue[tuple[JobsBegun[Any], int, tuple[Any, ...]]] = SimpleQueue()
        self._seats = tuple(threading.Lock() for _ in range(threads))

    def begin(self, function: Callable[..., _Result], jobs: Sequence[tuple[Any, ...]]) -> JobsBegun[_Result]:
        """Starts `[function(*job) for job in jobs]`."""
        batch = JobsBegun(function, len(jobs), self._ensure)
        for number, job in enumerate(jobs):
            self._waiting.put((batch, number, job))
        for number in range(min(len(self._seats), len(jobs))):
            _thread.start_new_thread(self._work, (number,))
        return batch

    def _work(self, first: int) -> None:
        """Takes the first free seat from this index on, if there is one. Blocks if another worker took it first."""
        free = next((seat for seat in (*self._seats[first:], *self._seats[:first]) if not seat.locked()), None)
        if free is not None:
            with free:
                self._serve()

    def _ensure(self) -> None:
        """Starts a thread if jobs wait: the last worker may have seen an empty queue just before the jobs were added."""
        if not self._waiting.empty():
            _thread.start_new_thread(self._serve_next, ())

    def _serve_next(self) -> None:
        with self._seats[0]:
            self._serve()

    def _serve(self) -> None:
        while True:
            try:
                batch, number, job = self._waiting.get_nowait()
            except Empty:
                return
            batch.run(number, job)
            del batch, job  # drop references before a job that may take long
