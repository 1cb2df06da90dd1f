"""Operators from ONNX Runtime's extended optimisations, in models that were saved after these.

An `.ort` file, or a model written by `optimized_model_filepath`, contains fused operators of the domain com.microsoft. Here
each is lowered as its original operators; the compiler fuses them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Unpack

from ...dims import equal, floordiv, less_equal
from ..builder import Builder, Operand
from .activations import activated
from .choices import Flag
from .conv import conv
from .gemm import gemm, matmul
from .pointwise import gelu, swish
from .pool import max_pool
from .quantize import BYTES
from .registry import FLOATS, MICROSOFT, at_least, op
from .window import ConvAttributes, PoolAttributes

FusedActivation = Literal["Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid"]


def _activated(b: Builder, x: Operand, name: str | None, given: Sequence[float]) -> Operand:
    return x if name is None else activated(b, x, name, given)


@op("FusedConv", domain=MICROSOFT, types=FLOATS, chooses_format=("x", "residual"), ranks={"x": at_least(3)})
def fused_conv(
    b: Builder,
    x: Operand,
    w: Operand,
    bias: Operand | None = None,
    residual: Operand | None = None,
    *,
    activation: FusedActivation | None = None,
    activation_params: Sequence[float] = (),
    with_channels_last: bool = False,
    **attributes: Unpack[ConvAttributes],
) -> Operand:
    """Returns activation(conv(x, w) + bias + residual)."""
    y = conv(b, x, w, bias, with_channels_last=with_channels_last, **attributes)
    if residual is not None:
        y = b.pointwise("x + y", {"x": y, "y": residual}, y.dtype)
    return _activated(b, y, activation, activation_params)


@op("FusedGemm", domain=MICROSOFT, types=FLOATS, ranks={"x": 2, "y": 2})
def fused_gemm(
    b: Builder,
    x: Operand,
    y: Operand,
    c: Operand | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: Flag = 0,
    transB: Flag = 0,
    activation: FusedActivation | None = None,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
) -> Operand:
    given = [value for value in (activation_alpha, activation_beta) if value is not None]
    product = gemm(b, x, y, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return _activated(b, product, activation, given)


@op("FusedMatMul", domain=MICROSOFT, types=FLOATS, ranks={"x": at_least(1), "y": at_least(1)})
def fused_matmul(
    b: Builder,
    x: Operand,
    y: Operand,
    *,
    alpha: float = 1.0,
    transA: Flag = 0,
    transB: Flag = 0,
    transBatchA: Flag = 0,
    transBatchB: Flag = 0,
) -> Operand:
    """Returns alpha times the matrix product, with each operand transposed if requested. Vectors are not transposed."""
    left = _transposed(b, x, transA, transBatchA)
    right = _transposed(b, y, transB, transBatchB)
    product: Operand = matmul(b, left, right)
    return product if alpha == 1.0 else b.pointwise("alpha * x", {"x": product}, x.dtype, alpha=alpha)


def _transposed(b: Builder, x: Operand, matrix: int, batch: int) -> Operand:
    """Swaps the last two axes. With `batch`, first moves the first axis to before the last."""
    order = list(range(x.rank))
    if batch and x.rank > 2:
        order = [*order[1:-1], order[0], order[-1]]
    if matrix and x.rank > 1:
        order[-2:] = reversed(order[-2:])
    return b.permute(x, order)


@op("Gelu", domain=MICROSOFT, types=FLOATS, elementwise=True)
def microsoft_gelu(b: Builder, x: Operand) -> Operand:
    y: Operand = gelu(b, x)
    return y


@op("BiasGelu", "FastGelu", domain=MICROSOFT, types=FLOATS, elementwise=True)
def bias_gelu(b: Builder, x: Operand, bias: Operand | None = None, *, op_type: str = "") -> Operand:
    """Returns gelu(x + bias), by the tanh approximation for FastGelu. FastGelu's bias may have any length, and is repeated
    along the elements of x."""
    if bias is None:
        summed = x
    elif op_type == "FastGelu" and bias.rank == 1 and equal(bias.shape[0], x.shape[-1] if x.rank else 1) == 0:
        b.require(less_equal(1, bias.shape[0]), "a bias {} without elements", bias)
        added, inner = {"x": (x, (x.rank,)), "bias": (bias, (1,))}, {"count": bias.shape[0]}
        body = "return x_at(i) + bias_at(i % $count);"
        summed = b.map(body, x.dtype, x.shape, ("i",), (x.rank,), added, parameters=inner)
    else:
        summed = b.pointwise("x + y", {"x": x, "y": bias}, x.dtype)
    y: Operand = gelu(b, summed, approximate="tanh" if op_type == "FastGelu" else "none")
    return y


@op("QuickGelu", domain=MICROSOFT, types=FLOATS, elementwise=True)
def quick_gelu(b: Builder, x: Operand, *, alpha: float = 1.702) -> Operand:
    y: Operand = swish(b, x, alpha=alpha)
    return y


@op("BiasAdd", domain=MICROSOFT, types=FLOATS, elementwise=True, ranks={"x": at_least(1)})
def bias_add(b: Builder, x: Operand, bias: Operand, skip: Operand) -> Operand:
    """Returns x + bias + skip, with x and skip of shape (batch, pixels, channels)."""
    b.require(equal(bias.size, x.shape[-1]), "bias {} for the channels of {}", bias, x)
    return b.pointwise("x + bias + skip", {"x": x, "bias": bias, "skip": skip}, x.dtype, x.shape)


@op("BiasSplitGelu", domain=MICROSOFT, types=FLOATS, ranks={"x": at_least(1), "bias": 1})
def bias_split_gelu(b: Builder, x: Operand, bias: Operand) -> Operand:
    """Returns the first half of x + bias along the last axis, times gelu of the second half."""
    columns = x.shape[-1]
    b.require(equal(bias.size, columns), "bias {} for the columns of {}", bias, x)
    b.require(equal(columns % 2, 0), "{} columns are not an even number", columns)
    half = floordiv(columns, 2)
    parts: dict[str, Operand] = {}
    for k, name in enumerate("xg"):
        parts[name] = b.slice(x, x.rank - 1, k * half, 1, half)
        parts[name + "b"] = b.slice(bias, 0, k * half, 1, half)
    return b.pointwise("(x + xb) * gelu(g + gb)", parts, x.dtype, (*x.shape[:-1], half), cost=26)


@op("NhwcMaxPool", domain=MICROSOFT, types=BYTES, ranks={"x": at_least(3)})
def channels_last_max_pool(b: Builder, x: Operand, **attributes: Unpack[PoolAttributes]) -> Operand:
    """Returns the largest byte of each window of x (batch, *inputs, channels)."""
    moved = b.permute(x, (0, x.rank - 1, *range(1, x.rank - 1)))
    (y,) = max_pool(b, moved, **attributes)
    return b.permute(y, (0, *range(2, x.rank), 1))
