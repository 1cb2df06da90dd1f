"""Operators that pick elements by computed indices: Gather. Indices that come from a tensor are always clamped."""

from __future__ import annotations

from ..builder import Builder, Operand
from ..dtypes import DType
from .registry import ANY, op
from .shape import axis_of

INDICES = frozenset({DType.INT32, DType.INT64})


def index32(b: Builder, indices: Operand) -> Operand:
    """Indices as i32: no axis is longer than that, and what is out of range is clamped where it is used."""
    return indices if indices.dtype is DType.INT32 else b.pointwise("i32(x)", {"x": indices}, DType.INT32)


@op("Gather", types=ANY, indices=INDICES)
def gather(b: Builder, x: Operand, indices: Operand, *, axis: int = 0) -> Operand:
    """y[outer, k, inner] = x[outer, indices[k], inner]; negative indices count from the end."""
    axis = axis_of(axis, x.rank)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    groups = (axis, indices.rank, x.rank - axis - 1)
    body = (
        "  let k = indices_at(picked);\n"
        "  let i = clamp(select(k, k + i32($extent), k < 0), 0, i32($extent) - 1);\n"
        "  return x_at(outer, u32(i), inner);"
    )
    return b.map(body, x.dtype, shape, ("outer", "picked", "inner"), groups,
                 {"x": (x, (axis, 1, x.rank - axis - 1)), "indices": (index32(b, indices), (indices.rank,))},
                 parameters={"extent": x.shape[axis]}, cost=4)  # fmt: skip
