"""A SessionPool: what its callers rely on, with made-up sessions and a made-up clock."""

from __future__ import annotations

import concurrent.futures
import gc
import itertools
import os
import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.scale import PoolStatistics, SessionPool
from tests import patience

from .made_up import Clock, Session, rows


def result(future: Future[list[Any]]) -> list[Any]:
    return future.result(patience.SECONDS)


def error(future: Future[list[Any]]) -> BaseException | None:
    return future.exception(patience.SECONDS)


def first(outputs: list[Any]) -> list[float]:
    """The first column of the only output."""
    (y,) = outputs
    return y[:, 0].tolist()


Make = Callable[..., SessionPool]


@pytest.fixture
def pool_of() -> Iterator[Make]:
    """A pool of made-up sessions, each a device of its own; they are let go at the end."""
    made: list[tuple[SessionPool, tuple[Session, ...]]] = []

    def make(*sessions: Session, **more: Any) -> SessionPool:
        pool = SessionPool(
            lambda device: sessions[device], devices=range(len(sessions)), **({"_clock": Clock()} | more)
        )
        made.append((pool, sessions))
        return pool

    yield make
    for pool, sessions in made:
        for session in sessions:
            session.gate.set()
        pool.close(cancel=True)


def held() -> Session:
    session = Session()
    session.gate.clear()
    return session


def test_requests_go_to_the_session_that_is_free(pool_of: Make) -> None:
    busy, free = held(), held()
    pool = pool_of(busy, free)
    one, two = pool.submit(rows(1)), pool.submit(rows(2))
    began = {float(session.next_run()[0, 0]): session for session in (busy, free)}
    assert set(began) == {1, 2}, "both run at once"
    began[2].gate.set()
    assert first(result(two)) == [4]
    assert [first(result(pool.submit(rows(k)))) for k in (3, 4, 5)] == [[9], [16], [25]], "while the other one runs"
    assert not one.done()
    began[1].gate.set()
    assert first(result(one)) == [1]


def test_results_come_in_the_order_of_the_requests(pool_of: Make) -> None:
    pool = pool_of(Session(), Session(), Session(), max_batch=3)
    found = pool.map(rows(*range(k % 4), k) for k in range(50))
    assert [first(it)[-1] for it in found] == [k * k for k in range(50)]


def test_a_map_reads_no_more_than_may_wait_and_cancels_what_is_left(pool_of: Make) -> None:
    session, read = held(), []
    pool = pool_of(session, queue_size=3)

    def requests() -> Iterator[dict[str, np.ndarray]]:
        for k in range(100):
            read.append(k)
            yield rows(k)

    found = pool.map(requests())
    threading.Thread(target=lambda: (session.next_run(), session.gate.set())).start()
    assert first(next(found)) == [0]
    assert len(read) <= 3 + 1 + 1
    found.close()
    assert len(read) <= 3 + 1 + 1
    pool.close()
    assert pool.statistics().submitted == pool.statistics().completed + pool.statistics().cancelled == len(read)


def fails_on_nine(x: np.ndarray) -> np.ndarray:
    if (x == 9).any():
        raise ValueError("nine")
    return x * x


def test_a_map_raises_an_error_at_its_place_or_gives_it(pool_of: Make) -> None:
    pool = pool_of(Session(fails_on_nine))
    found = pool.map(rows(k) for k in (1, 9, 3))
    assert first(next(found)) == [1]
    with pytest.raises(ValueError, match="nine"):
        next(found)
    one, two, three = pool.map((rows(k) for k in (1, 9, 3)), return_exceptions=True)
    assert (first(one), str(two), first(three)) == ([1], "nine", [9])


def test_a_batch_waits_for_its_size(pool_of: Make) -> None:
    clock, session = Clock(), Session()
    pool = pool_of(session, max_batch=4, max_wait=10, _clock=clock)
    futures = [pool.submit(rows(1, 2)), pool.submit(rows(3))]
    clock.until_waiting(10)
    assert session.began.empty()
    futures.append(pool.submit(rows(4)))
    assert [first(result(it)) for it in futures] == [[1, 4], [9], [16]]
    assert session.next_run()[:, 0].tolist() == [1, 2, 3, 4] and session.began.empty(), "one run"


