"""Operators of com.microsoft on quantised tensors, except those with matrix products.

A tensor has one scale and one zero point for all its elements. Sums and products are computed exactly as the CPU provider
does, because a sum of multiples of scales is often a tie. Operators for which the CPU provider uses a table of 256 results
are dequantised, computed, and quantised again.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import product
from ..builder import Builder, Operand
from .activations import activated
from .choices import Flag
from .parts import concat
from .pool import average_pool
from .quantize import BYTES, centred, quantized, rounded
from .reduction import reduce_axes
from .registry import BOOLS, FLOATS, op
from .softmax import softmax_along, softmax_from
from .window import PoolAttributes

SCALES: dict[str, Any] = {"x_scale": FLOATS, "y_scale": FLOATS, "scale": FLOATS}


def _scalar_parameter(b: Builder, p: Operand) -> Operand:
    """Returns a scale or zero point as a scalar."""
    if p.size != 1:
        raise UnsupportedError("scales per axis are not supported")
    return b.reshape(p, ())


def _zero(b: Builder, zero: Operand | None, dtype: DType) -> Operand:
    return b.constant(np.zeros((), dtype.numpy)) if zero is None else _scalar_parameter(b, zero)


def _dequantized(b: Builder, x: Operand, scale: Operand, zero: Operand | None) -> Operand:
    """Returns x as real numbers, rounded before anything is added, as on the CPU provider."""
    operands = {"x": x, "s": _scalar_parameter(b, scale), "zero": _zero(b, zero, x.dtype)}
    expression = "rounded(f32(i32(x) - i32(zero)) * s)"
    return b.pointwise(expression, operands, DType.FLOAT32, x.shape, cost=4, inline=True)


def _scalar(b: Builder, expression: str, **operands: Operand) -> Operand:
    """Returns an expression over scalars, evaluated now if these are constant."""
    values = {n: o.constant for n, o in operands.items()}
    if all(v is not None for v in values.values()):
        return b.constant(
            np.asarray(_ON_HOST[expression](**{n: np.float32(v) for n, v in values.items()}), np.float32).reshape(())
        )
    return b.pointwise(expression, operands, DType.FLOAT32)


_ON_HOST: dict[str, Any] = {
    "quotient(x, y)": lambda x, y: x / y,
    "quotient(x * y, z)": lambda x, y, z: x * y / z,
    "f32(z) - fma(r, f32(x), q * f32(y))": lambda r, q, x, y, z: (
        z - np.float32(np.float64(r) * np.float64(x) + np.float64(q * y))
    ),
}


@op("QLinearAdd", domain="com.microsoft", types=BYTES, keeps_format=True, **SCALES)
def qlinear_add(
    b: Builder,
    x: Operand,
    x_scale: Operand,
    x_zero: Operand | None,
    y: Operand,
    y_scale: Operand,
    y_zero: Operand | None,
    scale: Operand,
    zero: Operand | None = None,
) -> Operand:
    """Returns x r + y q + (zero - (x_zero r + y_zero q)) with r = x_scale / scale, q = y_scale / scale and fused additions."""
    r = _scalar(b, "quotient(x, y)", x=_scalar_parameter(b, x_scale), y=_scalar_parameter(b, scale))
    q = _scalar(b, "quotient(x, y)", x=_scalar_parameter(b, y_scale), y=_scalar_parameter(b, scale))
    zeros = {"x": _zero(b, x_zero, x.dtype), "y": _zero(b, y_zero, x.dtype), "z": _zero(b, zero, x.dtype)}
    fixed = _scalar(b, "f32(z) - fma(r, f32(x), q * f32(y))", r=r, q=q, **zeros)
    real = "fma(f32(x), r, fma(f32(y), q, fixed))"
    return rounded(b, real, {"x": x, "y": y, "r": r, "q": q, "fixed": fixed}, None, x.dtype)


@op("QLinearMul", domain="com.microsoft", types=BYTES, keeps_format=True, **SCALES)
def qlinear_mul(
    b: Builder,
    x: Operand,
    x_scale: Operand,
    x_zero: Operand | None,
    y: Operand,
    y_scale: Operand,
    y_zero: Operand | None,
    scale: Operand,
    zero: Operand | None = None,
) -> Operand:
    """Returns (x - x_zero) (y - y_zero) (x_scale y_scale / scale) + zero."""
    ratio = _scalar(
        b,
        "quotient(x * y, z)",
        x=_scalar_parameter(b, x_scale),
        y=_scalar_parameter(b, y_scale),
        z=_scalar_parameter(b, scale),
    )
    operands = {"x": centred(b, x, _zero(b, x_zero, x.dtype)), "y": centred(b, y, _zero(b, y_zero, x.dtype))}
    return rounded(
        b, "rounded(f32(x * y) * r) + f32(z)", {**operands, "r": ratio, "z": _zero(b, zero, x.dtype)}, None, x.dtype
    )


@op("QLinearSigmoid", domain="com.microsoft", types=BYTES, keeps_format=True, **SCALES)
def qlinear_sigmoid(
    b: Builder, x: Operand, x_scale: Operand, x_zero: Operand | None, scale: Operand, zero: Operand | None = None
) -> Operand:
    y = activated(b, _dequantized(b, x, x_scale, x_zero), "Sigmoid")
    return quantized(b, y, _scalar_parameter(b, scale), _zero(b, zero, x.dtype), x.dtype)


@op("QLinearSoftmax", domain="com.microsoft", types=BYTES, **SCALES)
def qlinear_softmax(
    b: Builder,
    x: Operand,
    x_scale: Operand,
    x_zero: Operand | None,
    scale: Operand,
    zero: Operand | None = None,
    *,
    axis: int = -1,
    opset: int,
) -> Operand:
    """`opset` is that of the original Softmax: before 13, all axes from `axis` on are one row."""
    over = softmax_along if opset >= 13 else softmax_from
    y = over(b, _dequantized(b, x, x_scale, x_zero), axis)
    return quantized(b, y, _scalar_parameter(b, scale), _zero(b, zero, x.dtype), x.dtype)


@op("QLinearLeakyRelu", domain="com.microsoft", types=BYTES, keeps_format=True, **SCALES)
def qlinear_leaky_relu(
    b: Builder,
    x: Operand,
    x_scale: Operand,
    x_zero: Operand | None,
    scale: Operand,
    zero: Operand | None = None,
    *,
    alpha: float = 0.01,
) -> Operand:
    y = activated(b, _dequantized(b, x, x_scale, x_zero), "LeakyRelu", [alpha])
    return quantized(b, y, _scalar_parameter(b, scale), _zero(b, zero, x.dtype), x.dtype)


@op("QLinearWhere", domain="com.microsoft", types=BYTES, condition=BOOLS, **SCALES)
def qlinear_where(
    b: Builder,
    condition: Operand,
    x: Operand,
    x_scale: Operand,
    x_zero: Operand,
    y: Operand,
    y_scale: Operand,
    y_zero: Operand,
    scale: Operand,
    zero: Operand,
) -> Operand:
    operands = {
        "condition": condition,
        "x": _dequantized(b, x, x_scale, x_zero),
        "y": _dequantized(b, y, y_scale, y_zero),
    }
    picked = b.pointwise("where(condition, x, y)", operands, DType.FLOAT32)
    return quantized(b, picked, _scalar_parameter(b, scale), _zero(b, zero, x.dtype), x.dtype)


@op("QLinearConcat", domain="com.microsoft", types=BYTES | FLOATS)
def qlinear_concat(b: Builder, scale: Operand, zero: Operand, *xs: Operand, axis: int = 0) -> Operand:
    """Concatenates tensors, each followed by its scale and zero point. A tensor with the result's scale and zero point is not
    requantised."""

    def same(p: Operand, q: Operand) -> bool:
        return p.constant is not None and q.constant is not None and bool(np.all(p.constant == q.constant))

    if len(xs) % 3:
        raise UnsupportedError(f"{len(xs)} inputs after the zero point: each tensor needs a scale and a zero point")
    if zero.dtype not in BYTES or any(it.dtype is not zero.dtype for it in (*xs[::3], *xs[2::3])):
        raise UnsupportedError(f"tensors and zero points must have the type of the result, {zero.dtype.label}")
    if any(it.dtype not in FLOATS for it in (scale, *xs[1::3])):
        raise UnsupportedError("a scale is not a float")
    parts = []
    for x, x_scale, x_zero in zip(xs[::3], xs[1::3], xs[2::3], strict=True):
        if not (same(x_scale, scale) and same(x_zero, zero)):
            x = quantized(
                b,
                _dequantized(b, x, x_scale, x_zero),
                _scalar_parameter(b, scale),
                _scalar_parameter(b, zero),
                zero.dtype,
            )
        parts.append(x)
    result: Operand = concat(b, *parts, axis=axis)
    return result


@op("QLinearGlobalAveragePool", domain="com.microsoft", types=BYTES, **SCALES)
def qlinear_global_average_pool(
    b: Builder, x: Operand, x_scale: Operand, x_zero: Operand, scale: Operand, zero: Operand, *, channels_last: Flag = 0
) -> Operand:
    axes = list(range(1, x.rank - 1) if channels_last else range(2, x.rank))
    sums = reduce_axes(b, "ReduceSum", centred(b, x, _scalar_parameter(b, x_zero)), axes, True, wraps=True)
    count = b.host(DType.INT32, [product(x.shape[k] for k in axes)])
    operands = {
        "x": sums,
        "a": _scalar_parameter(b, x_scale),
        "y": _scalar_parameter(b, scale),
        "n": b.reshape(count, ()),
    }
    return rounded(b, "f32(x) * quotient(a, y * f32(n))", operands, _scalar_parameter(b, zero), x.dtype, sums.shape)


@op("QLinearAveragePool", domain="com.microsoft", types=BYTES, **SCALES)
def qlinear_average_pool(
    b: Builder,
    x: Operand,
    x_scale: Operand,
    x_zero: Operand | None,
    scale: Operand,
    zero: Operand | None = None,
    *,
    count_include_pad: Flag = 0,
    channels_last: Flag = 0,
    **attributes: Unpack[PoolAttributes],
) -> Operand:
    if channels_last:
        x = b.permute(x, (0, x.rank - 1, *range(1, x.rank - 1)))
    means = average_pool(b, _dequantized(b, x, x_scale, x_zero), count_include_pad=count_include_pad, **attributes)
    # As on the CPU provider, which rounds after it adds the zero point.
    operands = {"x": means, "s": _scalar_parameter(b, scale), "z": _zero(b, zero, x.dtype)}
    result = rounded(b, "quotient(x, s) + f32(z)", operands, None, x.dtype)
    return b.permute(result, (0, *range(2, x.rank), 1)) if channels_last else result
