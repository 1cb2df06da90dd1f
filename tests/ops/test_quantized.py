"""Quantised operators against the CPU provider: integers exactly, ties of rounding included."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import targets

from . import compare
from .compare import random

pytestmark = targets.EVERY_KERNEL

BYTES = [np.uint8, np.int8]
NARROW = [*BYTES, np.uint16, np.int16]
MICROSOFT = "com.microsoft"


def check(op: str, *arrays: Any, **how: Any) -> None:
    compare.check(op, *(None if a is None else np.asarray(a) for a in arrays), **how)


def integers(*shape: int, dtype: Any = np.uint8, seed: int = 0) -> np.ndarray:
    """The whole range of a type."""
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape, dtype)


def f32(*values: float) -> np.ndarray:
    """A scalar, or a vector of several."""
    return np.array(values if len(values) > 1 else values[0], np.float32)


def ties(*shape: int, scale: float, seed: int = 0) -> np.ndarray:
    """Multiples of half a scale, so that every other one is a tie."""
    return np.random.default_rng(seed).integers(-600, 600, shape).astype(np.float32) * np.float32(scale) / np.float32(2)


# ---- QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("constants", [(), (1, 2)])
def test_quantize_rounds_ties_to_even_and_saturates(dtype: type, constants: tuple[int, ...]) -> None:
    for scale in (0.1, 0.0078125, 3.7e-3):
        x = np.concatenate([ties(301, scale=scale), random(57) * 100, f32(np.inf, -np.inf, 1e30, -1e30, 0, -0.0)])
        zero = integers(1, dtype=dtype, seed=3)[0]
        check("QuantizeLinear", x, f32(scale), np.asarray(zero, dtype), outputs=[dtype], constants=constants, opset=21)


def test_quantize_without_zero_point_gives_uint8() -> None:
    check("QuantizeLinear", random(3, 37) * 10, f32(0.03), outputs=[np.uint8], opset=13)


@pytest.mark.parametrize("opset", [13, 19, 21, 23])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_quantize_and_dequantize_per_axis(axis: int, opset: int) -> None:
    x = random(3, 5, 7) * 5
    count = x.shape[axis]
    scale, zero = np.abs(random(count, seed=1)) + np.float32(0.01), integers(count, dtype=np.int8, seed=2)
    check("QuantizeLinear", x, scale, zero, axis=axis, outputs=[np.int8], opset=opset)
    check(
        "DequantizeLinear", integers(3, 5, 7, dtype=np.int8), scale, zero, axis=axis, outputs=[np.float32], opset=opset
    )


@pytest.mark.parametrize("size", [8, 10, 9])
def test_quantize_and_dequantize_blocks(size: int) -> None:
    count = -(-size // 2)
    scale = np.abs(random(3, count, 5, seed=1)) + np.float32(0.01)
    zero = integers(3, count, 5, dtype=np.int8, seed=2)
    how: dict[str, Any] = {"axis": 1, "block_size": 2, "opset": 21}
    check("QuantizeLinear", random(3, size, 5) * 5, scale, zero, outputs=[np.int8], **how)
    check("DequantizeLinear", integers(3, size, 5, dtype=np.int8), scale, zero, outputs=[np.float32], **how)


@pytest.mark.parametrize("dtype", [*NARROW, np.int32])
@pytest.mark.parametrize("scale", [np.float32, np.float16])
def test_dequantize_types(dtype: type, scale: type) -> None:
    x = random(7, 11, dtype=dtype)
    zero = None if dtype is np.int32 else np.asarray(3, dtype)
    check("DequantizeLinear", x, np.asarray(0.02, scale), zero, outputs=[scale], opset=21)


def test_quantize_float16() -> None:
    x = random(7, 13, dtype=np.float16)
    check("QuantizeLinear", x, np.float16(0.02), np.uint8(100), outputs=[np.uint8], opset=21)


def test_quantize_of_a_shape_not_known_when_compiled() -> None:
    check("QuantizeLinear", random(3, 5), f32(0.05), np.uint8(7), outputs=[np.uint8], symbolic=True, constants=(1, 2))
    check(
        "DequantizeLinear",
        integers(3, 5),
        f32(0.05),
        np.uint8(7),
        outputs=[np.float32],
        symbolic=True,
        constants=(1, 2),
    )


@pytest.mark.parametrize("shape", [(1,), (37,), (3, 5), (5, 300), (2, 3, 129)])
@pytest.mark.parametrize("shift", [-5.0, 0.0, 3.0])
def test_dynamic_quantize(shape: tuple[int, ...], shift: float) -> None:
    check("DynamicQuantizeLinear", random(*shape) + np.float32(shift), outputs=[np.uint8, np.float32, np.uint8])


def test_dynamic_quantize_of_zeros() -> None:
    check("DynamicQuantizeLinear", np.zeros((3, 5), np.float32), outputs=[np.uint8, np.float32, np.uint8])


def test_dynamic_quantize_of_a_shape_not_known_when_compiled() -> None:
    check("DynamicQuantizeLinear", random(3, 7, 5), outputs=[np.uint8, np.float32, np.uint8], symbolic=True)


SMALL = [TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ,
         TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ]  # fmt: skip


def _there_and_back(kind: int, shape: tuple[int, ...], scales: tuple[int, ...], **how: Any) -> onnx.ModelProto:
    """x quantised to a type that numpy lacks and dequantised again, all in one model."""
    scale = np.abs(random(*scales, seed=1)) / np.float32(3) + np.float32(0.01)
    zero = np.full(scales, 2 if kind in SMALL[:2] else 0).astype(helper.tensor_dtype_to_np_dtype(kind))
    attributes = {k: v for k, v in how.items() if k != "saturate"}
    nodes = [
        helper.make_node("QuantizeLinear", ["x0", "s", "z"], ["q"], **how),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attributes),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x0", "y")]
    weights = [numpy_helper.from_array(scale, "s"), numpy_helper.from_array(zero, "z")]
    graph = helper.make_graph(nodes, "there and back", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("kind", SMALL, ids=[TensorProto.DataType.Name(k).lower() for k in SMALL])
@pytest.mark.parametrize("how", [{}, {"axis": 0}, {"axis": 1, "block_size": 4}], ids=["tensor", "axis", "block"])
def test_quantize_to_types_of_4_bits_and_small_floats(kind: int, how: dict[str, Any]) -> None:
    for count in (33, 8):
        shape = (5, count)
        scales = {0: (), 1: (5,), 2: (5, -(-count // 4))}[len(how)]
        x = random(*shape) * 30
        x[0, :4] = [np.inf, -np.inf, 1e6, -1e6]
        x[1, :5] = [0.0, -0.0, 1e-3, -1e-3, 0.02]
        compare.check_model(_there_and_back(kind, shape, scales, **how), [x], rtol=0, atol=0)


@pytest.mark.parametrize("kind", SMALL[2:], ids=[TensorProto.DataType.Name(k).lower() for k in SMALL[2:]])
def test_what_is_too_large_for_a_small_float_without_saturation(kind: int) -> None:
    x = np.concatenate([random(300) * 1000, f32(np.inf, -np.inf, np.nan, 1e9)])
    compare.check_model(_there_and_back(kind, x.shape, (), saturate=0), [x], rtol=0, atol=0)


# ---- products


@pytest.mark.costly
@pytest.mark.parametrize("right", BYTES)
@pytest.mark.parametrize(
    "shapes", [((5, 7), (7, 3)), ((2, 33, 130), (130, 37)), ((3, 2, 5, 8), (3, 2, 8, 4)), ((9,), (9, 5))]
)
@pytest.mark.parametrize("constants", [(), (1, 3)])
def test_matmul_integer(right: type, shapes: tuple[tuple[int, ...], ...], constants: tuple[int, ...]) -> None:
    x, y = integers(*shapes[0]), integers(*shapes[1], dtype=right, seed=1)
    check("MatMulInteger", x, y, np.uint8(113), right(55), outputs=[np.int32], constants=constants)


@pytest.mark.costly
def test_matmul_integer_zero_points() -> None:
    x, y = integers(6, 9), integers(9, 5, dtype=np.int8, seed=1)
    check("MatMulInteger", x, y, outputs=[np.int32])
    check("MatMulInteger", x, y, np.uint8(3), outputs=[np.int32])
    check("MatMulInteger", x, y, np.uint8(3), integers(5, dtype=np.int8, seed=2), outputs=[np.int32])


@pytest.mark.costly
def test_matmul_integer_of_a_shape_not_known_when_compiled() -> None:
    check("MatMulInteger", integers(2, 6, 9), integers(9, 5, seed=1), np.uint8(3), np.uint8(5), outputs=[np.int32],
          symbolic=True, constants=(1, 3))  # fmt: skip


@pytest.mark.costly
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("constants", [(), (1, 2, 3, 4, 5, 6, 7)])
def test_qlinear_matmul(dtype: type, per_column: bool, constants: tuple[int, ...]) -> None:
    x, y = integers(2, 5, 70, dtype=dtype), integers(70, 37, dtype=np.int8, seed=1)
    y_scale = np.abs(random(37)) / np.float32(50) + np.float32(0.001) if per_column else f32(0.011)
    y_zero = integers(37, dtype=np.int8, seed=2) if per_column else np.int8(4)
    check(
        "QLinearMatMul",
        x,
        f32(0.02),
        dtype(9),
        y,
        y_scale,
        y_zero,
        f32(0.7),
        dtype(20),
        outputs=[dtype],
        constants=constants,
    )


@pytest.mark.costly
@pytest.mark.parametrize("per_column", [False, True])
def test_products_as_real_numbers(per_column: bool) -> None:
    x, y = random(5, 70), integers(70, 36, dtype=np.int8, seed=1)
    scale = np.abs(random(36)) / np.float32(50) if per_column else f32(0.011)
    zero = integers(36, dtype=np.int8, seed=2) if per_column else np.int8(4)
    bias = random(36, seed=3)
    check("DynamicQuantizeMatMul", x, y, scale, zero, bias, domain=MICROSOFT, constants=(1, 2, 3))
    narrow = integers(5, 70)
    for given in (bias, None):
        check("MatMulIntegerToFloat", narrow, y, f32(0.02), scale, np.uint8(9), zero, given, domain=MICROSOFT,
              outputs=[np.float32], rtol=1e-5, atol=1e-4)  # fmt: skip


CONVOLUTIONS = [
    ((2, 3, 9, 11), (5, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 8, 10, 7), (16, 8, 1, 1), {}),
    ((1, 3, 13, 13), (12, 3, 3, 3), {"strides": [2, 2], "pads": [1, 0, 2, 1]}),
    ((1, 6, 9, 9), (6, 1, 3, 3), {"group": 6, "pads": [1, 1, 1, 1]}),
    ((1, 6, 9, 9), (18, 3, 3, 3), {"group": 2, "dilations": [2, 2]}),
    ((1, 6, 9, 9), (4, 3, 3, 3), {"group": 2, "auto_pad": "SAME_UPPER"}),
    ((2, 4, 21), (7, 4, 5), {"pads": [2, 2]}),
]


@pytest.mark.costly
@pytest.mark.parametrize(("shape", "kernel", "how"), CONVOLUTIONS)
@pytest.mark.parametrize("constants", [(), (1, 2, 3)])
def test_conv_integer(
    shape: tuple[int, ...], kernel: tuple[int, ...], how: dict[str, Any], constants: tuple[int, ...]
) -> None:
    check("ConvInteger", integers(*shape), integers(*kernel, seed=1), np.uint8(100), np.uint8(130), outputs=[np.int32],
          constants=constants, **how)  # fmt: skip


@pytest.mark.costly
@pytest.mark.parametrize(("shape", "kernel", "how"), CONVOLUTIONS)
@pytest.mark.parametrize(("left", "right"), [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)])
def test_qlinear_conv(
    shape: tuple[int, ...], kernel: tuple[int, ...], how: dict[str, Any], left: type, right: type
) -> None:
    features = kernel[0]
    scales = np.abs(random(features)) / np.float32(100) + np.float32(0.001)
    bias = np.random.default_rng(5).integers(-5000, 5000, features, np.int32)
    arrays = (integers(*shape, dtype=left), f32(0.02), left(60), integers(*kernel, dtype=right, seed=1), scales,
              np.zeros(features, right) + right(3), f32(0.31), left(77), bias)  # fmt: skip
    check("QLinearConv", *arrays, constants=range(1, 9), **how)


@pytest.mark.costly
def test_qlinear_conv_with_nothing_constant() -> None:
    arrays = (integers(1, 3, 7, 7), f32(0.02), np.uint8(60), integers(5, 3, 3, 3, dtype=np.int8), f32(0.01), np.int8(0),
              f32(0.31), np.uint8(77))  # fmt: skip
    check("QLinearConv", *arrays)


@pytest.mark.costly
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("constants", [(), tuple(range(1, 9))])
def test_qgemm(dtype: type, constants: tuple[int, ...]) -> None:
    bias = np.random.default_rng(5).integers(-5000, 5000, 11, np.int32)
    x, y = integers(7, 50, dtype=dtype), integers(11, 50, dtype=dtype, seed=1)
    scales = (f32(0.02), dtype(9)), (f32(0.013), dtype(3)), (f32(0.4), dtype(33))
    how: dict[str, Any] = {"domain": MICROSOFT, "transB": 1, "alpha": 0.5}
    check("QGemm", x, *scales[0], y, *scales[1], bias, *scales[2], outputs=[dtype], constants=constants, **how)
    check("QGemm", x, *scales[0], y, *scales[1], None, *scales[2], outputs=[dtype], **how)
    check("QGemm", x, *scales[0], y, *scales[1], bias, outputs=[np.float32], **how)


# ---- com.microsoft


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("constants", [(), (1, 2, 4, 5, 6, 7)])
@pytest.mark.parametrize("scales", [(0.02, 0.02, 0.04), (0.017, 0.031, 0.023), (0.5, 0.25, 1.0)])
def test_qlinear_binary(op: str, dtype: type, constants: tuple[int, ...], scales: tuple[float, ...]) -> None:
    a, b, c = map(f32, scales)
    x, y = integers(5, 301, dtype=dtype), integers(5, 301, dtype=dtype, seed=1)
    check(op, x, a, dtype(13), y, b, dtype(100), c, dtype(77), domain=MICROSOFT, constants=constants)


@pytest.mark.parametrize("op", ["QLinearSigmoid", "QLinearLeakyRelu"])
@pytest.mark.parametrize("dtype", BYTES)
def test_qlinear_unary(op: str, dtype: type) -> None:
    x = integers(5, 301, dtype=dtype)
    check(op, x, f32(0.03), dtype(13), f32(0.0041), dtype(5), domain=MICROSOFT, constants=(1, 2, 3, 4))


@pytest.mark.costly
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("rank", [1, 3])
def test_qlinear_softmax(dtype: type, rank: int) -> None:
    x, scales = integers(*(3, 5, 41)[-rank:], dtype=dtype), (f32(0.03), dtype(13), f32(1 / 256), dtype(0))
    for opset, axis in itertools.product((12, 13), {-1, 0, rank - 1}):
        built = compare.model(
            "QLinearSoftmax", [x, *map(np.asarray, scales)], axis=axis, domain=MICROSOFT, constants=(1, 2, 3, 4)
        )
        built.graph.node[0].attribute.append(helper.make_attribute("opset", opset))
        compare.check_model(built, [x])


@pytest.mark.parametrize("dtype", BYTES)
def test_qlinear_pools(dtype: type) -> None:
    x = integers(2, 5, 11, 9, dtype=dtype)
    scales = (f32(0.03), dtype(13), f32(0.021), dtype(5))
    check("QLinearGlobalAveragePool", x, *scales, domain=MICROSOFT, constants=(1, 2, 3, 4))
    check(
        "QLinearAveragePool",
        x,
        *scales,
        domain=MICROSOFT,
        constants=(1, 2, 3, 4),
        kernel_shape=[3, 2],
        pads=[1, 0, 1, 1],
    )


def test_qlinear_concat() -> None:
    x, y = integers(2, 5, 7), integers(2, 4, 7, seed=1)
    check("QLinearConcat", f32(0.02), np.uint8(3), x, f32(0.02), np.uint8(3), y, f32(0.031), np.uint8(9), axis=1,
          domain=MICROSOFT, outputs=[np.uint8], constants=(0, 1, 3, 4, 6, 7))  # fmt: skip


def test_qlinear_where() -> None:
    x, y = integers(5, 7), integers(5, 7, seed=1)
    condition = random(5, 7, dtype=np.bool_)
    check("QLinearWhere", condition, x, f32(0.02), np.uint8(3), y, f32(0.04), np.uint8(9), f32(0.03), np.uint8(20),
          domain=MICROSOFT, outputs=[np.uint8], constants=range(2, 4))  # fmt: skip
