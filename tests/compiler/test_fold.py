"""Constants are folded only where that makes no weight larger, and only to what the CPU provider calculates."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler.graph import fold
from onnxruntime_ep_wgpu.compiler.graph.fold import ALWAYS_FOLDED_BYTES, fold_constants
from onnxruntime_ep_wgpu.program.weights import weight_array
from tests.support import compile_model, make_model, run_model

F, I8 = np.float32, np.int8
RNG = np.random.default_rng(8)


def weight_bytes(model: onnx.ModelProto) -> int:
    return sum(weight_array(w).nbytes for w in compile_model(model).weights)


def of_cpu(model: onnx.ModelProto, **feeds: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


def dequantised(rows: int, columns: int, *after: onnx.NodeProto, last: str = "d") -> onnx.ModelProto:
    """x times an int8 weight with a scale per column, and nodes between the two that end in the value `last`."""
    weights = {
        "w": RNG.integers(-127, 127, (rows, columns)).astype(I8),
        "s": RNG.uniform(0.001, 0.01, columns).astype(F),
        "z": np.zeros(columns, I8),
    }
    nodes = [node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=1), *after, node("MatMul", ["x", last], ["y"])]
    return make_model(nodes, {"x": (F, [3, rows if last == "d" else columns])}, weights)


@pytest.mark.costly
@pytest.mark.parametrize(
    "model",
    [dequantised(64, 48), dequantised(64, 48, node("Transpose", ["d"], ["t"]), last="t")],
    ids=["plain", "transposed"],
)
def test_integer_weights_stay_integers(model):
    weights = sum(numpy_helper.to_array(i).nbytes for i in model.graph.initializer)
    assert weight_bytes(model) <= weights
    assert len(compile_model(model).dispatches) == 1  # the product dequantises where it loads
    x = RNG.standard_normal([d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]).astype(F)
    np.testing.assert_allclose(run_model(model, x)[0], of_cpu(model, x=x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("nodes", "weights"),
    [
        ([node("Expand", ["c", "shape"], ["e"])], {"c": np.ones((1, 64), F), "shape": np.array([64, 64])}),
        ([node("Tile", ["c", "n"], ["e"])], {"c": np.ones((64, 64), F), "n": np.array([4, 4])}),
        ([node("ConstantOfShape", ["shape"], ["e"])], {"shape": np.array([64, 64])}),
        ([node("Cast", ["c"], ["e"], to=1)], {"c": np.ones((64, 64), I8)}),
        ([node("Add", ["c", "d"], ["e"])], {"c": np.ones((64, 1), F), "d": np.ones((1, 64), F)}),
    ],
    ids=lambda value: value[0].op_type if isinstance(value, list) else "",
)
def test_nothing_that_is_larger_than_what_it_replaces_is_kept(nodes, weights):
    model = make_model([*nodes, node("Add", ["x", "e"], ["y"])], {"x": (F, ["n", 1, 1])}, weights)
    assert weight_bytes(model) <= sum(np.asarray(w).nbytes for w in weights.values())
    x = RNG.standard_normal((2, 1, 1)).astype(F)
    np.testing.assert_array_equal(run_model(model, x)[0], of_cpu(model, x=x))


def test_a_weight_with_another_reader_is_not_kept_twice():
    w = RNG.standard_normal((64, 64)).astype(F)
    nodes = [node("Transpose", ["w"], ["t"]), node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "t"], ["y"])]
    assert weight_bytes(make_model(nodes, {"x": (F, [2, 64])}, {"w": w})) == w.nbytes


def test_steps_that_are_large_lead_to_a_small_result():
    """What is read in the end is small, so nothing of the way to it is left to run."""
    nodes = [
        node("Expand", ["c", "shape"], ["e"]),
        node("Slice", ["e", "from", "to"], ["s"]),
        node("Sqrt", ["s"], ["r"]),
        node("Add", ["x", "r"], ["y"]),
    ]
    weights = {"c": np.full((1, 64), 4, F), "shape": np.array([64, 64]), "from": np.array([3]), "to": np.array([4])}
    model = make_model(nodes, {"x": (F, [1, 64])}, weights)
    module = ir.from_proto(model)
    assert len(fold_constants(module.graph, module.opset_imports).nodes) == 3
    np.testing.assert_array_equal(run_model(model, np.zeros((1, 64), F))[0], np.full((1, 64), 2, F))


@pytest.mark.parametrize(
    ("nodes", "weights"),
    [
        ([node("ConstantOfShape", ["n"], ["e"])], {"n": np.array([10**5, 10**5])}),
        ([node("Tile", ["c", "n"], ["e"])], {"c": np.ones((1, 1), F), "n": np.array([10**5, 10**5])}),
        ([node("Expand", ["c", "n"], ["e"])], {"c": np.ones(1, F), "n": np.array([10**5, 10**5])}),
        ([node("Add", ["c", "n"], ["e"])], {"c": np.ones((10**5, 1), F), "n": np.ones((1, 10**5), F)}),
        ([node("Gather", ["c", "n"], ["e"])], {"c": np.ones((1, 10**5), F), "n": np.zeros(10**5, np.int64)}),
        ([node("Split", ["c"], ["e"], num_outputs=10**9)], {"c": np.ones(4, F)}),
    ],
    ids=lambda it: it[0].op_type if isinstance(it, list) else "",
)
def test_sizes_in_a_models_text_make_no_large_steps(nodes, weights, monkeypatch):
    """Models need not state the shapes of what nodes make."""
    model = make_model(
        [*nodes, node("Slice", ["e", "zero", "one"], ["s"]), node("Mul", ["x", "s"], ["y"])],
        {"x": (F, [1])},
        weights | {"zero": np.array([0]), "one": np.array([1])},
    )
    calculated: list[str] = []

    def remember(made: ir.Node, *_: object) -> None:
        calculated.append(made.op_type)

    monkeypatch.setattr(fold, "_calculated", remember)
    graph = ir.from_proto(model).graph
    fold_constants(graph, {"": 18})
    assert calculated == []


def test_small_results_are_folded_whatever_they_replace():
    count = ALWAYS_FOLDED_BYTES // 4
    nodes = [node("ConstantOfShape", ["shape"], ["e"]), node("Add", ["x", "e"], ["y"])]
    assert weight_bytes(make_model(nodes, {"x": (F, [count])}, {"shape": np.array([count])})) == ALWAYS_FOLDED_BYTES
    more = make_model(nodes, {"x": (F, [count + 1])}, {"shape": np.array([count + 1])})
    assert weight_bytes(more) <= 8


@pytest.mark.parametrize("op", ["Div", "Mod", "Add", "Mul"])
def test_integers_are_calculated_as_the_cpu_provider_does(op):
    """The evaluator rounds quotients of integers down, and onnxruntime to zero."""
    a, b = np.array([-7, 7, -8, 9], np.int32), np.array([2, -2, 3, 2], np.int32)
    nodes = [node(op, ["a", "b"], ["c"]), node("Sub", ["c", "x"], ["y"])]
    model = make_model(nodes, {"x": (np.int32, [4])}, {"a": a, "b": b})
    x = np.zeros(4, np.int32)
    np.testing.assert_array_equal(run_model(model, x)[0], of_cpu(model, x=x))


def test_a_cast_that_overflows_is_left_to_the_kernels():
    nodes = [node("Cast", ["a"], ["c"], to=3), node("Sub", ["c", "x"], ["y"])]
    model = make_model(nodes, {"x": (I8, [4])}, {"a": np.array([1.5, -1.5, 127, -128], F)})
    module = ir.from_proto(model)
    assert not fold_constants(module.graph, module.opset_imports).nodes


def test_a_constant_that_the_model_returns_stays_a_node():
    nodes = [node("Transpose", ["w"], ["t"]), node("Relu", ["x"], ["y"])]
    w = RNG.standard_normal((3, 5)).astype(F)
    t, _ = run_model(make_model(nodes, {"x": (F, [2])}, {"w": w}), np.ones(2, F))
    np.testing.assert_array_equal(t, w.T)
