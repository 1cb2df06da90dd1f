"""Pointwise, comparison, logical and conversion operators: special values, broadcasting, every element type."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests import support

from .compare import SPECIAL, both_ways, check, check_model, model, random

UNARY = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Ceil",
    "Celu",
    "Cos",
    "Cosh",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Log",
    "Mish",
    "Neg",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Shrink",
    "Gelu",
]
NUMBERS = [np.float32, np.float16, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
# Turns are taken out of an angle exactly up to here.
LARGEST = {"Sin": 1e5, "Cos": 1e5, "Tan": 1e5}


@pytest.mark.parametrize("op", UNARY)
def test_unary_special_values(op: str) -> None:
    x = np.concatenate([SPECIAL, np.linspace(-6, 6, 101, dtype=np.float32)])
    if op in LARGEST:
        x = x[~(np.abs(x) > LARGEST[op])]
    check(op, x, rtol=2e-5)


@pytest.mark.parametrize("op", ["Abs", "Neg", "Relu", "Sqrt", "Exp", "Tanh", "Sigmoid", "Gelu", "Round", "Erf"])
def test_unary_float16(op: str) -> None:
    check(op, random(3, 5, 7, dtype=np.float16))


@pytest.mark.parametrize("op", ["Abs", "Neg", "Sign"])
@pytest.mark.parametrize(("dtype", "int64"), both_ways(NUMBERS))
def test_unary_types(op: str, dtype: type, int64: str) -> None:
    if op != "Neg" or np.dtype(dtype).kind != "u":  # ONNX does not negate unsigned integers
        check(op, random(37, dtype=dtype), int64=int64)


@pytest.mark.parametrize("op", ["IsNaN", "IsInf"])
def test_predicates(op: str) -> None:
    check(op, SPECIAL, outputs=[bool])


@pytest.mark.parametrize("negative", [0, 1])
@pytest.mark.parametrize("positive", [0, 1])
def test_is_inf_detects_what_it_is_asked_for(negative: int, positive: int) -> None:
    check("IsInf", SPECIAL, outputs=[bool], detect_negative=negative, detect_positive=positive)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Pow"])
def test_binary_special_values(op: str) -> None:
    x, y = np.meshgrid(SPECIAL, SPECIAL)
    check(op, np.ascontiguousarray(x), np.ascontiguousarray(y), rtol=5e-5)


@pytest.mark.parametrize("op", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
def test_comparisons_of_special_values(op: str) -> None:
    x, y = np.meshgrid(SPECIAL, SPECIAL)
    check(op, np.ascontiguousarray(x), np.ascontiguousarray(y), outputs=[bool])


@pytest.mark.costly
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Mod"])
@pytest.mark.parametrize(("dtype", "int64"), both_ways(NUMBERS))
def test_binary_types(op: str, dtype: type, int64: str) -> None:
    x, y = random(5, 9, dtype=dtype), random(9, dtype=dtype, seed=1)
    y = np.where(y == 0, np.array(3, dtype), y)
    check(op, x, y, int64=int64, **({"fmod": 1} if op == "Mod" and np.dtype(dtype).kind == "f" else {}))


@pytest.mark.parametrize("op", ["Equal", "Less", "GreaterOrEqual"])
@pytest.mark.parametrize(("dtype", "int64"), both_ways(NUMBERS))
def test_comparison_types(op: str, dtype: type, int64: str) -> None:
    check(op, random(4, 1, 7, dtype=dtype), random(3, 1, dtype=dtype, seed=1), outputs=[bool], int64=int64)


@pytest.mark.parametrize("op", ["And", "Or", "Xor", "Equal"])
def test_logical(op: str) -> None:
    check(op, random(7, 1, dtype=bool), random(5, dtype=bool, seed=1))


def test_not() -> None:
    check("Not", random(11, dtype=bool))


@pytest.mark.parametrize("op", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint16, np.uint64])
def test_bitwise(op: str, dtype: type) -> None:
    check(op, random(33, dtype=dtype), random(33, dtype=dtype, seed=1))


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize(("dtype", "int64"), both_ways([np.uint8, np.uint16, np.uint32, np.uint64]))
def test_bit_shift(direction: str, dtype: type, int64: str) -> None:
    bits = np.dtype(dtype).itemsize * 8
    check("BitShift", random(bits, dtype=dtype) + 1, np.arange(bits).astype(dtype), direction=direction, int64=int64)


@pytest.mark.parametrize("fmod", [0, 1])
@pytest.mark.parametrize(("dtype", "int64"), both_ways([np.int32, np.int64]))
def test_remainders_of_negative_numbers(fmod: int, dtype: type, int64: str) -> None:
    x, y = np.meshgrid(np.arange(-9, 10).astype(dtype), np.array([-7, -2, -1, 1, 3, 9], dtype))
    check("Mod", np.ascontiguousarray(x), np.ascontiguousarray(y), fmod=fmod, int64=int64)


def test_fmod_of_far_apart_numbers() -> None:
    x = np.array([1e30, -1e30, 7.5, 1e-30, 3e38, np.inf, 5, -5, np.nan], np.float32)
    y = np.array([3, 7, np.inf, 1e-38, 1e-3, 2, 0, -np.inf, 1], np.float32)
    check("Mod", x, y, fmod=1)


@pytest.mark.parametrize(
    ("base", "exponent"),
    [
        (np.int32, np.int32),
        (np.int64, np.int64),
        (np.float32, np.int64),
        (np.int32, np.float32),
        (np.float32, np.float32),
    ],
)
@pytest.mark.parametrize("int64", ["native", "pair"])
def test_power_types(base: type, exponent: type, int64: str) -> None:
    x, y = np.meshgrid(np.array([-3, -1, 1, 2, 7], base), np.array([0, 1, 2, 3, 5], exponent))
    check("Pow", np.ascontiguousarray(x), np.ascontiguousarray(y), int64=int64)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0, -1.0, 0.0])
def test_power_with_a_constant_exponent(exponent: float) -> None:
    check("Pow", SPECIAL, np.array(exponent, np.float32), constants=[1])


@pytest.mark.parametrize("op", ["Max", "Min", "Sum", "Mean"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_variadic(op: str, count: int) -> None:
    check(op, *(random(3, k % 2 * 3 + 1, dtype=np.float32, seed=k) for k in range(count)))


@pytest.mark.parametrize("opset", [6, 11, 13])
def test_clip(opset: int) -> None:
    if opset == 6:
        check("Clip", SPECIAL, opset=6, min=-1.0, max=2.0)
    else:
        check("Clip", SPECIAL, np.array(-1, np.float32), np.array(2, np.float32), opset=opset)
        check("Clip", SPECIAL, None, np.array(2, np.float32), opset=opset)
        check("Clip", SPECIAL, opset=opset)


@pytest.mark.parametrize(("dtype", "int64"), both_ways([np.int8, np.int32, np.int64, np.uint8, np.uint64, np.float16]))
def test_clip_types(dtype: type, int64: str) -> None:
    check("Clip", random(41, dtype=dtype), np.array(3, dtype), np.array(40, dtype), int64=int64)


@pytest.mark.parametrize("dtype", [*NUMBERS, np.bool_])
def test_where(dtype: type) -> None:
    check(
        "Where", random(5, 1, dtype=bool), random(7, dtype=dtype), random(2, 5, 7, dtype=dtype, seed=1), outputs=[dtype]
    )


@pytest.mark.parametrize(("source", "int64"), both_ways([*NUMBERS, np.bool_]))
@pytest.mark.parametrize("to", [*NUMBERS, np.bool_])
def test_cast(source: type, to: type, int64: str) -> None:
    x = random(35, dtype=source)
    if np.dtype(source).kind == "f":
        x = np.abs(x * 20) if np.dtype(to).kind == "u" else x * 20
    code = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    with np.errstate(all="ignore"):
        check("Cast", x, outputs=[to], to=code, int64=int64, want=[x.astype(to)])


@pytest.mark.costly
@pytest.mark.parametrize("int64", ["native", "pair"])
def test_cast_of_large_numbers(int64: str) -> None:
    x = np.array([2**24 + 1, 2**31 - 1, -(2**31), 2**53 + 1, 2**62 + 1, -(2**63), 2**63 - 1, -1, 0], np.int64)
    check("Cast", x, outputs=[np.float32], to=TensorProto.FLOAT, int64=int64)
    check("Cast", x, outputs=[np.int32], to=TensorProto.INT32, int64=int64)
    check("Cast", x, outputs=[np.bool_], to=TensorProto.BOOL, int64=int64)
    check("Cast", x.view(np.uint64), outputs=[np.float32], to=TensorProto.FLOAT, int64=int64)
    y = np.array([0.99, -0.99, 1e9, -1e9, 2.0**40, -(2.0**62), 16777217.0, 3.0], np.float32)
    check("Cast", y, outputs=[np.int64], to=TensorProto.INT64, int64=int64)


def test_cast_of_special_floats_to_bool() -> None:
    check("Cast", SPECIAL, outputs=[np.bool_], to=TensorProto.BOOL)


def _chain(nodes: list, x: np.ndarray, out: type) -> None:
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x0", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(np.dtype(out)), None)],
    )
    check_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), [x])


@pytest.mark.costly
def test_fused_narrow_integers_wrap_where_they_would_be_stored() -> None:
    x = np.arange(-300, 300, 7).astype(np.int32)
    for code in (TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT16, TensorProto.INT16):
        _chain(
            [
                helper.make_node("Cast", ["x0"], ["n"], to=code),
                helper.make_node("Cast", ["n"], ["y"], to=TensorProto.INT32),
            ],
            x,
            np.int32,
        )


def test_fused_casts_to_float16_round() -> None:
    x = np.array([1.0001, 3.14159, 65519.0, 65520.0, 1e6, -1e6, 6e-8, np.inf, np.nan], np.float32)
    _chain(
        [
            helper.make_node("Cast", ["x0"], ["h"], to=TensorProto.FLOAT16),
            helper.make_node("Cast", ["h"], ["y"], to=TensorProto.FLOAT),
        ],
        x,
        np.float32,
    )


@pytest.mark.parametrize("op", ["Add", "Exp", "Where", "Cast"])
def test_empty_tensors(op: str) -> None:
    x = np.zeros((3, 0, 2), np.float32)
    if op == "Where":
        check(op, np.zeros((3, 0, 2), bool), x, x, outputs=[np.float32])
    else:
        check(
            op,
            *([x, x] if op == "Add" else [x]),
            **({"to": TensorProto.INT32, "outputs": [np.int32]} if op == "Cast" else {}),
        )


def test_broadcasting_of_dimensions_that_are_unknown_until_a_run() -> None:
    runner = support.Runner(support.compile_model(model("Add", [np.zeros((1, 1), np.float32)] * 2, symbolic=True)))
    for left, right in (((3, 1), (1, 5)), ((3, 5), (3, 5)), ((1, 1), (4, 2)), ((4, 2), (1, 2))):
        x, y = random(*left), random(*right, seed=1)
        np.testing.assert_array_equal(runner(x, y)[0], x + y)


@pytest.mark.parametrize("op", ["PRelu", "LeakyRelu", "Elu"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_activations_with_parameters(op: str, dtype: type) -> None:
    x = random(2, 3, 5, dtype=dtype)
    check(
        op,
        x,
        *([random(3, 1, dtype=dtype, seed=1)] if op == "PRelu" else []),
        **({} if op == "PRelu" else {"alpha": 0.3}),
    )


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate: str) -> None:
    check("Gelu", np.linspace(-8, 8, 333, dtype=np.float32), approximate=approximate)


@pytest.mark.parametrize("shape", [[3, 4, 5], ["n", 5], []], ids=str)
def test_the_mask_of_dropout_is_all_true_and_reads_nothing(shape: list[int | str]) -> None:
    node = helper.make_node("Dropout", ["x"], ["y", "mask"])
    x = random(*(3 if isinstance(d, str) else d for d in shape))
    y, mask = support.run_model(support.make_model([node], {"x": (np.float32, shape)}), x)
    np.testing.assert_array_equal(y, x)
    assert mask.dtype == bool and mask.shape == x.shape and mask.all()


@pytest.mark.parametrize("opset, mask", [(7, np.float32), (10, bool), (11, bool)])
def test_the_mask_of_dropout_before_version_12_is_that_of_the_cpu_provider(opset: int, mask: type) -> None:
    check("Dropout", random(3, 5), opset=opset, outputs=[np.float32, mask], ratio=0.3)


@pytest.mark.parametrize("ratio, training", [(0.0, True), (0.0, False), (0.75, False), (None, False)])
def test_dropout_that_drops_nothing(ratio: float | None, training: bool) -> None:
    operands = [None if ratio is None else np.array(ratio, np.float32), np.array(training)]
    check("Dropout", random(3, 5), *operands, constants=(1, 2), outputs=[np.float32, bool])


@pytest.mark.parametrize("ratio", [1.0, -0.25, np.nan])
def test_dropout_with_a_ratio_that_is_none_is_refused(ratio: float) -> None:
    with pytest.raises(UnsupportedError, match=r"ratio .* must be 0 or more and less than 1"):
        check("Dropout", random(3), np.array(ratio, np.float32), constants=(1,), want=[])