def test_a_batch_waits_no_longer_than_was_said(pool_of: Make) -> None:
    clock, session = Clock(), Session()
    pool = pool_of(session, max_batch=4, max_wait=10, _clock=clock)
    one = pool.submit(rows(1))
    clock.until_waiting(10)
    clock.advance(6)
    two = pool.submit(rows(2))
    clock.until_waiting(10)
    clock.advance(3.5)
    clock.until_waiting(10)
    assert not one.done()
    clock.advance(0.5)
    assert (first(result(one)), first(result(two))) == ([1], [4])
    assert session.next_run()[:, 0].tolist() == [1, 2]
    assert pool.statistics().waited_seconds == 10 + 4


def test_requests_of_other_sizes_are_in_other_batches(pool_of: Make) -> None:
    session = Session(lambda x: x + 1, inputs=[("x", ["N", "M"])])
    pool = pool_of(session, max_batch=8, max_wait=10)
    futures = [pool.submit({"x": np.full((1, 2 + k % 2), k, np.float32)}) for k in range(6)]
    pool.close()
    assert [result(it)[0].tolist() for it in futures] == [[[k + 1] * (2 + k % 2)] for k in range(6)]
    assert [len(session.next_run()) for _ in range(2)] == [3, 3]


def test_without_batches_any_inputs_go(pool_of: Make) -> None:
    session = Session(np.negative, inputs=[("x", [])], outputs=[("y", [])])
    assert result(pool_of(session).submit({"x": np.float32(3)})) == [-3]
    with pytest.raises(webgpu_ep.BatchError, match="input 'x'"):
        pool_of(session, max_batch=2)


def test_a_full_queue_is_an_error_where_it_is_wished(pool_of: Make) -> None:
    session = held()
    pool = pool_of(session, queue_size=2, overflow="raise")
    futures = [pool.submit(rows(1))]
    session.next_run()  # it is taken, and no longer in the queue
    futures += [pool.submit(rows(k)) for k in (2, 3)]
    with pytest.raises(webgpu_ep.QueueFullError, match="2 requests wait, and the queue takes 2: submit later"):
        pool.submit(rows(4))
    assert pool.statistics().refused == 1
    session.gate.set()
    assert [first(result(it)) for it in futures] == [[1], [4], [9]]


