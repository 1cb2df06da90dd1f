"""Runs that are the same as before are repeated by C code: they are, and results are right whatever changes in between."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import trace
from onnxruntime_ep_wgpu.device import release_dead
from onnxruntime_ep_wgpu.plugin import memo
from onnxruntime_ep_wgpu.plugin.callbacks import held
from onnxruntime_ep_wgpu.plugin.memory import pool
from onnxruntime_ep_wgpu.plugin.node import ComputeInfo
from onnxruntime_ep_wgpu.runtime.runs.key import REMEMBERED_RUNS
from tests import patience

from . import models
from .loss import device_of, lose

ROOT = Path(__file__).resolve().parents[2]
RANDOM = np.random.default_rng(8)


def on_device(array: np.ndarray) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy(array, "webgpu", 0)


def hits() -> int:
    """Runs that have been repeated, of all compiled nodes that there are."""
    return sum(it.memos.hits for it in list(held.values()) if isinstance(it, ComputeInfo) and it.memos is not None)


def made_by(session: Any, array: np.ndarray) -> ort.OrtValue:
    """A tensor on the device of the session, which its output y is for the input x."""
    binding = session.io_binding()
    binding.bind_cpu_input("x", array)
    binding.bind_output("y", "webgpu", 0)
    session.run_with_iobinding(binding)
    return binding.get_outputs()[0]


class Bound:
    """A session's input x and output y as tensors that stay."""

    def __init__(self, session: Any, rows: int, x: ort.OrtValue | None = None, y: ort.OrtValue | None = None) -> None:
        self.session = session
        self.array = RANDOM.standard_normal((rows, 8), np.float32)
        self.x = x or on_device(self.array)
        self.y = y or on_device(np.zeros_like(self.array))
        self.binding = session.io_binding()
        self.binding.bind_ortvalue_input("x", self.x)
        self.binding.bind_ortvalue_output("y", self.y)

    def put(self, array: np.ndarray) -> None:
        self.array = array
        self.x.update_inplace(array)

    def run(self, expected: Callable[[np.ndarray], np.ndarray] = models.chain_reference) -> None:
        self.session.run_with_iobinding(self.binding)
        np.testing.assert_allclose(self.y.numpy(), expected(self.array), rtol=1e-4, atol=1e-4)


def repeats(run: Callable[[], object], times: int = 6) -> int:
    """How many of `times` runs were repeated by C code."""
    before = hits()
    for _ in range(times):
        run()
    return hits() - before


@pytest.fixture
def session() -> Any:
    return webgpu_ep.session(models.chain())


def test_a_run_with_the_same_tensors_is_repeated_with_what_they_hold_then(session: Any) -> None:
    bound = Bound(session, 5)
    assert repeats(bound.run) >= 3
    for _ in range(3):
        bound.put(RANDOM.standard_normal((5, 8), np.float32))
        assert repeats(bound.run, 2) == 2
    device = device_of(0)
    before = device.counters
    assert repeats(bound.run, 2) == 2
    after = device.counters
    assert after["submits"] - before["submits"] == 2
    assert after["dispatches"] - before["dispatches"] == 2 * 2
    assert after["bind_groups"] == before["bind_groups"]


def test_a_session_of_onnx_runtime_itself_repeats_too(open_session: Any) -> None:
    assert repeats(Bound(open_session(models.chain()), 4).run) >= 3


def test_several_nodes_and_shapes_are_repeated_in_turns() -> None:
    session = webgpu_ep.session(models.chain())
    bound = [Bound(session, rows) for rows in (1, 7, 30, 7)]

    def all_of_them() -> None:
        for it in bound:
            it.run()

    for _ in range(3):
        all_of_them()
    assert repeats(all_of_them, 3) == 3 * len(bound)
    x = RANDOM.standard_normal((9, 8), np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], models.chain_reference(x), rtol=1e-4, atol=1e-4)
    assert repeats(all_of_them, 1) >= len(bound) - 1  # a plan may have lost its buffers to the other shape


def test_one_input_with_other_outputs_and_the_other_way_round(session: Any) -> None:
    first = Bound(session, 6)
    second = Bound(session, 6, x=first.x)
    third = Bound(session, 6, y=first.y)
    second.array = first.array
    for it in [first, second, third] * 6:
        it.run()
    assert repeats(lambda: [it.run() for it in (first, second, third)], 2) == 6


