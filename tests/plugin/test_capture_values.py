"""Graph capture of models with small integer inputs: a value that sets no shape may change between replays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx.reference import ReferenceEvaluator

from onnxruntime_ep_wgpu.plugin import tensors as compute

from . import models

X = np.arange(24, dtype=np.float32).reshape(3, 8)
CONSTANTS = [("two", np.array([2], np.int64)), ("zero", np.array([0], np.int64)), ("axis", np.array([1], np.int64))]
node = models.node
BOOL = onnx.TensorProto.BOOL
# Per model: nodes, and the type of y of shape [8] or, where x is read, [N, 8].
MODELS = {
    "sum": ([node("Add", ["a", "two"], ["y"], "add")], models.INT64),
    "comparison": ([node("Less", ["a", "two"], ["y"], "less")], BOOL),
    "choice": (
        [node("Equal", ["a", "two"], ["same"], "equal"), node("Where", ["same", "zero", "a"], ["y"], "where")],
        models.INT64,
    ),
    "mask": (
        [
            node("Equal", ["a", "zero"], ["hidden"], "equal"),
            node("Cast", ["hidden"], ["weight"], "cast", to=models.FLOAT),
            node("Sub", ["x", "weight"], ["y"], "sub"),
        ],
        models.FLOAT,
    ),
    "positions": (
        [
            node("Mod", ["a", "eight"], ["place"], "mod"),
            node("Gather", ["x", "place"], ["y"], "gather", axis=1),
        ],
        models.FLOAT,
    ),
}


def build(name: str) -> bytes:
    nodes, kind = MODELS[name]
    reads = {value for it in nodes for value in it.input}
    inputs = [("x", models.FLOAT, ["N", 8])] if "x" in reads else []
    shape = ["N", 8] if "x" in reads else [8]
    constants = [it for it in [*CONSTANTS, ("eight", np.array([8], np.int64))] if it[0] in reads]
    return models.model(nodes, [*inputs, ("a", models.INT64, [8])], [("y", kind, shape)], constants)


VALUES = [np.arange(8), np.array([2, 0, 2, 0, 5, 2, -3, 1]), np.zeros(8, np.int64), np.arange(8) * 3]


@pytest.mark.parametrize("name", MODELS)
def test_a_bound_value_that_sets_no_shape_changes_between_replays(
    name: str, open_session: Callable[..., ort.InferenceSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build(name)
    session, oracle = open_session(model, {"enableGraphCapture": "1"}), ReferenceEvaluator(onnx.load_from_string(model))

    def read_back(*_: object) -> np.ndarray:
        raise AssertionError("a value was read back that sets no shape")

    monkeypatch.setattr(compute, "read_value", read_back)
    binding = session.io_binding()
    a = ort.OrtValue.ortvalue_from_numpy(VALUES[0].astype(np.int64), "webgpu", 0)
    feeds = {"x": X} if "x" in [it.name for it in session.get_inputs()] else {}
    for key, value in feeds.items():
        binding.bind_ortvalue_input(key, ort.OrtValue.ortvalue_from_numpy(value, "webgpu", 0))
    binding.bind_ortvalue_input("a", a)
    (want,) = oracle.run(None, feeds | {"a": VALUES[0].astype(np.int64)})
    y = ort.OrtValue.ortvalue_from_numpy(np.zeros_like(want), "webgpu", 0)
    binding.bind_ortvalue_output("y", y)
    for values in (*VALUES, *VALUES):
        a.update_inplace(values.astype(np.int64))
        session.run_with_iobinding(binding)
        (want,) = oracle.run(None, feeds | {"a": values.astype(np.int64)})
        np.testing.assert_array_equal(y.numpy(), want)


@pytest.mark.parametrize("name", MODELS)
def test_plain_runs_with_other_values_capture_nothing(
    name: str, open_session: Callable[..., ort.InferenceSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxruntime_ep_wgpu.runtime.executable import Executable

    made: list[object] = []
    inner = Executable.capture
    monkeypatch.setattr(Executable, "capture", lambda *arguments: made.append(arguments) or inner(*arguments))
    model = build(name)
    session, oracle = open_session(model, {"enableGraphCapture": "1"}), ReferenceEvaluator(onnx.load_from_string(model))
    for values in (*VALUES, *VALUES):
        feeds = {"a": values.astype(np.int64)} | ({"x": X} if len(session.get_inputs()) > 1 else {})
        np.testing.assert_array_equal(session.run(None, feeds)[0], oracle.run(None, feeds)[0])
    assert not made
