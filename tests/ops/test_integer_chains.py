"""Integers that were cast and then meet constants at the edges of every width, in one kernel and across kernels.

A compiler sees through a conversion: that a value came from 32 bits, or from a bool, decides how it folds a comparison or
a minimum, and drivers have done so wrongly. So every operator follows every cast, with the cast's result also stored and
read again, on native 64-bit integers and on pairs. Python's integers are the oracle; results wrap to their type.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import support

EDGES = sorted(
    {0, 1, 2, 3, 5, 127, 128, 255, 256, 32767, 65536}
    | {s * (2**bits + d) for bits in (31, 32, 33, 53, 63) for d in (-1, 0, 1) for s in (1, -1)}
    | {-1, -2, -7, -128, -129, -(2**62), 2**64 - 1, 2**64 - 2}
)
CONSTANTS = [
    0,
    1,
    2,
    -1,
    7,
    2**31 - 1,
    2**31,
    -(2**31),
    -(2**31) - 1,
    2**32 - 1,
    2**32,
    -(2**32),
    2**63 - 1,
    -(2**63),
    2**64 - 1,
]
WIDTHS = [np.int32, np.uint32, np.int64, np.uint64]
CASTS = [(s, t) for s in (bool, np.int8, *WIDTHS) for t in WIDTHS]


def truncated(x: int, y: int) -> int:
    """The quotient towards zero; by zero the dividend, as WGSL defines it."""
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else x


COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "Less": lambda x, y: x < y,
    "LessOrEqual": lambda x, y: x <= y,
    "Greater": lambda x, y: x > y,
    "GreaterOrEqual": lambda x, y: x >= y,
    "Equal": lambda x, y: x == y,
}
ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "Add": lambda x, y: x + y,
    "Sub": lambda x, y: x - y,
    "Mul": lambda x, y: x * y,
    "Div": truncated,
    "Mod": lambda x, y: x % y if y else 0,
    "Max": max,
    "Min": min,
    "BitwiseAnd": lambda x, y: x & y,
    "BitwiseXor": lambda x, y: x ^ y,
}
UNARY: dict[str, Callable[[int], int]] = {
    "Abs": abs,
    "Sign": lambda x: (x > 0) - (x < 0),
    "Neg": lambda x: -x,
    "BitwiseNot": lambda x: ~x,
}


def wrap(value: int, dtype: Any) -> int:
    """The low bits of a value as a number of the type; anything but zero is true."""
    if np.dtype(dtype) == bool:
        return int(value != 0)
    limits = np.iinfo(dtype)
    return (value - int(limits.min)) % (int(limits.max) - int(limits.min) + 1) + int(limits.min)


def within(dtype: Any, values: list[int]) -> list[int]:
    return [v for v in values if wrap(v, dtype) == v]


def code(dtype: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


class Chain:
    """A model that casts `x` and then applies operators to the result, one output for each."""

    def __init__(self, source: Any, kind: Any) -> None:
        self.source, self.kind = source, kind
        self.nodes = [helper.make_node("Cast", ["x"], ["v"], to=code(kind))]
        self.weights: dict[str, np.ndarray] = {}
        self.want: dict[str, tuple[Any, list[int]]] = {}
        self.x = within(source, EDGES)
        self.v = [wrap(x, kind) for x in self.x]

    def constant(self, value: int) -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = np.array(value, self.kind)
        return name

    def add(self, op: str, inputs: list[str], want: list[int], dtype: Any = None, **attributes: Any) -> None:
        name = f"{op}_{len(self.want)}"
        dtype = dtype or self.kind
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        self.want[name] = dtype, [wrap(value, dtype) for value in want]

    def check(self, int64: str) -> None:
        graph = helper.make_graph(
            self.nodes,
            "chain",
            [helper.make_tensor_value_info("x", code(self.source), ["n"])],
            [helper.make_tensor_value_info(n, code(d), ["n"]) for n, (d, _) in self.want.items()],
            [numpy_helper.from_array(w, n) for n, w in self.weights.items()],
        )
        built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        results = support.run_model(built, np.array(self.x, self.source), int64=int64)
        constants = {n: int(w) for n, w in self.weights.items()}
        inputs = {node.output[0]: [constants.get(i, i) for i in node.input] for node in self.nodes}
        wrong = [
            f"{name.split('_')[0]}({', '.join(map(str, inputs[name]))}) of v = {v}: {got}, not {want}"
            for (name, (_, wanted)), result in zip(self.want.items(), results, strict=True)
            for v, got, want in zip(self.v, result.tolist(), wanted, strict=True)
            if got != want
        ]
        assert not wrong, "\n".join(wrong[:20])


def ways(pairs: list[tuple[Any, Any]]) -> list[Any]:
    """Both ways to calculate 64-bit integers, where there are any."""
    found = []
    for source, kind in pairs:
        for int64 in ("native", "pair"):
            if int64 == "native" or 8 in (np.dtype(source).itemsize, np.dtype(kind).itemsize):
                found.append(pytest.param(source, kind, int64, id=f"{np.dtype(source)}-{np.dtype(kind)}-{int64}"))
    return found


@pytest.mark.costly
@pytest.mark.parametrize(("source", "kind", "int64"), ways(CASTS))
def test_comparisons_with_constants(source: Any, kind: Any, int64: str) -> None:
    chain = Chain(source, kind)
    for constant in within(kind, CONSTANTS):
        name = chain.constant(constant)
        for op, compare in COMPARISONS.items():
            chain.add(op, ["v", name], [compare(v, constant) for v in chain.v], bool)
            if op != "Equal":
                chain.add(op, [name, "v"], [compare(constant, v) for v in chain.v], bool)
    chain.check(int64)


@pytest.mark.costly
@pytest.mark.parametrize(("source", "kind", "int64"), ways(CASTS))
def test_arithmetic_with_constants(source: Any, kind: Any, int64: str) -> None:
    chain = Chain(source, kind)
    for constant in within(kind, CONSTANTS):
        name = chain.constant(constant)
        for op, calculate in ARITHMETIC.items():
            chain.add(op, ["v", name], [calculate(v, constant) for v in chain.v])
        chain.add(
            "Mod", ["v", name], [v - truncated(v, constant) * constant if constant else 0 for v in chain.v], fmod=1
        )
    chain.check(int64)


@pytest.mark.costly
@pytest.mark.parametrize(("source", "kind", "int64"), ways(CASTS))
def test_selections_and_signs(source: Any, kind: Any, int64: str) -> None:
    chain = Chain(source, kind)
    signed = np.dtype(kind).kind == "i"
    for op, calculate in UNARY.items():
        if signed or op != "Neg":
            chain.add(op, ["v"], [calculate(v) for v in chain.v])
    for low, high in ((0, 1), (-1, 2**31), (1, 2**32), (-(2**31), 2**31 - 1), (2**31, 2**63 - 1), (-(2**63), -1)):
        if within(kind, [low, high]) == [low, high]:
            names = [chain.constant(low), chain.constant(high)]
            chain.add("Clip", ["v", *names], [min(max(v, low), high) for v in chain.v])
    if not signed:
        for places in (0, 1, 31, 32, 63, 64):
            bits = np.dtype(kind).itemsize * 8
            name = chain.constant(places)
            shifted = [(v << places if places < bits else 0, v >> places) for v in chain.v]
            chain.add("BitShift", ["v", name], [left for left, _ in shifted], direction="LEFT")
            chain.add("BitShift", ["v", name], [right for _, right in shifted], direction="RIGHT")
    for target in (bool, np.int8, np.uint16, *WIDTHS):
        if target is not kind:
            chain.add("Cast", ["v"], chain.v, target, to=code(target))
    chain.check(int64)


@cache
def _range_model(constant: int) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Squeeze", ["shape"], ["n"]),
        helper.make_node("Range", ["zero", "n", "one"], ["r"]),
        helper.make_node("GreaterOrEqual", ["r", "c"], ["ge"]),
        helper.make_node("Less", ["r", "c"], ["lt"]),
        helper.make_node("Where", ["lt", "r", "c"], ["least"]),
    ]
    weights = {"zero": 0, "one": 1, "c": constant}
    graph = helper.make_graph(
        nodes,
        "range",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [
            helper.make_tensor_value_info("ge", TensorProto.BOOL, None),
            helper.make_tensor_value_info("lt", TensorProto.BOOL, None),
            helper.make_tensor_value_info("least", TensorProto.INT64, None),
        ],
        [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("int64", ["native", "pair"])
@pytest.mark.parametrize("constant", [0, 1, 5, -1, 2**31, 2**40])
def test_ranges_against_constants(constant: int, int64: str) -> None:
    """The elements of a Range are indices of 32 bits made 64 wide, and never stored."""
    ge, lt, least = support.run_model(_range_model(constant), np.zeros(9, np.float32), int64=int64)
    r = np.arange(9)
    np.testing.assert_array_equal(ge, r >= constant)
    np.testing.assert_array_equal(lt, r < constant)
    np.testing.assert_array_equal(least, np.minimum(r, constant))
