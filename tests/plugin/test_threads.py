"""Threads and sessions in any combination: right results, no deadlock, no crash; memory stays flat over many sessions."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import trace
from onnxruntime_ep_wgpu.device.readback import Reader
from tests import patience

from . import models
from .loss import device_of

ROOT = Path(__file__).resolve().parents[2]
X = np.random.default_rng(3).standard_normal((5, 8), np.float32)
# A model, and what it gives.
MODELS: list[tuple[Callable[[], bytes], Callable[[np.ndarray], np.ndarray]]] = [
    (models.square, lambda x: x * x),
    (models.chain, models.chain_reference),
    (models.mixed, models.mixed_reference),
    (models.crossing, models.crossing_reference),
]


def check(session: Any, number: int, rows: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 8), np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], MODELS[number % 4][1](x), rtol=1e-4, atol=1e-4)


def in_threads(count: int, work: Callable[[int], Any]) -> None:
    """Starts `work(0)` to `work(count - 1)` at the same moment; raises what one of them raised, or when one hangs."""
    together = threading.Barrier(count)

    def begin(number: int) -> None:
        together.wait(patience.SECONDS)
        work(number)

    with ThreadPoolExecutor(count) as pool:
        for job in [pool.submit(begin, number) for number in range(count)]:
            job.result(patience.SECONDS)


def test_eight_threads_run_one_session() -> None:
    session = webgpu_ep.session(models.mixed(), deviceId=61)
    in_threads(8, lambda number: [check(session, 2, 1 + (number + k) % 7) for k in range(12)])


def test_eight_sessions_run_in_eight_threads() -> None:
    sessions = [webgpu_ep.session(MODELS[number % 4][0](), deviceId=61) for number in range(8)]
    in_threads(8, lambda number: [check(sessions[number], number, 1 + k % 5) for k in range(12)])


def test_eight_sessions_are_made_run_and_dropped_in_eight_threads() -> None:
    def work(number: int) -> None:
        for k in range(3):
            session = webgpu_ep.session(MODELS[(number + k) % 4][0](), deviceId=61)
            check(session, number + k, 1 + k)
            del session

    in_threads(8, work)


def test_sessions_come_and_go_while_others_run() -> None:
    kept = [webgpu_ep.session(MODELS[number][0](), deviceId=61) for number in range(4)]
    done: list[int] = []  # threads that made all their sessions
    runs = [0] * 4

    def work(number: int) -> None:
        if number < 4:
            while len(done) < 4:
                check(kept[number], number, 1 + runs[number] % 6)
                runs[number] += 1
            return
        try:
            for k in range(6):
                check(webgpu_ep.session(MODELS[k % 4][0](), deviceId=61), k, 3)
        finally:
            done.append(number)

    in_threads(8, work)
    assert all(runs)


def test_asynchronous_runs_of_several_sessions_are_all_right() -> None:
    sessions = [webgpu_ep.session(MODELS[number][0](), deviceId=61) for number in range(4)]
    answers: dict[tuple[int, int], Any] = {}
    everything = threading.Event()

    def finished(outputs: Any, place: tuple[int, int], error: str) -> None:
        answers[place] = (outputs, error)
        if len(answers) == 40:
            everything.set()

    for k in range(10):
        for number, session in enumerate(sessions):
            session.run_async(None, {"x": X[: 1 + k % 5]}, finished, (number, k))
    assert everything.wait(patience.SECONDS)
    for (number, k), (outputs, error) in answers.items():
        assert error == ""
        np.testing.assert_allclose(outputs[0], MODELS[number][1](X[: 1 + k % 5]), rtol=1e-4, atol=1e-4)


def test_the_cpu_work_of_a_session_goes_on_while_another_waits_for_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """One queue per device orders GPU work; making plans, encoding and submitting need not wait for a result."""
    waiting, other = webgpu_ep.session(models.square(), deviceId=62), webgpu_ep.session(models.chain(), deviceId=62)
    check(waiting, 0, 2)
    entered, leave = threading.Event(), threading.Event()
    finish, held = Reader._finish, threading.local()

    def slow(self: Reader, *arguments: Any) -> None:
        if getattr(held, "here", False):
            entered.set()
            assert leave.wait(patience.SECONDS)
        finish(self, *arguments)

    monkeypatch.setattr(Reader, "_finish", slow)

    def work() -> None:
        held.here = True
        with trace.Recorder().listening():  # then Python reads
            check(waiting, 0, 4)

    thread = threading.Thread(target=work)
    thread.start()
    assert entered.wait(patience.SECONDS)
    submits = device_of(62).counters["submits"]
    for rows in range(1, 4):  # three plans, encoded, submitted and read back
        check(other, 1, rows)
    check(webgpu_ep.session(models.mixed(), deviceId=62), 2, 3)
    assert thread.is_alive()
    assert device_of(62).counters["submits"] >= submits + 4
    leave.set()
    thread.join()


def test_unregistering_while_sessions_run_harms_none() -> None:
    """In a process of its own: what is registered is the process's."""
    program = """
import threading, numpy as np, onnxruntime as ort, onnxruntime_ep_wgpu as webgpu_ep
from tests.plugin import models
sessions = [webgpu_ep.session(models.chain()) for _ in range(4)]
x = np.ones((3, 8), np.float32)
running, failures = threading.Barrier(5), []
def work(session):
    try:
        for k in range(30):
            if k == 2: running.wait()
            np.testing.assert_allclose(session.run(None, {"x": x})[0], models.chain_reference(x), rtol=1e-4, atol=1e-4)
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=work, args=(it,)) for it in sessions]
for thread in threads: thread.start()
running.wait()
ort.unregister_execution_provider_library("onnxruntime_ep_wgpu")
for thread in threads: thread.join()
print(failures)
del sessions, thread, threads
webgpu_ep.session(models.chain()).run(None, {"x": x})
"""
    done = patience.run([sys.executable, "-c", program], cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


MANY = """
import gc, sys, numpy as np, onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.plugin import callbacks, watch
from onnxruntime_ep_wgpu.plugin.memory import space as memory
from tests.plugin import models
from tests.plugin.loss import device_of
x = np.ones((2, 8), np.float32)
kept = webgpu_ep.session(models.square())  # so that the device stays
def state():
    gc.collect()
    resident = int(open("/proc/self/statm").read().split()[1]) * 4096
    counters = device_of(0).counters
    held = len(callbacks.held)
    return resident, (counters["buffers"], counters["buffer_bytes"], held, len(watch.live()), memory.space().bytes_in_use)
def make(count):
    for k in range(count):
        model = (models.square, models.chain)[k % 2]()
        session = webgpu_ep.session(model)
        session.run(None, {"x": x})
        del session
make(50)
resident, objects = state()
make(int(sys.argv[1]))
more, left = state()
print(more - resident, objects == left, objects, left)
"""


def many_sessions(count: int) -> int:
    """Makes, runs and drops sessions, half of them with weights; the bytes that the process grew by."""
    done = patience.run([sys.executable, "-c", MANY, str(count)], check=True, cwd=ROOT)
    grown, same, *objects = done.stdout.split(maxsplit=2)
    assert same == "True", objects
    return int(grown)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_many_sessions_leave_nothing_behind() -> None:
    assert many_sessions(60) < 6 << 20


@pytest.mark.exhaustive
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_ten_thousand_sessions_leave_nothing_behind() -> None:
    assert many_sessions(10_000) < 12 << 20
