"""Operators that make an element of those at its place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import values
from .registry import RULES, Function, rule

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _softplus(x: Any) -> Any:
    return np.logaddexp(0, x)


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


UNARY: dict[str, Function] = {
    "Abs": np.abs, "Acos": np.arccos, "Acosh": np.arccosh, "Asin": np.arcsin, "Asinh": np.arcsinh, "Atan": np.arctan,
    "Atanh": np.arctanh, "Ceil": np.ceil, "Cos": np.cos, "Cosh": np.cosh, "Erf": _erf, "Exp": np.exp, "Floor": np.floor,
    "Log": np.log, "Neg": np.negative, "Reciprocal": np.reciprocal, "Round": np.rint, "Sign": np.sign, "Sin": np.sin,
    "Sinh": np.sinh, "Sqrt": np.sqrt, "Tan": np.tan, "Tanh": np.tanh, "Not": np.logical_not, "BitwiseNot": np.invert,
    "Identity": lambda x: x, "Dropout": lambda x, **a: x,
    "IsNaN": np.isnan, "Relu": lambda x: np.maximum(x, 0), "Sigmoid": _sigmoid,
    "Softplus": _softplus, "Softsign": lambda x: x / (1 + np.abs(x)), "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Mish": lambda x: x * np.tanh(_softplus(x)),
    "LeakyRelu": lambda x, alpha: np.where(x < 0, alpha * x, x),
    "Elu": lambda x, alpha: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
    "Celu": lambda x, alpha: np.maximum(x, 0) + np.minimum(alpha * np.expm1(np.minimum(x, 0) / alpha), 0),
    "Selu": lambda x, alpha, gamma: gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    "HardSigmoid": lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    "ThresholdedRelu": lambda x, alpha: np.where(x > alpha, x, 0),
    "Shrink": lambda x, bias, lambd: np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)),
    "Swish": lambda x, alpha: x * _sigmoid(alpha * x), "Gelu": _gelu,
    "IsInf": lambda x, detect_negative, detect_positive: np.isinf(x) & np.where(x < 0, detect_negative, detect_positive) > 0,
}  # fmt: skip


def _divide(x: Any, y: Any) -> Any:
    if x.dtype.kind == "f":
        return x / y
    if x.dtype.kind == "u":
        return x // y
    quotient = np.abs(x) // np.abs(y)
    return (np.sign(x) * np.sign(y) * quotient).astype(x.dtype)


def _mod(x: Any, y: Any, fmod: int) -> Any:
    return np.fmod(x, y) if fmod else np.mod(x, y)


def _pow(x: Any, y: Any) -> Any:
    return np.power(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)


def _shift(x: Any, y: Any, direction: str) -> Any:
    return np.left_shift(x, y) if direction == "LEFT" else np.right_shift(x, y)


BINARY: dict[str, Function] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": _divide, "Pow": _pow, "Mod": _mod,
    "Equal": np.equal, "Less": np.less, "LessOrEqual": np.less_equal, "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal, "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor,
    "BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor, "BitShift": _shift,
    "PRelu": lambda x, y: np.where(x < 0, x * y, x),
}  # fmt: skip
RULES |= UNARY | BINARY


@rule("Sum")
def _sum(*xs: Any) -> Any:
    return sum(xs[1:], start=xs[0])


@rule("Mean")
def _mean(*xs: Any) -> Any:
    return sum(xs[1:], start=xs[0]) / len(xs)


@rule("Min")
def _min(*xs: Any) -> Any:
    return np.minimum.reduce(np.broadcast_arrays(*xs))


@rule("Max")
def _max(*xs: Any) -> Any:
    return np.maximum.reduce(np.broadcast_arrays(*xs))


RULES["Where"] = np.where


@rule("Clip")
def _clip(x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else np.maximum(x, np.reshape(low, ()))
    return x if high is None else np.minimum(x, np.reshape(high, ()))


def cast(x: Any, to: str) -> Any:
    """Floats stay float64; a float becomes an integer by truncation."""
    if to in values.UNIT:
        return x.astype(np.float64)
    if to == "bool":
        return x != 0
    whole = np.trunc(x) if x.dtype.kind == "f" else x
    if x.dtype.kind == "f" and whole.size:
        limits = np.iinfo(to)
        if whole.min() < limits.min or whole.max() > min(limits.max, 2**62):
            raise ValueError("a float beyond the integer type has no defined value")
    return whole.astype(to)
