"""Softmax, its logarithm, and both over long rows."""

from __future__ import annotations

import numpy as np

from ....program.dtypes import DType
from ...ir import Read
from ...nodes import row_kernels
from ..builder import Builder, Operand
from .chunked_rows import by_rows
from .named_axes import axis_of
from .reduction import reduce_axes
from .registry import REALS, op


def softmax_rows(
    b: Builder, x: Operand, axes: int, logarithm: bool = False, *, masked: bool = False, sink: Operand | None = None
) -> Operand:
    """Returns the softmax over the last `axes` axes of x. With `masked`, a row of minus infinities returns zeros instead of
    NaN.

    A `sink`, of the shape of the other axes, is one more number of each row, without a result.
    """
    kept = x.rank - axes
    sinks = [b.expand(sink, x.shape[:kept])] if sink is not None else []
    found = None
    if x.dtype is not DType.FLOAT64:
        found = by_rows(b, x, kept, lambda rows, *own: _softmax(b, rows, kept, logarithm, masked, *own), *sinks)
    if found is None:
        return _long_softmax(b, x, list(range(kept, x.rank)), logarithm, masked, *sinks)
    return b.cast(found[0], x.dtype)


def _softmax(
    b: Builder, x: Operand, kept: int, logarithm: bool, masked: bool, sink: Operand | None = None
) -> list[Operand]:
    """Returns the softmax in the accumulator type."""
    groups = (kept, x.rank - kept)
    return b.add(
        row_kernels.softmax(
            Read(x.view, groups, reuse=True),
            b.write(x.dtype.accumulated, x.shape, groups),
            b.target,
            logarithm=logarithm,
            masked=masked,
            sink=None if sink is None else Read(sink.view, (kept,)),
            origin=b.origin,
        )
    )


def _long_softmax(
    b: Builder, x: Operand, axes: list[int], logarithm: bool, masked: bool, sink: Operand | None = None
) -> Operand:
    """The same by reductions, for rows that exceed the loop limit of an invocation, and for f64."""
    kind = DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32
    wide = b.cast(x, kind)
    highest = reduce_axes(b, "ReduceMax", wide, axes, True)
    if sink is not None:
        sink = b.reshape(sink, highest.shape)
        highest = b.pointwise("max(x, s)", {"x": highest, "s": sink}, kind)
    if masked:
        highest = b.pointwise("where(isinf(x) and x < 0, 0, x)", {"x": highest}, kind)
    shifted = b.pointwise("x - m", {"x": wide, "m": highest}, kind)
    powers = b.pointwise("exp(x)", {"x": shifted}, kind, cost=4)
    total = reduce_axes(b, "ReduceSum", powers, axes, True)
    if sink is not None:
        total = b.pointwise("t + exp(s - m)", {"t": total, "s": sink, "m": highest}, kind, cost=4)
    if logarithm:
        return b.pointwise("x - log(t)", {"x": shifted, "t": total}, x.dtype, cost=4)
    return b.pointwise("where(t == 0, 0, x / t)" if masked else "x / t", {"x": powers, "t": total}, x.dtype, cost=2)


def softmax_from(b: Builder, x: Operand, axis: int, logarithm: bool = False) -> Operand:
    """Softmax before version 13: all axes from `axis` on are one row."""
    return softmax_rows(b, x, x.rank - axis_of(axis, x.rank), logarithm)


def softmax_along(b: Builder, x: Operand, axis: int, logarithm: bool = False) -> Operand:
    """Softmax over one axis."""
    if x.rank == 0:
        return b.pointwise("x - x" if logarithm else "x - x + 1", {"x": x}, x.dtype)
    axis = axis_of(axis, x.rank)
    order = [*(k for k in range(x.rank) if k != axis), axis]
    return b.permute(softmax_rows(b, b.permute(x, order), 1, logarithm), np.argsort(order).tolist())


def _declare(name: str, logarithm: bool) -> None:
    @op(name, types=REALS)
    def flattened(b: Builder, x: Operand, *, axis: int = 1) -> Operand:
        return softmax_from(b, x, axis, logarithm)

    @op(name, since=13, types=REALS)
    def along(b: Builder, x: Operand, *, axis: int = -1) -> Operand:
        return softmax_along(b, x, axis, logarithm)


_declare("Softmax", False)
_declare("LogSoftmax", True)
