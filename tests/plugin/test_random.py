"""Random numbers in sessions: each run draws others, however it is run, and a seed gives the same ones to each session."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api.reports import state_of
from onnxruntime_ep_wgpu.kept import folder
from tests.ops import philox

from .capturing import Bound, captured
from .loss import device_of, lose
from .test_memo import hits

X = np.zeros((5, 8), np.float32)
SEED = 2.5


def noise(**how: Any) -> bytes:
    """y = x + uniform numbers."""
    nodes = [
        helper.make_node("RandomUniformLike", ["x"], ["u"], name="noise", **how),
        helper.make_node("Add", ["x", "u"], ["y"]),
    ]
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8])] for name in ("x", "y"))
    graph = helper.make_graph(nodes, "noise", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10).SerializeToString()


def drawn(run: int, rows: int = 5) -> np.ndarray:
    return philox.unit(philox.words(rows * 8, philox.of_seed(SEED), run)).reshape(rows, 8)


def session(**options: Any) -> ort.InferenceSession:
    return webgpu_ep.session(noise(seed=SEED), **options)


def run(it: ort.InferenceSession, rows: int = 5) -> np.ndarray:
    return it.run(None, {"x": np.zeros((rows, 8), np.float32)})[0]


def test_each_session_has_the_numbers_of_its_seed_run_by_run() -> None:
    for it in (session(), session()):
        for number in (1, 2, 3):
            np.testing.assert_array_equal(run(it), drawn(number))


def test_runs_of_other_sizes_are_runs_too() -> None:
    it = session()
    for number, rows in enumerate((5, 2, 5, 300, 2), 1):
        np.testing.assert_array_equal(run(it, rows), drawn(number, rows))


def test_sessions_without_a_seed_differ() -> None:
    first, second = webgpu_ep.session(noise()), webgpu_ep.session(noise())
    numbers = [run(it) for it in (first, second) for _ in range(2)]
    assert len({it.tobytes() for it in numbers}) == 4


def bound_runs(it: Bound, get: Callable[[], np.ndarray], times: int = 8) -> None:
    for number in range(1, times + 1):
        np.testing.assert_array_equal(get(), drawn(number))


def test_runs_that_are_repeated_without_python_draw_on() -> None:
    it, before = Bound(session(), X), hits()

    def once() -> np.ndarray:
        it.session.run_with_iobinding(it.binding)
        return it.y.numpy()

    bound_runs(it, once)
    assert hits() - before >= 4


def test_replays_of_a_captured_run_draw_on() -> None:
    it = Bound(captured(noise(seed=SEED)), X)
    bound_runs(it, it.run)


def test_runs_that_are_looked_at_step_by_step_draw_on() -> None:
    it = session(validationMode="full")
    for number in (1, 2, 3):
        np.testing.assert_array_equal(run(it), drawn(number))


def test_threads_draw_every_number_once() -> None:
    it = session()
    with ThreadPoolExecutor(4) as threads:
        found = {result.tobytes() for result in threads.map(lambda _: run(it), range(40))}
    assert found == {drawn(number).tobytes() for number in range(1, 41)}


@pytest.mark.parametrize("how", [{"seed": SEED}, {}], ids=["seed", "none"])
def test_a_stored_program_holds_no_numbers_of_a_session(
    how: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(folder.VARIABLE, str(tmp_path / "cache"))
    first, second = webgpu_ep.session(noise(**how)), webgpu_ep.session(noise(**how))
    assert state_of(first)._compiler.compiled and not state_of(second)._compiler.compiled
    assert np.array_equal(run(first), run(second)) == bool(how)


def test_a_seed_begins_again_on_the_next_device() -> None:
    it = session(deviceId=37)
    run(it), run(it)
    lose(device_of(37))
    with pytest.raises(Exception, match="lost"):
        run(it)
    np.testing.assert_array_equal(run(it), drawn(1))


def test_each_iteration_of_a_loop_draws_others() -> None:
    body = helper.make_graph(
        [
            helper.make_node("RandomUniformLike", ["state"], ["u"], seed=SEED),
            helper.make_node("Add", ["state", "u"], ["next"]),
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Identity", ["u"], ["each"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [5, 8]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [5, 8]),
            helper.make_tensor_value_info("each", TensorProto.FLOAT, [5, 8]),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["count", "", "x"], ["y", "all"], body=body)],
        "loop",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 8])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 8]),
            helper.make_tensor_value_info("all", TensorProto.FLOAT, [3, 5, 8]),
        ],
        [onnx.numpy_helper.from_array(np.array(3, np.int64), "count")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    it = webgpu_ep.session(model.SerializeToString())
    assert {node.op_type for node in webgpu_ep.report(it).on_cpu} <= {"Identity"}, "which passes a condition on"
    for first in (1, 4):
        y, each = it.run(None, {"x": X})
        np.testing.assert_array_equal(each, np.stack([drawn(first + k) for k in range(3)]))
        np.testing.assert_allclose(y, each.sum(0), rtol=1e-6)
