"""Quantisation between real numbers and narrow integers: x is about (q - zero point) * scale.

Results equal the CPU provider's, including ties: quotients and fused multiplications are rounded once
(`wgsl/prelude/float.wgsl`), and all rounding is half to even. Maps that subtract a zero point or multiply by a scale are
`inline`: the reader computes them where it loads the integer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import Dim, product
from ...ir import Read, floats
from ...tune import row_variants
from ..builder import Builder, Operand
from ..operand import Dequantized
from .choices import Flag
from .chunked_rows import by_rows
from .named_axes import axis_of
from .reduction import reduce_axes
from .registry import FLOATS, MINIFLOATS, op

BYTES = frozenset({DType.INT8, DType.UINT8})
NARROW = BYTES | {DType.INT16, DType.UINT16, DType.INT4, DType.UINT4, DType.INT2, DType.UINT2}
SMALL = NARROW | MINIFLOATS
QUANTIZED = SMALL | {DType.INT32}


# ---- the two maps


def spread(b: Builder, p: Operand, x: Operand, axis: int, block: int = 0) -> Operand:
    """Returns a scale or zero point of x in a shape that broadcasts with x: one number, one per index of `axis`, or one per
    block."""
    if p.size == 1:
        return b.reshape(p, ())
    axis = axis_of(axis, x.rank)
    if p.rank == 1:
        return b.reshape(p, (p.shape[0], *(1,) * (x.rank - axis - 1)))
    if not block or p.rank != x.rank:
        raise UnsupportedError(f"scales of shape {list(p.shape)} do not match {x}")
    before, count, after = p.shape[:axis], p.shape[axis], p.shape[axis + 1 :]
    if count * block != x.shape[axis]:  # the last block is shorter, which no view can express
        groups = (axis, 1, x.rank - axis - 1)
        return b.map(
            "return p_at(outer, min(k / $BLOCK, $count - 1u), inner);",
            p.dtype,
            x.shape,
            ("outer", "k", "inner"),
            groups,
            {"p": (p, groups)},
            parameters={"count": count},
            reuse=True,
            inline=True,
            BLOCK=block,
        )
    repeated = b.expand(b.reshape(p, (*before, count, 1, *after)), (*before, count, block, *after))
    return b.reshape(repeated, x.shape)


def quantized(
    b: Builder, x: Operand, scale: Operand, zero: Operand | None, dtype: DType, saturate: bool = True
) -> Operand:
    """Returns round(x / scale) + zero, saturated. scale and zero broadcast with x. Small floats have no zero point except 0."""
    if dtype in MINIFLOATS:
        expression = floats.rounded("quotient(f32(x), s)", dtype, saturate)
        return b.pointwise(expression, {"x": x, "s": scale}, dtype, x.shape, cost=16)
    return rounded(b, "quotient(f32(x), s)", {"x": x, "s": scale}, zero, dtype, x.shape)


def rounded(
    b: Builder,
    real: str,
    operands: dict[str, Operand],
    zero: Operand | None,
    dtype: DType,
    shape: tuple[Dim, ...] | None = None,
    **constants: Any,
) -> Operand:
    """Returns round(real) + zero, saturated to `dtype`. `real` is an expression of the operands, of type f32."""
    least, most = dtype.limits
    if zero is not None:
        operands = {**operands, "zero": zero}
    else:
        constants["zero"] = 0
    expression = f"{dtype.compute}(i32(round(clamp({real}, low - f32(zero), high - f32(zero)))) + i32(zero))"
    return b.pointwise(expression, operands, dtype, shape, cost=16, low=float(least), high=float(most), **constants)


def centred(b: Builder, x: Operand, zero: Operand | None) -> Operand:
    """Returns x - zero as int32; zero broadcasts with x."""
    if zero is None or (zero.constant is not None and not np.any(zero.constant)):
        return b.pointwise("i32(x)", {"x": x}, DType.INT32, inline=True)
    return b.pointwise("i32(x) - i32(zero)", {"x": x, "zero": zero}, DType.INT32, x.shape, cost=2, inline=True)


def dequantized(b: Builder, x: Operand, scale: Operand, zero: Operand | None, dtype: DType = DType.FLOAT32) -> Operand:
    """Returns (x - zero) * scale; scale and zero broadcast with x."""
    operands = {"x": x, "s": scale}
    if zero is None or (zero.constant is not None and not np.any(zero.constant)):
        return b.pointwise("f32(x) * s", operands, dtype, x.shape, cost=2, inline=True)
    if x.dtype in MINIFLOATS:
        return b.pointwise("(x - zero) * s", {**operands, "zero": zero}, dtype, x.shape, cost=3, inline=True)
    expression = "(f32(x) - f32(zero)) * s" if x.dtype.bits <= 16 else "f32(i32(x) - i32(zero)) * s"
    return b.pointwise(expression, {**operands, "zero": zero}, dtype, x.shape, cost=3, inline=True)


def requantized(
    b: Builder,
    sums: Operand,
    scales: list[Operand],
    scale: Operand,
    zero: Operand | None,
    dtype: DType,
    factor: float = 1.0,
) -> Operand:
    """Returns integers `sums`, in units of factor and the product of `scales`, as `dtype` in units of `scale`."""
    constants = [s.constant for s in (*scales, scale)]
    if all(c is not None for c in constants):
        ratio: Any = np.float32(factor)
        for c in constants[:-1]:
            ratio = ratio * np.asarray(c, np.float32)
        ratio = np.asarray(ratio / np.asarray(constants[-1], np.float32), np.float32)
        return rounded(b, "f32(x) * ratio", {"x": sums, "ratio": b.constant(ratio)}, zero, dtype, sums.shape)
    names = [f"s{k}" for k in range(len(scales))]
    real = f"f32(x) * quotient({' * '.join(['factor', *names])}, y)"
    operands = {"x": sums, **dict(zip(names, scales, strict=True)), "y": scale}
    return rounded(b, real, operands, zero, dtype, sums.shape, factor=factor)


# ---- QuantizeLinear, DequantizeLinear


def _output_type(code: int, default: DType) -> DType:
    """The type of an attribute `output_dtype`; 0 is the default."""
    try:
        dtype = DType.of(code) if code else default
    except KeyError:
        raise UnsupportedError(f"no kernel for ONNX element type {code}") from None
    return dtype


@op("QuantizeLinear", types=FLOATS | {DType.INT32}, y_scale=FLOATS, y_zero_point=SMALL, keeps_format=True)
@op("QuantizeLinear", domain="com.microsoft", types=FLOATS, y_zero_point=SMALL, keeps_format=True)
def quantize_linear(
    b: Builder,
    x: Operand,
    y_scale: Operand,
    y_zero_point: Operand | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: Flag = 1,
) -> Operand:
    """Returns x as integers of the zero point's type, with scales per tensor, per index of `axis`, or per block along it."""
    dtype = _output_type(output_dtype, DType.UINT8 if y_zero_point is None else y_zero_point.dtype)
    if dtype not in SMALL:
        raise UnsupportedError(f"no kernel that quantises to {dtype.label}")
    if precision not in (0, DType.FLOAT32.code):
        raise UnsupportedError(f"a division in ONNX element type {precision} is not supported")
    zero = None if y_zero_point is None else spread(b, y_zero_point, x, axis, block_size)
    return quantized(b, x, spread(b, y_scale, x, axis, block_size), zero, dtype, bool(saturate))


