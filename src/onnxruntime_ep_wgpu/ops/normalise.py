"""Normalisation over rows: Softmax, LogSoftmax, LayerNormalization, BatchNormalization."""

from __future__ import annotations

import numpy as np

from ..builder import Builder, Operand
from ..dims import product
from ..dtypes import DType
from ..errors import UnsupportedError
from ..lowered import Read
from ..tune import row_variants
from ..view import Shape
from .registry import FLOATS, op
from .shape import axis_of


def _stored(dtype: DType) -> DType:
    """Rows are written as whole words; f16 results are narrowed afterwards."""
    return DType.FLOAT32 if dtype is DType.FLOAT16 else dtype


def _narrowed(b: Builder, x: Operand, dtype: DType) -> Operand:
    return x if x.dtype is dtype else b.pointwise("x", {"x": x}, dtype)


def _softmax(b: Builder, x: Operand, axes: int, logarithm: bool) -> Operand:
    """Softmax over the last `axes` axes of x."""
    kept = x.rank - axes
    rows, columns = product(x.shape[:kept]), product(x.shape[kept:])
    (y,) = b.call("softmax", {"x": Read(x.view, (kept, axes), reuse=True)}, {"y": (_stored(x.dtype), x.shape, (kept, axes))},
                  row_variants(rows, columns, b.target), parameters={"rows": rows, "columns": columns}, LOGARITHM=logarithm)  # fmt: skip
    return _narrowed(b, y, x.dtype)


def _declare(name: str, logarithm: bool) -> None:
    @op(name, types=FLOATS)
    def flattened(b: Builder, x: Operand, *, axis: int = 1) -> Operand:
        """Before version 13 all axes from `axis` on were one row."""
        return _softmax(b, x, x.rank - axis_of(axis, x.rank), logarithm)

    @op(name, since=13, types=FLOATS)
    def along(b: Builder, x: Operand, *, axis: int = -1) -> Operand:
        if x.rank == 0:
            return b.pointwise("x - x" if logarithm else "x - x + 1", {"x": x}, x.dtype)
        axis = axis_of(axis, x.rank)
        order = [*(k for k in range(x.rank) if k != axis), axis]
        return b.permute(_softmax(b, b.permute(x, order), 1, logarithm), np.argsort(order).tolist())


_declare("Softmax", False)
_declare("LogSoftmax", True)


@op("LayerNormalization", types=FLOATS)
def layer_normalization(b: Builder, x: Operand, gain: Operand, bias: Operand | None = None, *, axis: int = -1,
                        epsilon: float = 1e-5, stash_type: int = 1, outputs: int = 1) -> list[Operand]:  # fmt: skip
    """Normalises x over the axes from `axis` on; mean and inverse deviation are optional results."""
    axis = axis_of(axis, x.rank)
    count = x.rank - axis
    rows, columns = product(x.shape[:axis]), product(x.shape[axis:])
    bias = bias if bias is not None else b.constant(np.zeros(1, np.float32))
    inner = x.shape[axis:]
    operands = {"x": Read(x.view, (axis, count), reuse=True), "gain": Read(b.expand(gain, inner).view, (count,)),
                "bias": Read(b.expand(bias, inner).view, (count,))}  # fmt: skip
    statistics = (*x.shape[:axis], *(1,) * count)
    results: dict[str, tuple[DType, Shape, tuple[int, ...]]] = {"y": (_stored(x.dtype), x.shape, (axis, count))}
    puts = ""
    if outputs > 1:
        results["mean"] = (DType.FLOAT32, statistics, (x.rank,))
        results["inverse"] = (DType.FLOAT32, statistics, (x.rank,))
        puts = "mean_put(row, mean); inverse_put(row, inverse);"
    y, *rest = b.call("layer_norm", operands, results, row_variants(rows, columns, b.target),
                      parameters={"rows": rows, "columns": columns}, EPSILON=float(epsilon), PUT_STATISTICS=puts)  # fmt: skip
    return [_narrowed(b, y, x.dtype), *rest]


@op("BatchNormalization", types=FLOATS)
def batch_normalization(b: Builder, x: Operand, scale: Operand, bias: Operand, mean: Operand, variance: Operand, *,
                        epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0, spatial: int = 1) -> Operand:  # fmt: skip
    """With stored statistics, per channel: one multiplication and one addition when these are constants."""
    if training_mode or not spatial:
        raise UnsupportedError("batch normalisation in training mode")
    channels = (-1,) + (1,) * (x.rank - 2)
    constants = [o.constant for o in (scale, bias, mean, variance)]
    if all(c is not None for c in constants):
        s, o, m, v = (np.asarray(c, np.float64) for c in constants)
        factor = s / np.sqrt(v + epsilon)
        a = b.constant(factor.astype(np.float32).reshape(channels))
        c = b.constant((o - m * factor).astype(np.float32).reshape(channels))
        return b.pointwise("x * a + c", {"x": x, "a": a, "c": c}, x.dtype, x.shape, cost=2)
    per_channel = {n: b.reshape(o, (o.shape[0], *channels[1:])) for n, o in
                   {"s": scale, "o": bias, "m": mean, "v": variance}.items()}  # fmt: skip
    return b.pointwise("(x - m) * (s / sqrt(v + epsilon)) + o", {"x": x, **per_channel}, x.dtype, x.shape, cost=8, epsilon=epsilon)
