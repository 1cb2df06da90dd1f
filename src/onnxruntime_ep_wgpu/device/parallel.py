"""Independent jobs on a few threads. In: a function and its arguments, once per job. Out: the results, in order.

Jobs wait in one line, in the order in which they came, whoever began them, so that threads are never more than there are seats.
Invariant: an interrupt of the waiting thread leaves nothing that anybody would wait for. Only threads of this module take jobs, and
no interrupt reaches those. That is why this is neither `concurrent.futures` nor `threading.Thread`: both are built on
`threading.Condition`, whose lock an interrupt between two lines of its own Python code leaves locked, and then the threads of the
pool hang, and the process when it ends.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

_Result = TypeVar("_Result")


class JobsBegun(Generic[_Result]):
    """Jobs that were begun together, by `Workers.begin`."""

    def __init__(self, function: Callable[..., _Result], count: int, ensure: Callable[[], None]) -> None:
        """`ensure` sees to it that a thread does what waits."""
        self.count, self._function, self._ensure = count, function, ensure
        self._done: SimpleQueue[tuple[int, _Result | None, BaseException | None]] = SimpleQueue()
        self._left = False

    def run(self, number: int, job: tuple[Any, ...]) -> None:
        """Does a job, on a thread of the workers."""
        if self._left:
            return
        try:
            self._done.put((number, self._function(*job), None))
        except BaseException as error:
            self._done.put((number, None, error))

    def wait(self, step: Callable[[int, int], None] = lambda done, count: None) -> list[_Result]:
        """The results, once; raises what the first job that failed raised, and leaves jobs that no thread has begun. `step` gets
        the number of finished jobs after each one."""
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
        """The results are not wanted: jobs that no thread has begun are left."""
        self._left = True


class Workers:
    """At most `threads` threads, which end when nothing waits."""

    def __init__(self, threads: int) -> None:
        self._waiting: SimpleQueue[tuple[JobsBegun[Any], int, tuple[Any, ...]]] = SimpleQueue()
        self._seats = tuple(threading.Lock() for _ in range(threads))

    def begin(self, function: Callable[..., _Result], jobs: Sequence[tuple[Any, ...]]) -> JobsBegun[_Result]:
        """Begins `[function(*job) for job in jobs]`."""
        batch = JobsBegun(function, len(jobs), self._ensure)
        for number, job in enumerate(jobs):
            self._waiting.put((batch, number, job))
        for number in range(min(len(self._seats), len(jobs))):
            _thread.start_new_thread(self._work, (number,))
        return batch

    def _work(self, first: int) -> None:
        """Takes a free seat, if there is one, from this number on; a worker that was faster is waited for."""
        free = next((seat for seat in (*self._seats[first:], *self._seats[:first]) if not seat.locked()), None)
        if free is not None:
            with free:
                self._serve()

    def _ensure(self) -> None:
        """The last worker may have found nothing and leave its seat just as the jobs came."""
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
            del batch, job  # nothing of the last one is kept while another one takes long