@op("DequantizeLinear", types=QUANTIZED, x_scale=FLOATS, keeps_format=True)
@op("DequantizeLinear", domain="com.microsoft", types=QUANTIZED, x_scale=FLOATS, keeps_format=True)
def dequantize_linear(
    b: Builder,
    x: Operand,
    x_scale: Operand,
    x_zero_point: Operand | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Operand:
    """Returns x as real numbers of the scale's type, with scales per tensor, per index of `axis`, or per block along it."""
    dtype = _output_type(output_dtype, x_scale.dtype)
    if dtype not in FLOATS:
        raise UnsupportedError(f"no kernel that dequantises to {dtype.label}")
    zero = None if x_zero_point is None else spread(b, x_zero_point, x, axis, block_size)
    result = dequantized(b, x, spread(b, x_scale, x, axis, block_size), zero, dtype)
    parameters = [it for it in (x_scale, x_zero_point) if it is not None]
    if x.dtype in BYTES and all(it.rank <= 1 for it in parameters):
        along = 0 if all(it.size == 1 for it in parameters) else axis_of(axis, x.rank)  # one number has no axis
        b.dequantized[result.view] = Dequantized(x, x_scale, x_zero_point, along)
    return result


@op("DynamicQuantizeLinear", types=frozenset({DType.FLOAT32}))
def dynamic_quantize_linear(b: Builder, x: Operand) -> list[Operand]:
    """Returns x as uint8, and the scale and zero point for a range that includes all elements and 0."""
    low = high = x
    if x.rank > 1:
        found = by_rows(b, x, x.rank - 1, lambda rows: _extremes(b, rows))
        low, high = found if found is not None else _reduced(b, x, x)
    found = by_rows(b, low, 0, lambda _: _parameters(b, low, high))
    scale, zero = found if found is not None else _parameters(b, *_reduced(b, low, high))
    narrow = b.pointwise("u32(x)", {"x": zero}, DType.UINT8, inline=True)
    return [quantized(b, x, scale, zero, DType.UINT8), scale, narrow]


def _reduced(b: Builder, low: Operand, high: Operand) -> list[Operand]:
    """Returns the minimum of `low` and the maximum of `high`, each as a row of one element. They are too long for one row."""
    least, most = (
        reduce_axes(b, name, o, list(range(o.rank)), False) for name, o in (("ReduceMin", low), ("ReduceMax", high))
    )
    return [b.reshape(least, (1,)), b.reshape(most, (1,))]


def _extremes(b: Builder, x: Operand) -> list[Operand]:
    """Returns the least and the largest element of each row, the last axis."""
    kept = x.rank - 1
    results = dict.fromkeys(("low", "high"), (DType.FLOAT32, x.shape[:kept], (kept,)))
    return _extremes_call(b, x, x, kept, results)


def _parameters(b: Builder, low: Operand, high: Operand) -> list[Operand]:
    """Returns scale (float32) and zero point (int32), without axes, for the range from the minimum of `low` to the maximum of
    `high`."""
    return _extremes_call(b, low, high, 0, {"scale": (DType.FLOAT32, (), (0,)), "zero": (DType.INT32, (), (0,))})


def _extremes_call(b: Builder, low: Operand, high: Operand, kept: int, results: dict[str, Any]) -> list[Operand]:
    rows, columns = product(low.shape[:kept]), product(low.shape[kept:])
    groups = (kept, low.rank - kept)
    return b.call(
        "extremes",
        {"low": Read(low.view, groups), "high": Read(high.view, groups)},
        results,
        row_variants(rows, columns, b.target),
        parameters={"rows": rows, "columns": columns},
    )
