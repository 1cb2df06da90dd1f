"""What it takes to make a session grows with the nodes of its model, and not with their square. What is counted is how often Python
calls functions and goes on with generators, which no other load changes."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx.helper import make_node as node

from tests import provider
from tests.support import make_model

F = np.float32


def turns(count: int) -> onnx.ModelProto:
    """Nodes that are views."""
    nodes = [node("Transpose", [f"x{k}"], [f"x{k + 1}"], perm=[1, 0]) for k in range(count)]
    return make_model([*nodes, node("Neg", [f"x{count}"], ["y"])], {"x0": (F, ["m", "n"])})


def functions(count: int) -> onnx.ModelProto:
    """Nodes that are fused."""
    nodes = [node("Tanh", [f"x{k}"], [f"x{k + 1}"]) for k in range(count)]
    return make_model(nodes, {"x0": (F, ["m", "n"])})


def branches(count: int) -> onnx.ModelProto:
    """Parts of one tensor, each by itself."""
    parts, results = ([f"{kind}{k}" for k in range(count)] for kind in "pr")
    nodes = [node("Split", ["x"], parts, axis=1, num_outputs=count)]
    nodes += [node("Sigmoid", [part], [result]) for part, result in zip(parts, results, strict=True)]
    return make_model([*nodes, node("Concat", results[::-1], ["y"], axis=1)], {"x": (F, ["n", count])})


def outputs(count: int) -> onnx.ModelProto:
    """A chain of which every value leaves the graph."""
    model = functions(count)
    model.graph.output.extend(onnx.ValueInfoProto(name=f"x{k}") for k in range(1, count))
    return model


def steps(count: int) -> onnx.ModelProto:
    """A sequence, step by step."""
    nodes, weights = [], {"w": np.eye(4, dtype=F)}
    for k in range(count):
        weights[f"i{k}"] = np.array(k)
        nodes.append(node("Gather", ["x", f"i{k}"], [f"g{k}"], axis=0))
        nodes.append(node("Add", [f"g{k}", f"s{k}"], [f"a{k}"]))
        nodes.append(node("MatMul", [f"a{k}", "w"], [f"s{k + 1}"]))
    return make_model(nodes, {"x": (F, [count, "n", 4]), "s0": (F, ["n", 4])}, weights)


def calls(model: onnx.ModelProto) -> int:
    """Of Python's functions, while a session is made of the model as it is."""
    settings, data, found = ort.SessionOptions(), model.SerializeToString(), 0
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL

    def count(_frame: Any, event: str, _what: Any) -> None:
        nonlocal found
        found += event == "call"

    gc.collect()  # what other tests have left calls functions when it ends
    gc.disable()
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        provider.open_session(data, session_options=settings)
    finally:
        sys.setprofile(before)
        gc.enable()
    return found


@pytest.mark.costly
@pytest.mark.parametrize("made", [turns, functions, branches, outputs, steps])
def test_sessions_cost_what_their_nodes_do(made: Callable[[int], onnx.ModelProto]) -> None:
    calls(made(10))  # what the first session of a process reads
    few, some, many = (calls(made(count)) for count in (100, 300, 500))
    assert many - some <= 1.12 * (some - few)
