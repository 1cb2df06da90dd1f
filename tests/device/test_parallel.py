"""Jobs on a few threads: results in order, errors of the first that failed, and nobody who waits for what nobody does."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from onnxruntime_ep_wgpu.device.parallel import Workers
from tests import patience


class Doors:
    """Jobs that wait to be let through, and who is inside."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside: list[int] = []
        self.entered = threading.Semaphore(0)
        self.doors: dict[int, threading.Event] = {}

    def job(self, number: int) -> int:
        with self.lock:
            self.inside.append(number)
            door = self.doors.setdefault(number, threading.Event())
        self.entered.release()
        assert door.wait(patience.SECONDS)
        return number * number

    def open(self, *numbers: int) -> None:
        for number in numbers:
            with self.lock:
                door = self.doors.setdefault(number, threading.Event())
            door.set()

    def wait_for(self, count: int) -> None:
        for _ in range(count):
            assert self.entered.acquire(timeout=patience.SECONDS)


def test_results_come_in_the_order_of_the_jobs_and_steps_count_them() -> None:
    told: list[tuple[int, int]] = []
    begun = Workers(3).begin(lambda a, b: a * b, [(k, 10) for k in range(20)])
    assert begun.count == 20
    assert begun.wait(lambda done, count: told.append((done, count))) == [10 * k for k in range(20)]
    assert told == [(k + 1, 20) for k in range(20)]


def test_no_jobs_have_no_results() -> None:
    assert Workers(2).begin(lambda: 1, []).wait() == []


def test_no_more_run_at_once_than_there_are_seats_whoever_began_them() -> None:
    workers, doors = Workers(2), Doors()
    first = workers.begin(doors.job, [(0,), (1,), (2,)])
    doors.wait_for(2)
    second = workers.begin(doors.job, [(3,), (4,)])
    assert sorted(doors.inside) == [0, 1]
    doors.open(1)
    doors.wait_for(1)
    assert doors.inside[-1] == 2, "in the order in which they came"
    doors.open(0, 2, 3, 4)
    assert second.wait() == [9, 16]
    assert first.wait() == [0, 1, 4]


def test_the_error_of_a_job_is_raised_and_what_was_not_begun_is_left() -> None:
    workers, doors, done = Workers(1), Doors(), list[int]()

    def job(number: int) -> None:
        if number == 0:
            doors.job(number)
            raise ValueError("the first")
        done.append(number)

    begun = workers.begin(job, [(k,) for k in range(5)])
    doors.wait_for(1)
    behind = workers.begin(done.append, [(100,)])
    # The waiter has left when it raises; the one job behind it was begun by somebody else.
    waiting: list[BaseException] = []

    def wait() -> None:
        try:
            begun.wait()
        except ValueError as error:
            waiting.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    begun.leave()
    doors.open(0)
    thread.join(patience.SECONDS)
    assert str(waiting[0]) == "the first"
    behind.wait()
    assert done == [100]


def test_jobs_that_came_as_the_last_worker_left_are_done() -> None:
    """No worker takes them: the one that waits starts another."""
    workers = Workers(1)
    with workers._seats[0]:  # as a worker that has found nothing and is about to leave
        begun = workers.begin(lambda k: k + 1, [(k,) for k in range(4)])
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(begun.wait()))
        thread.start()
    thread.join(patience.SECONDS)
    assert found == [[1, 2, 3, 4]]


@pytest.mark.parametrize("rounds", [200])
def test_many_small_ones_lose_nothing(rounds: int) -> None:
    workers = Workers(2)
    for number in range(rounds):
        assert workers.begin(lambda k: k, [(number,), (-number,)]).wait() == [number, -number]
