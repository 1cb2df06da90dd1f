"""Small models for the plugin's tests, as bytes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def model(nodes, inputs, outputs, constants=(), opset: int = 17, check: bool = True) -> bytes:
    """A model of `nodes`; inputs and outputs are (name, type, shape), constants (name, array)."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(array, name) for name, array in constants],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    if check:
        onnx.checker.check_model(made)
    return made.SerializeToString()


FLOAT, DOUBLE, INT64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64
node = helper.make_node


def square(rows: int | str = "N", columns: int = 8) -> bytes:
    """y = x * x."""
    return model(
        [node("Mul", ["x", "x"], ["y"], "mul")], [("x", FLOAT, [rows, columns])], [("y", FLOAT, [rows, columns])]
    )


def doubles() -> bytes:
    """z = d / |d|, in f64, which does not run here."""
    return model(
        [node("LpNormalization", ["d"], ["z"], "double")], [("d", DOUBLE, ["N", 8])], [("z", DOUBLE, ["N", 8])]
    )


def doubles_beside() -> bytes:
    """y = x * x in f32, z = d / |d| in f64, which does not run here."""
    nodes = [node("Mul", ["x", "x"], ["y"], "mul"), node("LpNormalization", ["d"], ["z"], "double")]
    return model(
        nodes,
        [("x", FLOAT, ["N", 8]), ("d", DOUBLE, ["N", 8])],
        [("y", FLOAT, ["N", 8]), ("z", DOUBLE, ["N", 8])],
    )


def chain(output: str = "y") -> bytes:
    """y = leaky_relu((x * x) @ w) + b. With an output of a name of its own, a session of it is told from all others."""
    w = np.random.default_rng(0).standard_normal((8, 8), np.float32)
    nodes = [
        node("Mul", ["x", "x"], ["a"], "mul"),
        node("MatMul", ["a", "w"], ["c"], "matmul"),
        node("LeakyRelu", ["c"], ["d"], "relu", alpha=0.25),
        node("Add", ["d", "b"], [output], "add"),
    ]
    bias = np.arange(8, dtype=np.float32)
    return model(nodes, [("x", FLOAT, ["N", 8])], [(output, FLOAT, ["N", 8])], [("w", w), ("b", bias)])


def chain_reference(x: np.ndarray) -> np.ndarray:
    w = np.random.default_rng(0).standard_normal((8, 8), np.float32)
    hidden = (x * x) @ w
    return np.where(hidden >= 0, hidden, hidden * np.float32(0.25)) + np.arange(8, dtype=np.float32)


def slow(layers: int = 60, size: int = 64) -> bytes:
    """A chain of matrix products with one weight, long enough to be met while it runs."""
    w = np.eye(size, dtype=np.float32)
    nodes = [
        node("MatMul", ["x" if k == 0 else f"h{k}", "w"], ["y" if k == layers - 1 else f"h{k + 1}"], f"layer{k}")
        for k in range(layers)
    ]
    return model(nodes, [("x", FLOAT, ["N", size])], [("y", FLOAT, ["N", size])], [("w", w)])


def mixed() -> bytes:
    """Mul, Softmax (stays on the CPU), Add, a shape computation, Reshape, Mul: two groups."""
    nodes = [
        node("Mul", ["x", "x"], ["a"], "mul"),
        node("Softmax", ["a"], ["s"], "softmax", axis=-1),
        node("Add", ["s", "b"], ["t"], "add"),
        node("Shape", ["t"], ["sh"], "shape"),
        node("Gather", ["sh", "i0"], ["d0"], "gather"),
        node("Unsqueeze", ["d0", "ax"], ["d0u"], "unsqueeze"),
        node("Concat", ["d0u", "rest"], ["target"], "concat", axis=0),
        node("Reshape", ["t", "target"], ["r"], "reshape"),
        node("Mul", ["r", "two"], ["y"], "double"),
    ]
    constants = [
        ("b", np.arange(8, dtype=np.float32)),
        ("i0", np.array(0, np.int64)),
        ("ax", np.array([0], np.int64)),
        ("rest", np.array([2, -1], np.int64)),
        ("two", np.array([2], np.float32)),
    ]
    return model(nodes, [("x", FLOAT, ["N", 8])], [("y", FLOAT, ["N", 2, 4])], constants)


def mixed_reference(x: np.ndarray) -> np.ndarray:
    a = x * x
    e = np.exp(a - a.max(-1, keepdims=True))
    return ((e / e.sum(-1, keepdims=True) + np.arange(8, dtype=np.float32)) * 2).reshape(len(x), 2, 4)


def crossing() -> bytes:
    """a = x * x, b = a + x, s = softmax(a) (stays on the CPU), y = relu(s * b) + a: three tensors lie between two groups."""
    nodes = [
        node("Mul", ["x", "x"], ["a"], "mul"),
        node("Add", ["a", "x"], ["b"], "add"),
        node("Softmax", ["a"], ["s"], "softmax", axis=-1),
        node("Mul", ["s", "b"], ["c"], "times"),
        node("Relu", ["c"], ["d"], "relu"),
        node("Add", ["d", "a"], ["y"], "plus"),
    ]
    return model(nodes, [("x", FLOAT, ["N", 8])], [("y", FLOAT, ["N", 8])])


def crossing_reference(x: np.ndarray) -> np.ndarray:
    a = x * x
    e = np.exp(a - a.max(-1, keepdims=True))
    return np.maximum(e / e.sum(-1, keepdims=True) * (a + x), 0) + a
