"""Products of narrow integers: accumulated exactly in int32, with zero points subtracted where elements are loaded."""

from __future__ import annotations

from typing import Unpack

from ....program.dtypes import DType
from ..builder import Builder, Operand
from .byte_products import number, product_of_bytes
from .choices import Flag
from .conv import integer_convolution, per_feature
from .gemm import matrices
from .quantize import BYTES, dynamic_quantize_linear, requantized
from .registry import FLOATS, at_least, op
from .window import ConvAttributes

SUMS = frozenset({DType.INT32})


def _rows(b: Builder, zero: Operand | None) -> Operand | None:
    """Returns a zero point of the left matrix, one number or one per row, in a shape that broadcasts with it."""
    return (
        b.reshape(zero, (zero.shape[0], 1))
        if zero is not None and zero.rank == 1 and zero.size != 1
        else number(b, zero)
    )


@op("MatMulInteger", types=BYTES)
def matmul_integer(
    b: Builder, x: Operand, y: Operand, x_zero: Operand | None = None, y_zero: Operand | None = None
) -> Operand:
    """Returns (x - x_zero) times (y - y_zero) as int32. x_zero is one number or one per row, y_zero one or one per column."""
    return product_of_bytes(b, x, _rows(b, x_zero), y, number(b, y_zero))


@op("QLinearMatMul", types=BYTES, x_scale=FLOATS, y_scale=FLOATS, scale=FLOATS)
def qlinear_matmul(
    b: Builder,
    x: Operand,
    x_scale: Operand,
    x_zero: Operand,
    y: Operand,
    y_scale: Operand,
    y_zero: Operand,
    scale: Operand,
    zero: Operand,
) -> Operand:
    sums = matmul_integer(b, x, y, x_zero, y_zero)
    scales = [_rows(b, x_scale) or x_scale, number(b, y_scale) or y_scale]
    return requantized(b, sums, scales, _rows(b, scale) or scale, _rows(b, zero), zero.dtype)


@op("MatMulIntegerToFloat", domain="com.microsoft", types=BYTES, x_scale=FLOATS, y_scale=FLOATS, bias=FLOATS)
def matmul_integer_to_float(b: Builder, x: Operand, y: Operand, x_scale: Operand, y_scale: Operand, x_zero: Operand | None = None,
                            y_zero: Operand | None = None, bias: Operand | None = None) -> Operand:  # fmt: skip
    """Returns (x - x_zero) times (y - y_zero) in units of x_scale * y_scale, plus bias. Parameters of y may be per column."""
    sums = matmul_integer(b, x, y, x_zero, y_zero)
    operands = {"x": sums, "p": number(b, x_scale) or x_scale, "q": number(b, y_scale) or y_scale}
    if bias is None:
        return b.pointwise("f32(x) * (p * q)", operands, x_scale.dtype, sums.shape, cost=3)
    return b.pointwise("f32(x) * (p * q) + bias", {**operands, "bias": bias}, x_scale.dtype, sums.shape, cost=4)


@op(
    "DynamicQuantizeMatMul",
    domain="com.microsoft",
    types=BYTES,
    x=frozenset({DType.FLOAT32}),
    y_scale=FLOATS,
    bias=FLOATS,
)
def dynamic_quantize_matmul(b: Builder, x: Operand, y: Operand, y_scale: Operand, y_zero: Operand | None = None,
                            bias: Operand | None = None) -> Operand:  # fmt: skip
    """Returns x, quantised to uint8 by its own range, times y."""
    narrow, scale, zero = dynamic_quantize_linear(b, x)
    result: Operand = matmul_integer_to_float(b, narrow, y, scale, y_scale, zero, y_zero, bias)
    return result


@op("ConvInteger", types=BYTES, chooses_format=("x",))
def conv_integer(
    b: Builder,
    x: Operand,
    w: Operand,
    x_zero: Operand | None = None,
    w_zero: Operand | None = None,
    *,
    with_channels_last: bool = False,
    **attributes: Unpack[ConvAttributes],
) -> Operand:
    """Returns the convolution of x - x_zero with w - w_zero as int32. The padding is x_zero."""
    return integer_convolution(b, x, number(b, x_zero), w, w_zero, with_channels_last, **attributes)


@op("QLinearConv", types=BYTES, x_scale=FLOATS, w_scale=FLOATS, scale=FLOATS, bias=SUMS, chooses_format=("x",))
@op(
    "QLinearConv",
    domain="com.microsoft",
    types=BYTES,
    x_scale=FLOATS,
    w_scale=FLOATS,
    scale=FLOATS,
    bias=SUMS,
    chooses_format=("x",),
    ranks={"x": at_least(3), "w": at_least(3)},
)
def qlinear_conv(
    b: Builder,
    x: Operand,
    x_scale: Operand,
    x_zero: Operand,
    w: Operand,
    w_scale: Operand,
    w_zero: Operand,
    scale: Operand,
    zero: Operand,
    bias: Operand | None = None,
    *,
    channels_last: Flag = 0,
    with_channels_last: bool = False,
    **attributes: Unpack[ConvAttributes],
) -> Operand:
    """A convolution of quantised numbers; bias is in units of x_scale * w_scale."""
    if channels_last:
        x = b.permute(x, (0, x.rank - 1, *range(1, x.rank - 1)))
    sums = conv_integer(b, x, w, x_zero, w_zero, with_channels_last=with_channels_last, **attributes)
    if bias is not None:
        spread = per_feature(b, bias, x.rank - 1)
        sums = b.pointwise("x + bias", {"x": sums, "bias": spread}, DType.INT32, sums.shape)
    scales = [b.reshape(x_scale, ()), per_feature(b, w_scale, x.rank - 1)]
    result = requantized(b, sums, scales, b.reshape(scale, ()), b.reshape(zero, ()), zero.dtype)
    return b.permute(result, (0, *range(2, x.rank), 1)) if channels_last else result


@op(
    "QGemm",
    domain="com.microsoft",
    types=BYTES,
    x_scale=FLOATS,
    y_scale=FLOATS,
    scale=FLOATS,
    bias=SUMS,
    ranks={"x": 2, "y": 2},
)
def qgemm(
    b: Builder,
    x: Operand,
    x_scale: Operand,
    x_zero: Operand,
    y: Operand,
    y_scale: Operand,
    y_zero: Operand,
    bias: Operand | None = None,
    scale: Operand | None = None,
    zero: Operand | None = None,
    *,
    alpha: float = 1.0,
    transA: Flag = 0,
    transB: Flag = 0,
) -> Operand:
    """Returns alpha * x y + bias, with bias in units of alpha * x_scale * y_scale; float32 if the result has no scale."""
    left, right, shape = matrices(b, x, y, transA, transB)
    sums = product_of_bytes(b, left, number(b, x_zero), right, number(b, y_zero))
    if bias is not None:
        sums = b.pointwise("x + bias", {"x": sums, "bias": bias}, DType.INT32, shape)
    scales = [b.reshape(x_scale, ()), number(b, y_scale) or y_scale]
    if scale is None:
        operands = {"x": sums, "a": scales[0], "b": scales[1]}
        return b.pointwise("f32(x) * (alpha * a * b)", operands, DType.FLOAT32, shape, cost=3, alpha=alpha)
    return requantized(
        b, sums, scales, b.reshape(scale, ()), number(b, zero), x.dtype if zero is None else zero.dtype, alpha
    )
