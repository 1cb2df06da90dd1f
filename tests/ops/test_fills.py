"""Operators of constants alone, which fill shapes that only a run knows: no kernel is refused, and results are those of data.

A compiler of WGSL calculates what is made of literals alone, and refuses what is not finite, overflows or is outside of a domain.
Constant zeros beside data are here too: drivers take products with them and quotients of them for 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper
from onnx.helper import make_node

from tests import support
from tests.targets import EVERY_KERNEL

FLUSHED = 1.2e-38  # what is below may be 0 on an adapter, and is not where a constant is calculated beforehand

SPECIAL = (-1, 0, 1e38, -1e38, np.inf, np.nan, 0.5)
FLOATS = (*SPECIAL, -2, 2, 1e-38, 3e38, -np.inf, 300)
INTEGERS = (-1, 0, 2, 33, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63))
UNARY = (
    *("Abs", "Neg", "Sign", "Sqrt", "Exp", "Log", "Reciprocal", "Floor", "Ceil", "Round", "Sin", "Tan", "Asin", "Acos"),
    *("Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Erf", "Relu", "Elu", "Selu", "Tanh", "Sigmoid", "HardSwish"),
    *("Mish", "Softplus", "Softsign", "Gelu", "IsNaN", "IsInf"),
)
BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Min", "Max", "Equal", "Less", "PRelu")
BITS = ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift")
ATTRIBUTES = {"BitShift": {"direction": "LEFT"}}


def numbers(dtype: Any, given: Sequence[float]) -> list[np.ndarray]:
    """Of the numbers those that the type has."""
    limits = np.iinfo(dtype) if np.issubdtype(dtype, np.integer) else None
    with np.errstate(over="ignore"):
        return [np.array([it], dtype) for it in given if limits is None or limits.min <= it <= limits.max]


def filled(op: str, tuples: Sequence[tuple[np.ndarray, ...]], constant: bool, **attributes: Any) -> list[np.ndarray]:
    """An operator on each tuple of numbers, as constants or as data."""
    named = {str(it): (f"c{k}", it) for k, it in enumerate({str(it): it for t in tuples for it in t}.values())}
    nodes = [make_node("Shape", ["x"], ["s"])] if constant else []
    inputs: dict[str, tuple[Any, list[Any]]] = {"x": (np.float32, ["n"])}
    for name, it in named.values():
        if constant:
            nodes.append(make_node("ConstantOfShape", ["s"], [name], value=numpy_helper.from_array(it, "value")))
        else:
            inputs[name] = (it.dtype, ["n"])
    for k, operands in enumerate(tuples):
        nodes.append(make_node(op, [named[str(it)][0] for it in operands], [f"y{k}"], **attributes))
    data = [] if constant else [np.repeat(it, 3) for _, it in named.values()]
    return support.run_model(support.make_model(nodes, inputs), np.zeros(3, np.float32), *data)


def check(op: str, tuples: Sequence[tuple[np.ndarray, ...]], **attributes: Any) -> None:
    results = (filled(op, tuples, constant, **attributes) for constant in (True, False))
    for operands, got, want in zip(tuples, *results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=FLUSHED, err_msg=f"{op} {operands}")


@pytest.mark.costly
@EVERY_KERNEL
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_functions_of_constant_floats(dtype: Any) -> None:
    for op in UNARY:
        check(op, [(it,) for it in numbers(dtype, FLOATS)])


@pytest.mark.costly
@EVERY_KERNEL
def test_functions_of_two_constant_floats() -> None:
    pairs = list(itertools.product(numbers(np.float32, SPECIAL), repeat=2))
    for op in BINARY:
        # Drivers take x - x for 0, of infinities too, where x is no constant.
        tuples = [(a, b) for a, b in pairs if op != "Sub" or a is not b]
        check(op, tuples, **({"fmod": 1} if op == "Mod" else {}))


@pytest.mark.costly
@EVERY_KERNEL
@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_operators_of_constant_integers(dtype: Any) -> None:
    given = numbers(dtype, INTEGERS)
    for op in ("Abs", "Neg", "Sign", "BitwiseNot"):
        check(op, [(it,) for it in given])
    for op in (*BINARY, *BITS):
        check(op, list(itertools.product(given, repeat=2)), **ATTRIBUTES.get(op, {}))


@EVERY_KERNEL
@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_constants_of_64_bits_become_floats_in_one_rounding(dtype: Any) -> None:
    """As f64 it would become 2^60 + 2^36, halfway between two f32."""
    given = np.array([2**60 + 2**36 + 1], dtype)
    (y,) = filled("Cast", [(given,)], True, to=1)
    np.testing.assert_array_equal(y, np.float32([2**60 + 2**37] * 3))


@EVERY_KERNEL
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_constant_zero_is_a_number_like_others(zero: float) -> None:
    x = np.float32([1, -2, 0, -0.0, np.inf, -np.inf, np.nan, 3e38])
    c = np.float32(zero)
    with np.errstate(all="ignore"):
        wanted = {("Div", "xc"): x / c, ("Div", "cx"): c / x, ("Mul", "xc"): x * c, ("Mul", "cx"): c * x}
    for (op, operands), want in wanted.items():
        model = support.make_model([make_node(op, list(operands), ["y"])], {"x": (np.float32, ["n"])}, {"c": c})
        (y,) = support.run_model(model, x)
        np.testing.assert_array_equal(y, want)
        np.testing.assert_array_equal(np.signbit(y[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))