def test_more_tensors_than_are_remembered_are_right_and_remembered_again_when_there_are_fewer(session: Any) -> None:
    bound = [Bound(session, 3) for _ in range(REMEMBERED_RUNS + 5)]
    for it in bound * 4:
        it.run()
    few = bound[:2]
    for it in few * (memo.MOST_PASSED_OVER // 8):
        it.session.run_with_iobinding(it.binding)
    assert repeats(lambda: [it.run() for it in few], 2) == 4


def test_tensors_at_the_addresses_of_others_are_not_taken_for_them(session: Any) -> None:
    addresses: list[int] = []
    while len(set(addresses)) == len(addresses):
        assert len(addresses) < 1000, "no address came again"
        bound = Bound(session, 5)
        addresses.append(bound.x.data_ptr())
        for _ in range(4):
            bound.run()
        del bound


def test_memory_of_tensors_is_not_kept() -> None:
    session = webgpu_ep.session(models.square("N", 1024), deviceId=41, storageBufferCacheMode="disabled")
    device = device_of(41)
    x = RANDOM.standard_normal((64, 1024), np.float32)
    session.run(None, {"x": x})
    gc.collect()
    release_dead()
    before = device.counters["buffer_bytes"]
    for _ in range(3):
        binding = session.io_binding()
        given, made = made_by(session, x), made_by(session, x)
        binding.bind_ortvalue_input("x", given)
        binding.bind_ortvalue_output("y", made)
        assert repeats(lambda binding=binding: session.run_with_iobinding(binding)) >= 3  # type: ignore[misc]
        np.testing.assert_allclose(made.numpy(), x**4, rtol=1e-5)
        del binding, given, made
        gc.collect()
        release_dead()
    assert device.counters["buffer_bytes"] <= before


def test_an_input_that_sets_a_shape_is_looked_at_in_every_run() -> None:
    node = models.node
    model = models.model(
        [node("Reshape", ["x", "target"], ["r"], "reshape"), node("Mul", ["r", "r"], ["y"], "mul")],
        [("x", models.FLOAT, [12]), ("target", models.INT64, [2])],
        [("y", models.FLOAT, ["a", "b"])],
    )
    session = webgpu_ep.session(model)
    x, target = RANDOM.standard_normal(12, np.float32), np.array([3, 4], np.int64)
    binding, shape = session.io_binding(), on_device(target)
    results = {(a, 12 // a): on_device(np.zeros((a, 12 // a), np.float32)) for a in (1, 2, 3, 4)}
    binding.bind_ortvalue_input("x", on_device(x))
    binding.bind_ortvalue_input("target", shape)

    def run(dims: tuple[int, int]) -> None:
        binding.bind_ortvalue_output("y", results[dims])
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(results[dims].numpy(), (x * x).reshape(dims))

    for dims in (3, 4), (2, 6), (3, 4), (1, 12):
        shape.update_inplace(np.array(dims, np.int64))
        assert repeats(lambda dims=dims: run(dims)) >= 3  # type: ignore[misc]


def test_a_host_copy_of_an_output_is_forgotten_whenever_it_is_written(session: Any) -> None:
    bound = Bound(session, 4)
    for _ in range(6):
        bound.run()
    for _ in range(3):
        bound.y.update_inplace(np.full((4, 8), 7, np.float32))
        bound.run()
    assert repeats(bound.run) >= 3


def test_a_cache_is_updated_in_place(session: Any) -> None:
    """An input and an output that are one tensor: each run reads what the one before has written."""
    square = webgpu_ep.session(models.square())
    x = np.full((3, 8), 1.01, np.float32)
    value = on_device(x)
    binding = square.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_ortvalue_output("y", value)
    for _ in range(5):
        square.run_with_iobinding(binding)
        x = x * x
        np.testing.assert_allclose(value.numpy(), x, rtol=1e-4)
    before = hits()
    for _ in range(3):
        square.run_with_iobinding(binding)
        x = x * x
        np.testing.assert_allclose(value.numpy(), x, rtol=1e-4)
    assert hits() == before + 3, "a run that copies its input first is repeated too"


def test_who_listens_hears_runs_that_were_repeated_before(session: Any) -> None:
    bound = Bound(session, 5)
    assert repeats(bound.run) >= 3
    for _ in range(2):
        recorder = trace.Recorder()
        with recorder.listening():
            assert repeats(bound.run, 2) == 0
        kinds = [it.kind for it in recorder.finish()]
        assert kinds.count("submit") == 2
        assert repeats(bound.run, 2) == 2


def test_a_thread_is_repeated_while_another_one_is_listened_on(session: Any) -> None:
    bound = Bound(session, 5)
    repeats(bound.run)
    counts: list[int] = []
    recorder = trace.Recorder()
    with recorder.listening():
        thread = threading.Thread(target=lambda: counts.append(repeats(bound.run, 2)))
        thread.start()
        thread.join()
    assert counts == [2]


EVERY_RUN: list[dict[str, Any]] = [
    {"validationMode": "full"}, {"storageBufferCacheMode": "lazyRelease", "deviceId": 43},
]  # fmt: skip


@pytest.mark.parametrize("options", EVERY_RUN)
def test_sessions_that_do_something_in_every_run_do_it(options: dict[str, Any]) -> None:
    session = webgpu_ep.session(models.square(), **options)
    ones = np.ones((4, 8), np.float32)
    x, y = (made_by(session, ones) if "deviceId" in options else on_device(ones) for _ in range(2))
    bound = Bound(session, 4, x, y)
    assert repeats(lambda: session.run_with_iobinding(bound.binding)) == 0
    np.testing.assert_array_equal(y.numpy(), 1)


@pytest.mark.costly
@pytest.mark.parametrize("generations", [0, 1])
def test_other_shapes_take_no_memory_from_runs_that_are_repeated(generations: int) -> None:
    session = webgpu_ep.session(models.slow(4, 8), sessionBufferPoolGenerations=generations)
    bound, same = Bound(session, 3), lambda x: x
    for rows in [3, 500, 2, 1, 700, 4] * 3:
        repeats(lambda: bound.run(same), 4)
        x = RANDOM.standard_normal((rows, 8), np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)
    # Without generations a run gives its intermediate buffers back, and there is nothing to repeat.
    assert repeats(lambda: bound.run(same)) >= 3 * generations


def losses(number: int) -> Iterator[None]:
    """Three times, on the device of this number: runs that are repeated, its loss, and the run that tells of it."""
    session = webgpu_ep.session(models.chain(), deviceId=number)
    array = np.ones((3, 8), np.float32)
    for _ in range(3):
        bound = Bound(session, 3, made_by(session, array), made_by(session, array))
        bound.array = models.chain_reference(array)
        assert repeats(bound.run) >= 3
        lose(device_of(number))
        with pytest.raises(webgpu_ep.DeviceLostError):
            session.run_with_iobinding(bound.binding)
        yield


def test_a_lost_device_is_an_error_and_runs_are_repeated_on_the_next_one() -> None:
    assert len(list(losses(42))) == 3


def test_threads_repeat_runs_of_one_session_at_once(session: Any) -> None:
    wrong: list[BaseException] = []
    bound = [Bound(session, 1 + k % 3) for k in range(8)]

    def work(it: Bound) -> None:
        try:
            for k in range(25):
                if k % 10 == 9:
                    it.put(RANDOM.standard_normal(it.array.shape).astype(np.float32))
                it.run()
        except BaseException as error:
            wrong.append(error)

    before = hits()
    threads = [threading.Thread(target=work, args=(it,)) for it in bound]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    assert hits() - before > 50


def test_what_onnx_runtime_allocates_for_a_run_is_noted_where_it_stays_however_many_threads_run() -> None:
    """Small tensors come again in the next run; those above `pool.MOST_BYTES` do not."""
    before = set(held)
    session = webgpu_ep.session(models.chain())
    (node,) = (it for key, it in list(held.items()) if isinstance(it, ComputeInfo) and key not in before)
    most = pool.MOST_BYTES // (8 * 4)

    def work(sizes: Sequence[int]) -> None:
        for rows in sizes:
            x = np.ones((rows, 8), np.float32)
            np.testing.assert_allclose(session.run(None, {"x": x})[0], models.chain_reference(x), rtol=1e-4, atol=1e-4)

    assert node.memos is not None
    for sizes, noted in (([most + k for k in (3, 5, 3, 5, 5)], False), ([3, 5, 3, 5, 5] * 6, True)):
        with ThreadPoolExecutor(4) as executor:
            list(executor.map(work, [sizes] * 4))
        assert (node.memos.live_memos > 0) == noted


def test_threads_lose_and_regain_memos_at_once(session: Any) -> None:
    """Tensors come and go, shapes change, and others are repeated meanwhile."""
    wrong: list[BaseException] = []
    stays = [Bound(session, 2), Bound(session, 40)]
    done = threading.Event()

    def comes_and_goes(rows: Sequence[int]) -> None:
        try:
            for k in range(15):
                it = Bound(session, rows[k % len(rows)])
                for _ in range(4):
                    it.run()
        except BaseException as error:
            wrong.append(error)
        finally:
            done.set()

    def repeated(it: Bound) -> None:
        try:
            while not done.is_set():
                it.run()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=repeated, args=(it,)) for it in stays]
    threads += [threading.Thread(target=comes_and_goes, args=(rows,)) for rows in ((1, 100), (3, 2, 60))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


FORKED = """
import multiprocessing, sys
import numpy as np, onnxruntime_ep_wgpu as webgpu_ep
from tests.plugin import models
from tests.plugin.test_memo import Bound, hits
session = webgpu_ep.session(models.chain())
bound = Bound(session, 3)
for _ in range(6): bound.run()
assert hits() >= 3
def child():
    try:
        session.run_with_iobinding(bound.binding)
    except webgpu_ep.ForkError:
        sys.exit(0)
    sys.exit(1)
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
print(process.exitcode)
before = hits()
bound.run()
assert hits() == before + 1
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_process_repeats_nothing() -> None:
    command = [sys.executable, "-c", FORKED]
    done = patience.run(command, env=patience.here(), cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