def in_thread(function: Callable[[], Any]) -> Future[Any]:
    """What a function gives in a thread of its own."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


def blocked(pool: SessionPool, clock: Clock, submit: Callable[[], Any]) -> Future[Any]:
    """A thread that waits for room: the clock of the pool was asked to wait for no time."""
    clock.without_end.clear()
    future = in_thread(submit)
    assert clock.without_end.wait(patience.SECONDS)
    return future


def test_a_full_queue_makes_callers_wait_for_room(pool_of: Make) -> None:
    clock, session = Clock(), held()
    pool = pool_of(session, queue_size=1, _clock=clock)
    pool.submit(rows(1))
    session.next_run()
    pool.submit(rows(2))
    waits = blocked(pool, clock, lambda: pool.submit(rows(3)))
    assert not waits.done() and pool.statistics().submitted == 2
    session.gate.set()
    assert first(result(result(waits))) == [9]


def test_a_cancelled_request_makes_room_and_does_not_run(pool_of: Make) -> None:
    clock, session = Clock(), held()
    pool = pool_of(session, queue_size=1, _clock=clock)
    running = pool.submit(rows(1))
    session.next_run()
    queued = pool.submit(rows(2))
    waits = blocked(pool, clock, lambda: pool.submit(rows(3)))
    assert queued.cancel() and not running.cancel()
    later = result(waits)
    session.gate.set()
    assert (first(result(running)), first(result(later))) == ([1], [9])
    assert session.next_run()[0, 0] == 3 and session.began.empty()
    assert queued in concurrent.futures.wait([queued]).done
    pool.close()
    found = pool.statistics()
    assert (found.submitted, found.completed, found.cancelled) == (3, 2, 1)


def test_a_cancelled_request_leaves_its_batch(pool_of: Make) -> None:
    clock, session = Clock(), Session()
    pool = pool_of(session, max_batch=3, max_wait=10, _clock=clock)
    one, two = pool.submit(rows(1)), pool.submit(rows(2))
    clock.until_waiting(10)
    assert one.cancel()
    three = pool.submit(rows(3, 4))
    assert (first(result(two)), first(result(three))) == ([4], [9, 16])
    assert session.next_run()[:, 0].tolist() == [2, 3, 4]


def test_a_failing_request_fails_alone(pool_of: Make) -> None:
    session = Session(fails_on_nine)
    pool = pool_of(session, max_batch=4, max_wait=10)
    futures = [pool.submit(rows(k)) for k in (1, 9, 3, 9)]
    assert (first(result(futures[0])), first(result(futures[2]))) == ([1], [9])
    assert [str(error(futures[k])) for k in (1, 3)] == ["nine", "nine"]
    assert error(futures[1]) is not error(futures[3]), "threads raise them, which changes them"
    assert session.next_run()[:, 0].tolist() == [1, 9, 3, 9]
    found = pool.statistics()
    assert (found.completed, found.failed, found.devices[0].batches) == (2, 2, 1)


class Losing:
    """A function of a device that makes sessions. Runs of the first `times` sessions lose their device; then `refused` calls make
    no session."""

    def __init__(self, times: int, refused: int = 0) -> None:
        self.times, self.refused, self.opened = times, refused, 0

    def __call__(self, _device: object) -> Session:
        if self.opened > 0 and self.refused:
            self.refused -= 1
            raise webgpu_ep.DeviceError("no adapter")
        self.opened += 1
        return Session(self.lost if self.opened <= self.times else np.square)

    def lost(self, x: np.ndarray) -> np.ndarray:
        raise webgpu_ep.DeviceLostError(f"lost with {x[:, 0].tolist()}")


def test_a_lost_device_gets_a_new_session_and_the_batch_runs_again() -> None:
    opens = Losing(1)
    with SessionPool(opens, devices=["gpu"], max_batch=2, max_wait=10, _clock=Clock()) as pool:
        futures = [pool.submit(rows(k)) for k in (1, 2)]
        assert [first(result(it)) for it in futures] == [[1], [4]]
        assert opens.opened == 2
        assert pool.statistics().devices[0].reopened == 1


def test_the_request_that_loses_the_device_again_fails_alone() -> None:
    opened = []

    def opens(_device: object) -> Session:
        def loses_on_nine(x: np.ndarray) -> np.ndarray:
            if (x == 9).any():
                raise webgpu_ep.DeviceLostError("lost")
            return x * x

        opened.append(Session(loses_on_nine))
        return opened[-1]

    with SessionPool(opens, devices=["gpu"], max_batch=3, max_wait=10, _clock=Clock()) as pool:
        futures = [pool.submit(rows(k)) for k in (1, 9, 3)]
        assert (first(result(futures[0])), first(result(futures[2]))) == ([1], [9])
        assert isinstance(error(futures[1]), webgpu_ep.DeviceLostError)
    assert len(opened) == 1 + 2, "a new session for the batch, and one for the request alone"


def test_a_session_that_is_made_anew_frees_the_old_one_first() -> None:
    made: list[weakref.ref[Session]] = []
    losing = Losing(1)

    def opens(device: object) -> Session:
        assert not [it for it in made if it() is not None], "the memory of the old session is free"
        session = losing(device)
        made.append(weakref.ref(session))
        return session

    with SessionPool(opens, devices=["gpu"], _clock=Clock()) as pool:
        assert first(result(pool.submit(rows(3)))) == [9]
    assert len(made) == 2


def test_a_device_that_cannot_be_opened_again_leaves_its_requests_to_others() -> None:
    bad, good = Losing(1, refused=9), held()
    pool = SessionPool(lambda device: bad(device) if device == "bad" else good, devices=["bad", "good"], _clock=Clock())
    futures = [pool.submit(rows(k)) for k in range(4)]
    good.gate.set()
    assert [first(result(it)) for it in futures] == [[0], [1], [4], [9]]
    pool.submit(rows(1))
    pool.close()
    assert [(it.name, it.available, it.reopened) for it in pool.statistics().devices][1][0] == "good"


def test_without_a_device_all_requests_fail_and_say_why() -> None:
    opens = Losing(1, refused=9)
    pool = SessionPool(opens, devices=["gpu"], max_batch=2, max_wait=10, _clock=Clock())
    one, two = pool.submit(rows(1)), pool.submit(rows(2))
    for future in (one, two):
        with pytest.raises(webgpu_ep.DeviceError, match="no device of this SessionPool is left: no adapter"):
            result(future)
    with pytest.raises(webgpu_ep.PoolClosedError, match=r"takes no requests: no device .* is left: no adapter"):
        pool.submit(rows(3))
    pool.close()
    found = pool.statistics()
    assert (found.failed, found.completed, found.running, found.waiting) == (2, 0, 0, 0)
    assert not found.devices[0].available


def test_closing_runs_what_waits(pool_of: Make) -> None:
    session = held()
    pool = pool_of(session, max_batch=2, max_wait=10)
    futures = [pool.submit(rows(k)) for k in (1, 2, 3)]
    session.next_run()
    closing = in_thread(pool.close)
    session.gate.set()
    result(closing)
    assert [first(it.result()) for it in futures if it.done()] == [[1], [4], [9]]
    with pytest.raises(webgpu_ep.PoolClosedError, match="takes no requests: it was closed"):
        pool.submit(rows(4))
    pool.close()


def test_closing_ends_those_who_wait_for_room(pool_of: Make) -> None:
    clock, session = Clock(), held()
    pool = pool_of(session, queue_size=1, _clock=clock)
    pool.submit(rows(1))
    session.next_run()
    pool.submit(rows(2))
    waits = blocked(pool, clock, lambda: pool.submit(rows(3)))
    closing = in_thread(pool.close)
    assert isinstance(error(waits), webgpu_ep.PoolClosedError)
    session.gate.set()
    result(closing)


def test_a_with_that_an_error_leaves_cancels_what_waits() -> None:
    session = held()
    with (
        pytest.raises(ZeroDivisionError),
        SessionPool(lambda _: session, devices=["gpu"], _clock=Clock()) as pool,
    ):
        running = pool.submit(rows(1))
        session.next_run()
        queued = pool.submit(rows(2))
        queued.add_done_callback(lambda _: session.gate.set())
        raise ZeroDivisionError
    assert first(running.result()) == [1]
    assert queued.cancelled()


def test_closing_with_cancel_cancels_what_waits(pool_of: Make) -> None:
    session = held()
    pool = pool_of(session)
    running = pool.submit(rows(1))
    session.next_run()
    queued = [pool.submit(rows(k)) for k in (2, 3)]
    closing = in_thread(lambda: pool.close(cancel=True))
    assert concurrent.futures.wait(queued, patience.SECONDS).done == set(queued)
    assert all(it.cancelled() for it in queued)
    assert not closing.done(), "it waits for the run"
    session.gate.set()
    result(closing)
    assert first(running.result()) == [1]


def test_a_pool_may_be_closed_by_the_callback_of_a_future(pool_of: Make) -> None:
    session, closed = held(), threading.Event()
    pool = pool_of(session)
    future = pool.submit(rows(1))
    future.add_done_callback(lambda _: (pool.close(), closed.set()))
    session.gate.set()
    assert closed.wait(patience.SECONDS)


def test_a_pool_that_is_forgotten_ends_its_threads() -> None:
    session = Session()
    pool = SessionPool(lambda _: session, devices=["gpu"])
    future = pool.submit(rows(3))
    (thread,) = (it.thread for it in pool._workers)
    del pool
    gc.collect()
    assert first(result(future)) == [9]
    thread.join(patience.SECONDS)
    assert not thread.is_alive()


def test_an_idle_pool_keeps_no_arrays() -> None:
    session = Session()
    session.began = None  # type: ignore[assignment]
    session.run = lambda _, feeds: [feeds["x"] * 2]  # type: ignore[method-assign]
    with SessionPool(lambda _: session, devices=["gpu"], max_batch=2, _clock=Clock()) as pool:
        feeds = rows(1)
        seen = weakref.ref(feeds["x"])
        assert first(result(pool.submit(feeds))) == [2]
        del feeds
        assert first(result(pool.submit(rows(2)))) == [4]
        gc.collect()
        assert seen() is None


def test_statistics_add_up(pool_of: Make) -> None:
    clock, session = Clock(), held()
    pool = pool_of(session, max_batch=2, max_wait=10, _clock=clock)
    assert pool.statistics() == PoolStatistics(0, 0, 0, 0, 0, 0, 0, 0.0, pool.statistics().devices)
    assert pool.statistics().rows_per_batch == 0
    futures = [pool.submit(rows(1)), pool.submit(rows(2)), pool.submit(rows(3, 4, 5))]
    session.next_run()
    found = pool.statistics()
    assert (found.submitted, found.waiting, found.running) == (3, 1, 2)
    clock.advance(7)
    session.gate.set()
    for future in futures:
        result(future)
    found = pool.statistics()
    assert (found.waiting, found.running, found.completed) == (0, 0, 3)
    assert found.waited_seconds == 7, "the last one waited for the run before"
    (device,) = found.devices
    assert (device.batches, device.requests, device.rows, device.busy_seconds) == (2, 3, 5, 7)
    assert found.rows_per_batch == 2.5


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_batch": 0}, "max_batch: 0 is not an integer of at least 1"),
        ({"max_batch": True}, "max_batch: True"),
        ({"queue_size": 2.5}, "queue_size: 2.5 is not an integer"),
        ({"max_wait": -1}, "max_wait: -1 is not a number of seconds from 0 on"),
        ({"max_wait": float("inf")}, "max_wait: inf"),
        ({"max_wait": float("nan")}, "max_wait: nan"),
        ({"overflow": "drop"}, "overflow: 'drop' is not valid; valid: 'block', 'raise'"),
        ({"devices": []}, "devices: an empty list"),
        ({"validationMode": "full"}, "validationMode: the function that makes sessions must set their options"),
        ({"free_dimensions": {"N": 1}}, "free_dimensions: the function"),
        ({"allow_cpu_only": True}, "allow_cpu_only: the function"),
    ],
)
def test_wrong_arguments_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(webgpu_ep.OptionError, match=message):
        SessionPool(lambda _: Session(), **({"devices": ["gpu"]} | wrong))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_is_told_that_it_has_no_threads() -> None:
    script = """
