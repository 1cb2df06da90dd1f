"""Tensors beyond the adapter's own limit of a binding, through ONNX Runtime: 128 MiB on lavapipe."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.helper import make_node as node

import onnxruntime_ep_wgpu as wgpu_ep
from onnxruntime_ep_wgpu.device import adapters

F = np.float32


@pytest.fixture(scope="module")
def elements() -> int:
    """Numbers of four bytes that take a quarter more than a binding."""
    target = adapters()[0].target()
    count = target.max_binding_bytes // 4 * 5 // 4
    if 4 * count > min(1 << 28, target.max_buffer_bytes):
        pytest.skip(f"a binding of this adapter has {target.max_binding_bytes} bytes")
    return count


def model(nodes: list[onnx.NodeProto], shape: list[int | str], **weights: np.ndarray) -> bytes:
    x = helper.make_tensor_value_info("x", 1, shape)
    y = helper.make_tensor_value_info("y", 1, None)
    initializers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "large", [x], [y], initializers)
    built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return bytes(built.SerializeToString())


@pytest.mark.costly
@pytest.mark.parametrize("dynamic", [False, True])
def test_inputs_and_outputs(elements: int, dynamic: bool) -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Add", ["a", "one"], ["y"])]
    session = wgpu_ep.session(model(nodes, ["n"] if dynamic else [elements], one=np.array(1, F)))
    x = np.arange(elements, dtype=F) - elements / 2
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0) + 1)
    assert all(it.partition is not None for it in wgpu_ep.report(session).nodes)
    if dynamic:
        np.testing.assert_array_equal(session.run(None, {"x": x[:9]})[0], np.maximum(x[:9], 0) + 1)


def test_an_input_beyond_a_buffer_is_named() -> None:
    limit = adapters()[0].target().max_buffer_bytes
    if limit > 1 << 32:
        pytest.skip(f"a buffer of this adapter has {limit} bytes")
    count = limit // 4 + 1
    session = wgpu_ep.session(model([node("Relu", ["x"], ["y"])], ["n"]))
    with pytest.raises(wgpu_ep.LimitError, match=rf"input 'x': a tensor of {4 * count} bytes .* {limit} \(max-buffer"):
        session.run(None, {"x": np.zeros(count, F)})  # pages that nobody touches take no memory
    np.testing.assert_array_equal(session.run(None, {"x": np.ones(3, F)})[0], np.ones(3, F))


def test_weights(elements: int) -> None:
    rows = 256
    w = np.ones((rows, elements // rows), F)
    w[:, -1] = 3
    session = wgpu_ep.session(model([node("MatMul", ["x", "w"], ["y"])], ["n", rows], w=w))
    x = np.arange(rows, dtype=F)[None] % 5
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], x @ w)
    assert all(it.partition is not None for it in wgpu_ep.report(session).nodes)


def test_intermediate_values(elements: int) -> None:
    """Scores of attention: rows by columns are beyond a binding, what goes in and comes out is not."""
    side = int(elements**0.5) + 1
    nodes = [
        node("Transpose", ["x"], ["t"]),
        node("MatMul", ["x", "t"], ["s"]),
        node("ReduceMax", ["s", "axes"], ["y"]),
    ]
    session = wgpu_ep.session(model(nodes, ["n", 2], axes=np.array([1])))
    x = np.stack([np.arange(side) % 7, np.arange(side) % 3], 1).astype(F)
    want = (x @ x.T).max(1, keepdims=True)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], want)
    assert all(it.partition is not None for it in wgpu_ep.report(session).nodes)
