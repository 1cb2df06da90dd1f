"""Captured runs are released, bounded in number, and belong to no thread."""

from __future__ import annotations

import gc
import queue
import threading
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device import adapters, open_device
from onnxruntime_ep_wgpu.plugin import captures as capture
from onnxruntime_ep_wgpu.plugin.abi import Logger
from tests import patience

from . import models
from .capturing import OWN, Bound, X, captured, close, needs_release, under
from .test_memo import hits


@needs_release
def test_a_released_id_takes_another_binding() -> None:
    session = captured()
    first, second = Bound(session, X), Bound(session, X[:3])
    for _ in range(2):
        close(first.run(7), X)
        session.release_captured_graph(7)
        close(second.run(7), X[:3])
        session.release_captured_graph(7)
    session.release_captured_graph(99)
    close(first.run(7), X)


@pytest.mark.costly
@needs_release
@pytest.mark.parametrize("seed", range(3))
def test_runs_of_captured_graphs_are_repeated_in_c_whatever_is_run_between_them(seed: int) -> None:
    """Random runs under three ids and under none, with tensors that stay, and releases. A table says what has to be refused."""
    session, random = captured(), np.random.default_rng(seed)
    bound = [Bound(session, random.standard_normal((rows, 8)).astype(np.float32)) for rows in (3, 3, 5)]
    arrays = [it.x.numpy() for it in bound]
    graphs: dict[int, int] = {}  # which binding has been captured under an id
    before, wanted, refused = hits(), 0, 0
    for _ in range(250):
        which, graph_id = int(random.integers(3)), int(random.choice([-1, 0, 1, 2]))
        if random.random() < 0.04:
            session.release_captured_graph(graph_id)
            graphs.pop(graph_id, None)
            continue
        if random.random() < 0.2:
            arrays[which] = random.standard_normal(arrays[which].shape).astype(np.float32)
            bound[which].x.update_inplace(arrays[which])
        if graph_id >= 0 and graphs.setdefault(graph_id, which) != which:
            with pytest.raises(Exception, match=f"graph {graph_id} does not fit this run"):
                bound[which].run(graph_id)
            refused += 1
        else:
            close(bound[which].run(graph_id), arrays[which])
            wanted += 1
    assert refused > 20
    assert hits() - before > wanted // 3


def test_a_captured_run_makes_nothing_and_needs_no_python_after_some_runs() -> None:
    bound = Bound(captured(), X)
    for _ in range(4):
        close(bound.run(5), X)
    before = hits()
    for k in range(3):
        bound.x.update_inplace(X * k)
        close(bound.run(5), X * k)
    assert hits() == before + 3


@needs_release
def test_releasing_gives_the_memory_back() -> None:
    session, device = captured(models.square(), deviceId=OWN), open_device(adapters()[0], OWN)
    x = np.ones((4000, 8), np.float32)
    session.run(None, {"x": x}, under(1))
    session.run(None, {"x": x}, under(-1))
    gc.collect()
    before = device.counters["buffer_bytes"]
    session.run(None, {"x": x}, under(2))
    assert device.counters["buffer_bytes"] >= before + 2 * x.nbytes
    session.release_captured_graph(2)
    session.run(None, {"x": x}, under(1))
    assert device.counters["buffer_bytes"] == before


def test_the_end_of_a_session_gives_everything_back_at_once() -> None:
    device, x = open_device(adapters()[0], OWN), np.ones((3000, 8), np.float32)

    def use() -> int:
        session = captured(models.square(), deviceId=OWN)
        for graph_id in range(5):
            session.run(None, {"x": x}, under(graph_id))
        return device.counters["buffer_bytes"]

    use()  # fills the pool that tensors come from
    gc.collect()
    before = device.counters["buffer_bytes"]
    gc.disable()
    try:
        during = use()
    finally:
        gc.enable()
    device.wait()
    assert during >= before + 10 * x.nbytes
    assert device.counters["buffer_bytes"] <= before + x.nbytes


def test_ids_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "MAX_GRAPHS", 2)
    session = captured()
    for graph_id in (10, 20, 10):
        session.run(None, {"x": X}, under(graph_id))
    with pytest.raises(Exception, match=r"graph 30 .*gpu_graph_id=-1"):
        session.run(None, {"x": X}, under(30))
    close(session.run(None, {"x": X}, under(-1))[0], X)
    close(session.run(None, {"x": X}, under(20))[0], X)


@needs_release
def test_a_released_id_makes_room_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "MAX_GRAPHS", 1)
    session = captured()
    session.run(None, {"x": X}, under(10))
    with pytest.raises(Exception, match=r"release_captured_graph\(id\)"):
        session.run(None, {"x": X}, under(30))
    session.release_captured_graph(10)
    close(session.run(None, {"x": X}, under(30))[0], X)


def test_shapes_beyond_the_bound_run_uncaptured_and_say_so_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(capture, "MAX_CAPTURES", 2)
    settings = ort.SessionOptions()
    settings.log_severity_level = 2
    session = webgpu_ep.session(models.chain(), sess_options=settings, enableGraphCapture=1)
    for rows in (5, 4, 3, 2, 3, 2, 5):
        close(session.run(None, {"x": X[:rows]})[0], X[:rows])
    assert capfd.readouterr().err.count("further ones run without capture") == 1


def test_replays_make_nothing_new() -> None:
    session, device = captured(), open_device(adapters()[0])
    bound = Bound(session, X)
    for _ in range(2):
        bound.run()
        session.run(None, {"x": X})
    gc.collect()  # what earlier tests left on this device
    before = device.counters
    for _ in range(300):
        session.run_with_iobinding(bound.binding)
        session.run(None, {"x": X})
    after = device.counters
    same = ("pipelines", "bind_groups", "buffers", "buffer_bytes")
    assert {key: after[key] for key in same} == {key: before[key] for key in same}
    assert after["submits"] == before["submits"] + 600


def test_a_plan_that_a_capture_uses_outlives_many_other_shapes() -> None:
    session, device = captured(models.square(), deviceId=OWN), open_device(adapters()[0], OWN)
    session.run(None, {"x": X})
    before = device.counters["bind_groups"]
    for rows in range(10, 50):
        session.run(None, {"x": np.ones((rows, 8), np.float32)}, under(-1))
    made = device.counters["bind_groups"]
    assert made > before
    np.testing.assert_array_equal(session.run(None, {"x": X * 2})[0], (X * 2) ** 2)
    assert device.counters["bind_groups"] == made


# Threads


def test_threads_replay_one_capture_and_their_own() -> None:
    session = captured()
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            bound = Bound(session, X * number)
            for turn in range(20):
                x = X * (number + turn)
                close(session.run(None, {"x": x}, under(0))[0], x)
                close(bound.run(number), X * number)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_asynchronous_runs_are_captured() -> None:
    session = captured()
    ended: queue.Queue[tuple[Any, str]] = queue.Queue()
    for factor in (1, 2, 3):
        session.run_async(None, {"x": X * factor}, lambda results, to, error: to.put((results, error)), ended)
        results, error = ended.get(timeout=patience.SECONDS)
        assert error == ""
        close(results[0], X * factor)


def test_a_node_outside_the_thread_of_its_run_is_refused() -> None:
    captures = capture.Captures(Logger(None, None), True)  # type: ignore[arg-type]
    captures.begin("3")
    assert captures.current().graph == 3
    errors: list[BaseException] = []

    def elsewhere() -> None:
        try:
            captures.current()
        except webgpu_ep.UnsupportedError as error:
            errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "ORT_SEQUENTIAL" in str(errors[0])
