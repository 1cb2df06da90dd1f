"""What a thread records while it waits for the GPU is what the next run submits: never older than the tensors, and kept no longer
than they are."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import numpy as np
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device import release_dead
from tests import patience

from . import models
from .loss import device_of
from .test_memo import RANDOM, Bound, hits, losses, made_by, repeats


def ahead(number: int = 0) -> int:
    """Runs of a device that submitted what had been recorded ahead."""
    return int(device_of(number).queue.shared.runs_ahead)


@pytest.fixture
def session() -> Any:
    return webgpu_ep.session(models.chain())


def test_runs_behind_a_readback_were_recorded_meanwhile_and_see_what_tensors_hold_now(session: Any) -> None:
    bound = Bound(session, 6)
    assert repeats(bound.run) >= 3
    for _ in range(5):
        before = ahead()
        bound.put(RANDOM.standard_normal((6, 8), np.float32))
        bound.run()
        assert ahead() == before + 1


def test_runs_without_a_readback_between_them_are_each_recorded(session: Any) -> None:
    bound = Bound(session, 6)
    assert repeats(bound.run) >= 3
    before, device = ahead(), device_of(0)
    submits = device.counters["submits"]
    for _ in range(4):
        session.run_with_iobinding(bound.binding)
    assert ahead() == before + 1
    assert device.counters["submits"] == submits + 4
    bound.run()


def test_tensors_that_were_exchanged_are_the_ones_that_the_next_run_has(session: Any) -> None:
    bound, other = Bound(session, 6), Bound(session, 6)
    for it in (bound, other) * 4:
        it.run()
    bound.binding.bind_ortvalue_input("x", other.x)
    bound.array = other.array
    bound.run()
    np.testing.assert_allclose(bound.y.numpy(), other.y.numpy())


def test_a_cache_in_place_advances_once_per_run(session: Any) -> None:
    """What is recorded ahead runs when it is submitted, and not before."""
    cell = webgpu_ep.session(models.square("N", 8))
    x = made_by(cell, np.full((2, 8), 1.01, np.float32))
    y = made_by(cell, np.zeros((2, 8), np.float32))
    there, back = Bound(cell, 2, x, y), Bound(cell, 2, y, x)
    expected = x.numpy()
    for _ in range(3):
        for it in (there, back):
            cell.run_with_iobinding(it.binding)
            expected = expected**2
            np.testing.assert_allclose(it.y.numpy(), expected, rtol=1e-4)


def test_what_was_recorded_keeps_no_memory_of_tensors_or_sessions() -> None:
    device = None
    for _ in range(3):
        session = webgpu_ep.session(models.chain(), deviceId=44, storageBufferCacheMode="disabled")
        device = device_of(44)
        gc.collect()
        release_dead()
        before = device.counters["buffer_bytes"]
        x = RANDOM.standard_normal((500, 8)).astype(np.float32)
        bound = Bound(session, 500, made_by(session, x), made_by(session, x))
        bound.array = bound.x.numpy()
        assert repeats(bound.run) >= 3
        taken = ahead(44)
        bound.run()
        assert ahead(44) == taken + 1
        del bound
        gc.collect()
        release_dead()
        assert device.counters["buffer_bytes"] <= before + (1 << 16)  # of the plan, which stays with the session
        del session
        gc.collect()
    release_dead()
    assert device is not None
    assert device.counters["buffer_bytes"] <= 1 << 14  # a readback's


def test_a_lost_device_gets_nothing_of_it() -> None:
    for _ in losses(45):
        device_of(45).queue.run_deferred()  # there is nothing left to record for


def test_two_threads_that_wait_for_the_same_run_record_the_next_one_once(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoder that is finished twice ends the process."""
    bound, queue = Bound(session, 6), device_of(0).queue
    assert repeats(bound.run) >= 3
    session.run_with_iobinding(bound.binding)  # takes what has been recorded
    running = queue.works.get(queue.shared.last[queue.shared.runs % len(queue.shared.last)])
    made, own, there, lock = [], queue.owner.own_address, threading.Event(), running._lock

    class Watched:
        """The lock under which it is recorded, which tells when the second thread comes to it."""

        def __enter__(self) -> None:
            if lock.locked():
                there.set()
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    def also() -> None:
        running.record_ahead()
        there.set()

    other = threading.Thread(target=also)

    def recorded(*arguments: Any) -> Any:
        made.append(1)
        if len(made) == 1:
            other.start()
            assert there.wait(patience.SECONDS)
        return own(*arguments)

    monkeypatch.setattr(queue.owner, "own_address", recorded)
    running._lock = Watched()
    running.record_ahead()
    other.join()
    running._lock = lock
    assert len(made) == 1
    bound.run()
    bound.run()


def test_threads_that_wait_record_for_each_other(session: Any) -> None:
    """Each run submits what was recorded once, whoever recorded it."""
    wrong: list[BaseException] = []
    shared = [Bound(session, 1 + k) for k in range(3)]

    def work(number: int) -> None:
        try:
            own = Bound(session, 10 + number)
            for k in range(30):
                it = shared[k % 3]
                it.run()
                own.put(RANDOM.standard_normal(own.array.shape).astype(np.float32))
                own.run()
        except BaseException as error:
            wrong.append(error)

    before, taken = hits(), ahead()
    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    assert hits() - before > 100
    assert 0 < ahead() - taken <= hits() - before


LOCKED = """
import _imp
import numpy as np
import onnxruntime_ep_wgpu as webgpu_ep
from tests.plugin import models
_imp.acquire_lock()
x = np.ones((2, 8), np.float32)
for _ in range(2):
    assert webgpu_ep.session(models.square()).run(None, {"x": x})[0].shape == x.shape
"""


def test_a_lock_of_imports_that_an_interrupt_left_taken_stops_no_session() -> None:
    """From the first look at adapters on."""
    patience.run([sys.executable, "-c", LOCKED], env=patience.here(), cwd=patience.ROOT, check=True)
