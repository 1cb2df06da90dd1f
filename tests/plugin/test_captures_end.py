"""Captured runs are released, bounded in number, and belong to no thread."""

from __future__ import annotations

import gc
import queue
import threading
import weakref
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device import adapters, open_device
from onnxruntime_ep_wgpu.plugin import captures as capture
from onnxruntime_ep_wgpu.plugin import watch
from onnxruntime_ep_wgpu.plugin.abi import Logger
from onnxruntime_ep_wgpu.runtime.runs.key import REMEMBERED_RUNS
from tests import patience

from . import models
from .capturing import Bound, X, captured, close, needs_release, under
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


def kept() -> list[weakref.ref[Any]]:
    """What the last session has captured."""
    graphs = watch.live()[-1].state.captures._graphs.values()
    return [weakref.ref(it) for graph in graphs for it in graph.runs.values()]


@needs_release
def test_what_is_released_is_not_kept() -> None:
    session = captured()
    first, second = Bound(session, X), Bound(session, X[:3])
    for _ in range(3):
        close(first.run(1), X)
        close(second.run(2), X[:3])
    one, other = kept()
    session.release_captured_graph(2)
    assert one() is not None and other() is None
    session.release_captured_graph(1)
    assert one() is None


def test_the_end_of_a_session_is_the_end_of_what_it_captured() -> None:
    def use() -> list[weakref.ref[Any]]:
        session = captured(models.square())
        for graph_id in range(5):
            bound = Bound(session, X)
            for _ in range(2):
                bound.run(graph_id)
        found = kept()
        assert len(found) == 5 and all(it() is not None for it in found)
        return found

    gc.collect()
    gc.disable()
    try:
        assert not any(it() for it in use())
    finally:
        gc.enable()


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


def test_plain_runs_of_any_number_of_shapes_leave_room_for_a_binding() -> None:
    session = captured()
    for rows in (*range(1, 2 * REMEMBERED_RUNS), 2):
        x = np.full((rows, 8), rows, np.float32)
        close(session.run(None, {"x": x})[0], x)
    for _ in range(2):
        close(Bound(session, X).run(1), X)
    bound = Bound(session, X)
    for _ in range(3):
        close(bound.run(), X)


def test_sets_of_tensors_in_place_are_bounded_under_one_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "REMEMBERED_RUNS", 1)
    session = captured()
    x = ort.OrtValue.ortvalue_from_numpy(X, "webgpu", 0)
    for _ in range(2):
        close(session.run_with_ort_values(None, {"x": x})[0].numpy(), X)
    with pytest.raises(Exception, match=r"graph 0 has been captured with 1 sets of tensors.*use another gpu_graph_id"):
        Bound(session, X).run()
    close(Bound(session, X).run(1), X)
    close(session.run_with_ort_values(None, {"x": x})[0].numpy(), X)


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
    session, device = captured(models.square()), open_device(adapters()[0])
    bound = Bound(session, X)
    np.testing.assert_array_equal(bound.run(), X**2)
    before = device.counters["bind_groups"]
    for rows in range(10, 50):
        session.run(None, {"x": np.ones((rows, 8), np.float32)}, under(-1))
    made = device.counters["bind_groups"]
    assert made > before
    bound.x.update_inplace(X * 2)
    np.testing.assert_array_equal(bound.run(), (X * 2) ** 2)
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
