"""Independent jobs on several threads. In: a function and its arguments, once per job. Out: the results, in order.

Invariant: an interrupt of the waiting thread leaves nothing that anybody would wait for. That is why this is neither
`concurrent.futures` nor `threading.Thread`: both are built on `threading.Condition`, whose lock an interrupt between two
lines of its own Python code leaves locked, and then the threads of the pool hang, and the process when it ends.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

_Result = TypeVar("_Result")


def in_threads(threads: int, function: Callable[..., _Result], jobs: Sequence[tuple[Any, ...]]) -> list[_Result]:
    """`[function(*job) for job in jobs]` by at most `threads` threads; raises what the first job that failed raised.

    When it raises, jobs that nobody has begun are left.
    """
    waiting: SimpleQueue[tuple[int, tuple[Any, ...]]] = SimpleQueue()
    done: SimpleQueue[tuple[int, _Result | None, BaseException | None]] = SimpleQueue()
    for numbered in enumerate(jobs):
        waiting.put(numbered)

    def work() -> None:
        while True:
            try:
                number, job = waiting.get_nowait()
            except Empty:
                return
            try:
                done.put((number, function(*job), None))
            except BaseException as error:
                done.put((number, None, error))

    results: dict[int, Any] = {}
    try:
        for _ in range(min(threads, len(jobs))):
            _thread.start_new_thread(work, ())
        while len(results) < len(jobs):
            number, result, error = done.get()
            if error is not None:
                raise error
            results[number] = result
    finally:
        while not waiting.empty():
            try:
                waiting.get_nowait()
            except Empty:
                break
    return [results[number] for number in range(len(jobs))]