import os
from onnxruntime_ep_wgpu.scale import SessionPool
from tests.scale.made_up import Session, rows
pool = SessionPool(lambda _: Session(), devices=["gpu"])
child = os.fork()
if not child:
    try:
        pool.submit(rows(1))
    except Exception as error:
        print(type(error).__name__, flush=True)
    raise SystemExit
os.waitpid(child, 0)
print(pool.run(rows(3))[0][0, 0])
"""
    done = patience.run([sys.executable, "-W", "ignore", "-c", script], env=patience.here(), check=True)
    assert done.stdout.split() == ["ForkError", "9.0"]


def test_whatever_threads_do_every_request_ends() -> None:
    """Four threads submit, cancel and map; sessions fail, and lose their devices; one thread closes the pool in the middle."""
    counts = itertools.count(1)

    def moody(x: np.ndarray) -> np.ndarray:
        if not next(counts) % 17:
            raise webgpu_ep.DeviceLostError("lost")
        return fails_on_nine(x)

    pool = SessionPool(lambda _: Session(moody), devices=range(3), max_batch=5, max_wait=0.0005, queue_size=7)
    futures: list[Future[list[Any]]] = []

    def work(seed: int) -> int:
        draw, mine = random.Random(seed), 0
        for k in range(150):
            try:
                future = pool.submit(rows(*(draw.randrange(12) for _ in range(draw.randrange(4)))))
            except webgpu_ep.PoolClosedError:
                break
            futures.append(future)
            mine += 1
            if draw.random() < 0.2:
                future.cancel()
            if seed == 0 and k == 100:
                pool.close(cancel=True)
        return mine

    threads = [in_thread(lambda seed=seed: work(seed)) for seed in range(4)]
    submitted = sum(result(it) for it in threads)
    pool.close()
    assert all(it.done() for it in futures) and len(futures) == submitted
    found = pool.statistics()
    assert found.submitted == submitted == found.completed + found.failed + found.cancelled
    assert (found.waiting, found.running) == (0, 0)
    assert found.cancelled == sum(it.cancelled() for it in futures)
    failed = [it.exception() for it in futures if not it.cancelled() and it.exception() is not None]
    assert found.failed == len(failed) and all(isinstance(it, ValueError | webgpu_ep.DeviceError) for it in failed)
