"""The judge in float64: right where the reference implementation of ONNX is, and honest where it is not."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.api import exact
from onnxruntime_ep_wgpu.api.exact import NoReference, Reference
from tests.support import make_model

F = np.float32
X = np.random.default_rng(0).standard_normal((2, 6)).astype(F)


def reference(tmp_path, nodes, inputs, weights=None, **options) -> Reference:
    path = tmp_path / "group.onnx"
    onnx.save(make_model(nodes, inputs, weights or {}), path, **options)
    return Reference(path)


def test_a_value_is_calculated_in_doubles_from_what_is_given(tmp_path):
    nodes = [
        node("Exp", ["x"], ["e"]),
        node("Mul", ["e", "w"], ["m"]),
        node("Cast", ["m"], ["c"], to=1),
        node("Erf", ["c"], ["y"]),
    ]
    judge = reference(tmp_path, nodes, {"x": (F, [2, 6])}, {"w": np.array(0.1, F)})
    known = {"x": X, "e": np.exp(X) * F(2), "m": X, "c": X, "y": X}
    right = np.vectorize(math.erf)(np.exp(X.astype(np.float64)) * np.float64(F(0.1)))
    found = judge.value("y", known, frozenset("x"))
    assert found.value.dtype == np.float64
    np.testing.assert_allclose(found.value, right, rtol=1e-15)
    assert 0 < found.moves.max() < 1e-6
    np.testing.assert_allclose(
        judge.value("m", known, frozenset({"e"})).value, known["e"] * np.float64(F(0.1)), rtol=1e-15
    )


def test_weights_beside_the_file_are_read(tmp_path):
    weight = np.random.default_rng(1).standard_normal((6, 300)).astype(F)
    judge = reference(tmp_path, [node("MatMul", ["x", "w"], ["y"])], {"x": (F, [2, 6])}, {"w": weight},
                      save_as_external_data=True, location="weights", size_threshold=0)  # fmt: skip
    found = judge.value("y", {"x": X, "y": X @ weight}, frozenset("x"))
    np.testing.assert_allclose(found.value, X.astype(np.float64) @ weight.astype(np.float64), rtol=1e-12)


@pytest.mark.parametrize(
    ("shape", "kernel", "attributes"),
    [
        ((2, 4, 9, 8), (6, 4, 3, 2), {}),
        ((1, 4, 9, 9), (6, 2, 3, 3), {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}),
        ((1, 3, 10, 7), (3, 1, 3, 3), {"group": 3, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ((1, 3, 10, 7), (3, 3, 2, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
        ((1, 3, 11), (5, 3, 4), {"auto_pad": "VALID", "dilations": [2]}),
        ((1, 2, 5, 6, 4), (3, 2, 2, 3, 1), {"pads": [0, 1, 1, 1, 0, 0]}),
    ],
)
def test_convolutions_are_those_of_the_cpu_provider(tmp_path, shape, kernel, attributes):
    rng = np.random.default_rng(2)
    x, w, b = (rng.standard_normal(s).astype(F) for s in (shape, kernel, kernel[:1]))
    nodes = [node("Conv", ["x", "w", "b"], ["y"], **attributes)]
    judge = reference(tmp_path, nodes, {"x": (F, shape)}, {"w": w, "b": b})
    want = ort.InferenceSession(tmp_path / "group.onnx").run(None, {"x": x})[0]
    np.testing.assert_allclose(judge.value("y", {"x": x, "y": want}, frozenset("x")).value, want, rtol=1e-5, atol=1e-5)


def test_integers_at_a_tie_move_with_the_rounding_of_their_operands(tmp_path):
    x = np.array([[0.5, 1.25, 2.4999998]], F)
    nodes = [node("Mul", ["x", "s"], ["m"]), node("Round", ["m"], ["r"]), node("Cast", ["r"], ["y"], to=6)]
    judge = reference(tmp_path, nodes, {"x": (F, [1, 3])}, {"s": np.array(1, F)})
    found = judge.value("y", {"x": x, "y": np.array([[0, 1, 2]], np.int32)}, frozenset("x"))
    assert found.value.tolist() == [[0, 1, 2]] and found.moves.tolist() == [[1, 0, 0]]


@pytest.mark.parametrize(
    ("nodes", "known", "message"),
    [
        ([node("Nothing", ["x"], ["y"], domain="com.example")], {"x": X}, "Nothing|com.example"),
        ([node("Add", ["x", "z"], ["y"])], {"x": X}, "operand 'z' is not known"),
        ([node("MatMul", ["x", "x"], ["y"])], {"x": X}, "MatMul"),
    ],
)
def test_what_cannot_be_judged_says_why(tmp_path, nodes, known, message):
    path = tmp_path / "group.onnx"
    values = [onnx.helper.make_tensor_value_info(name, 1, None) for name in "xzy"]
    graph = onnx.helper.make_graph(nodes, "g", values[:2], values[2:])
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.example", 1)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets), path)
    with pytest.raises(NoReference, match=message):
        Reference(path).value("y", {**known, "y": X}, frozenset("x"))


def test_what_is_too_large_is_not_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(exact, "LARGEST", 20)
    judge = reference(tmp_path, [node("Exp", ["x"], ["y"])], {"x": (F, [2, 6])})
    with pytest.raises(NoReference, match="too large"):
        judge.value("y", {"x": X, "y": X}, frozenset("x"))
