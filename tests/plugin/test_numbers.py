"""Element types that numpy lacks, through stock onnxruntime: bfloat16 tensors and weights, 4-bit weights.

onnxruntime's Python binding passes bfloat16 as OrtValues made from 16-bit words, not as arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.plugin.memory import space as memory
from tests import feeding, halves

from . import models

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
OpenSession = Callable[..., ort.InferenceSession]
RNG = np.random.default_rng(4)


def weight(*shape: int, dtype: Any = BFLOAT16) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(shape[0])).astype(dtype)


WEIGHTS = [("w", weight(16, 33)), ("b", weight(33)), ("g", np.ones(33, BFLOAT16)), ("v", weight(33, 7))]


def network(opset: int = 22) -> bytes:
    """y = softmax(gelu(norm(x @ w + b)) @ v), all of it in bfloat16."""
    nodes = [
        models.node("MatMul", ["x", "w"], ["m"], "first"),
        models.node("Add", ["m", "b"], ["a"], "bias"),
        models.node("LayerNormalization", ["a", "g", "b"], ["n"], "norm"),
        models.node("Gelu", ["n"], ["h"], "gelu"),
        models.node("MatMul", ["h", "v"], ["o"], "second"),
        models.node("Softmax", ["o"], ["y"], "softmax"),
    ]
    kind = TensorProto.BFLOAT16
    return models.model(nodes, [("x", kind, ["N", 16])], [("y", kind, ["N", 7])], WEIGHTS, opset)


def ortvalue(array: np.ndarray) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), TensorProto.BFLOAT16)


def reference(model: bytes, x: np.ndarray) -> np.ndarray:
    wide = halves.widened(onnx.load_model_from_string(model)).SerializeToString()
    result: np.ndarray = ort.InferenceSession(wide).run(None, {"x": x.astype(np.float32)})[0]
    return result


def test_a_bfloat16_model_runs_whole_and_as_exactly_as_its_type_allows() -> None:
    session = webgpu_ep.session(network())
    assert not webgpu_ep.report(session).on_cpu
    for rows in (5, 2, 5):
        x = weight(rows, 16) * BFLOAT16.type(4)
        bits = np.zeros((rows, 7), np.uint16)
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", ortvalue(x))
        result = ortvalue(bits.view(BFLOAT16))
        binding.bind_ortvalue_output("y", result)
        session.run_with_iobinding(binding)
        got, want = bits.view(BFLOAT16).astype(np.float32), reference(network(), x)
        assert np.abs(got - want).max() <= 2**-6 * np.abs(want).max()


def test_bfloat16_results_have_that_type_in_cpu_and_device_memory(open_session: OpenSession) -> None:
    session = open_session(network())
    feeds = {"x": ortvalue(weight(3, 16))}
    assert session.run_with_ort_values(["y"], feeds)[0].data_type() == "tensor(bfloat16)"
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", feeds["x"])
    binding.bind_output("y", "webgpu", 0)
    session.run_with_iobinding(binding)
    (result,) = binding.get_outputs()
    assert (result.data_type(), result.shape()) == ("tensor(bfloat16)", [3, 7])
    assert memory.space().owns(result.data_ptr())


def test_a_device_tensor_of_bfloat16_is_an_input(open_session: OpenSession) -> None:
    session = open_session(network())
    x = weight(3, 16)
    there = ort.OrtValue.ortvalue_from_shape_and_type([3, 16], TensorProto.BFLOAT16, "webgpu", 0)
    ort.copy_tensors([ortvalue(x)], [there])
    cast = models.model(
        [models.node("Cast", ["x"], ["y"], "cast", to=TensorProto.FLOAT)],
        [("x", TensorProto.BFLOAT16, [3, 16])],
        [("y", TensorProto.FLOAT, [3, 16])],
    )
    np.testing.assert_array_equal(
        open_session(cast).run_with_ort_values(["y"], {"x": there})[0].numpy(), x.astype(np.float32)
    )
    a = session.run_with_ort_values(["y"], {"x": there})[0]
    assert a.shape() == [3, 7]


@pytest.mark.costly
@pytest.mark.parametrize("rows", [4, 7])
@pytest.mark.parametrize("kind", [ml_dtypes.int4, ml_dtypes.uint4])
def test_weights_of_4_bits_are_dequantised_where_they_are_read(kind: Any, rows: int) -> None:
    limits = ml_dtypes.iinfo(kind)
    w = RNG.integers(limits.min, limits.max + 1, (15, rows)).astype(kind)
    scale, zero = np.abs(RNG.standard_normal(rows)).astype(np.float32), np.full(rows, 2, kind)
    nodes = [
        models.node("DequantizeLinear", ["w", "s", "z"], ["d"], "dequantise", axis=1),
        models.node("MatMul", ["x", "d"], ["y"], "product"),
    ]
    constants = [("w", w), ("s", scale), ("z", zero)]
    model = models.model(
        nodes, [("x", TensorProto.FLOAT, ["N", 15])], [("y", TensorProto.FLOAT, ["N", rows])], constants, 21
    )
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = webgpu_ep.session(model, sess_options=settings)
    assert not webgpu_ep.report(session).on_cpu
    x = RNG.standard_normal((5, 15)).astype(np.float32)
    np.testing.assert_allclose(
        session.run(None, {"x": x})[0], x @ ((w.astype(np.float32) - 2) * scale), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("kind", [ml_dtypes.int2, ml_dtypes.uint2])
def test_inputs_of_2_bits_are_of_the_type_that_the_model_names(kind: Any, open_session: OpenSession) -> None:
    """ONNX Runtime has other numbers for them than ONNX."""
    element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    name = f"x_{np.dtype(kind).name}"  # a report is found by the names of inputs
    model = models.model(
        [models.node("Cast", [name], ["y"], "cast", to=TensorProto.FLOAT)],
        [(name, element, [3, 7])],
        [("y", TensorProto.FLOAT, [3, 7])],
        [],
        25,
    )
    limits = ml_dtypes.iinfo(kind)
    x = (np.arange(21) % 4 + limits.min).reshape(3, 7).astype(kind)
    session = open_session(model)
    assert not webgpu_ep.report(session).on_cpu
    np.testing.assert_array_equal(feeding.run(session, {name: feeding.ort_value(x, element)})[0], x.astype(np.float32))
