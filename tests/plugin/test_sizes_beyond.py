"""Sessions whose graph is compiled once more for sizes beyond a limit of the adapter."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.provider import open_session

LONG = 70_000  # exceeds the loop limit of software adapters


def model(inputs: tuple[str, ...], outputs: tuple[str, ...]) -> bytes:
    shapes = {"a": ["k", 3], "b": [2, "k"], "c": [2, "k"]}
    nodes = [
        helper.make_node("MatMul", ["b", "a"], ["product"]),
        helper.make_node("Sub", ["c", "b"], ["minus"]),
        helper.make_node("Mul", ["minus", "c"], ["square"]),
    ]
    graph = helper.make_graph(
        nodes,
        "places",
        [helper.make_tensor_value_info(it, TensorProto.FLOAT, shapes[it]) for it in inputs],
        [helper.make_tensor_value_info(it, TensorProto.FLOAT, [None, None]) for it in outputs],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


@pytest.mark.costly
@pytest.mark.parametrize("inputs", list(itertools.permutations("abc")), ids="".join)
@pytest.mark.parametrize("outputs", list(itertools.permutations(["product", "minus", "square"])), ids="-".join)
def test_every_tensor_stays_at_its_place(inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    session = open_session(model(inputs, outputs))
    dice = np.random.default_rng(0)
    for k in (5, LONG, 4):
        feeds = {
            "a": dice.integers(-3, 4, (k, 3)).astype(np.float32),
            "b": dice.integers(-3, 4, (2, k)).astype(np.float32),
            "c": dice.integers(-3, 4, (2, k)).astype(np.float32),
        }
        minus = feeds["c"] - feeds["b"]
        want = {"product": feeds["b"] @ feeds["a"], "minus": minus, "square": minus * feeds["c"]}
        for name, got in zip(outputs, session.run(None, feeds), strict=True):
            np.testing.assert_array_equal(got, want[name], err_msg=f"{name} for k = {k}")
