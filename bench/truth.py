"""f64 references of pointwise operators: the definitions of ONNX, with parameters rounded to f32 as in a model.

In: f64 arrays with f32 values. Out: f64 values, accurate to about 2^-50 of the result. Therefore formulas with cancellation are
avoided: 0.5 * erfc(-x / sqrt(2)) instead of 0.5 * (1 + erf(x / sqrt(2))).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)


def f32(value: float) -> float:
    return float(np.float32(value))


def sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def gelu(x: Array, approximate: str = "none") -> Array:
    if approximate == "tanh":
        return x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return x * 0.5 * _erfc(-x / math.sqrt(2)).astype(np.float64)


def mish(x: Array) -> Array:
    e = np.exp(np.minimum(x, 40))
    n = e * (e + 2)
    return x * (n / (n + 2))


def softplus(x: Array) -> Array:
    return np.where(np.isnan(x), x, np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def elu(x: Array, alpha: float = 1.0) -> Array:
    return np.where(x < 0, f32(alpha) * np.expm1(x), x)


def celu(x: Array, alpha: float = 1.0) -> Array:
    return np.maximum(x, 0) + np.minimum(f32(alpha) * np.expm1(x / f32(alpha)), 0)


def selu(x: Array) -> Array:
    alpha, gamma = 1.67326319217681884765625, 1.05070102214813232421875
    return np.where(x > 0, gamma * x, gamma * alpha * np.expm1(np.where(x > 0, 0, x)))


def shrink(x: Array) -> Array:
    return np.where(x < -0.5, x, np.where(x > 0.5, x, 0))


def hard_swish(x: Array) -> Array:
    return x * (np.clip(x + 3, 0, 6) / 6)


TRUTH: dict[str, Callable[..., Array]] = {
    "Abs": np.abs,
    "Neg": np.negative,
    "Sign": np.sign,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.round,
    "Relu": lambda x: np.where(x < 0, 0, x),
    "ThresholdedRelu": lambda x: np.where(x > 1, x, 0),
    "Sqrt": np.sqrt,
    "Reciprocal": lambda x: 1 / x,
    "Exp": np.exp,
    "Log": np.log,
    "Sin": np.sin,
    "Cos": np.cos,
    "Tan": np.tan,
    "Asin": np.arcsin,
    "Acos": np.arccos,
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Tanh": np.tanh,
    "Asinh": np.arcsinh,
    "Acosh": np.arccosh,
    "Atanh": np.arctanh,
    "Erf": lambda x: _erf(x).astype(np.float64),
    "Sigmoid": sigmoid,
    "Softplus": softplus,
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "HardSwish": hard_swish,
    "HardSigmoid": lambda x: np.clip(f32(0.2) * x + 0.5, 0, 1),
    "Mish": mish,
    "Elu": elu,
    "Celu": celu,
    "Selu": selu,
    "LeakyRelu": lambda x: np.where(x < 0, f32(0.01) * x, x),
    "Shrink": shrink,
    "Swish": lambda x, alpha=1.0: x * sigmoid(f32(alpha) * x),
    "Gelu": gelu,
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mod": lambda x, y, fmod=1: np.fmod(x, y),
    "Pow": np.power,
}
