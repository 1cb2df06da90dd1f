"""Operators that pick elements by computed indices: Gather, Pad, Trilu. Indices that come from a tensor are clamped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..builder import Builder, Operand
from ..dims import Dim
from ..dtypes import DType
from ..errors import UnsupportedError
from .registry import ANY, INTEGERS, op
from .shape import axis_of
from .window import body

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
    lines = (
        "  let k = indices_at(picked);\n"
        "  let i = clamp(select(k, k + i32($extent), k < 0), 0, i32($extent) - 1);\n"
        "  return x_at(outer, u32(i), inner);"
    )
    return b.map(
        lines,
        x.dtype,
        shape,
        ("outer", "picked", "inner"),
        groups,
        {"x": (x, (axis, 1, x.rank - axis - 1)), "indices": (index32(b, indices), (indices.rank,))},
        parameters={"extent": x.shape[axis]},
        cost=4,
    )


@op("Pad", types=ANY, pads_input=INTEGERS, axes=INTEGERS)
def pad(
    b: Builder,
    x: Operand,
    pads_input: Operand | None = None,
    fill: Operand | None = None,
    axes: Operand | None = None,
    *,
    mode: str = "constant",
    pads: list[int] | None = None,
    paddings: list[int] | None = None,
    value: float = 0.0,
) -> Operand:
    """Pads, which may be negative and expressions of the input shapes, are all beginnings and then all ends."""
    amounts: list[Dim] = pads_input.dims("the padding") if pads_input is not None else list(pads or paddings or [])
    where = [axis_of(a, x.rank) for a in axes.ints("the list of axes")] if axes is not None else list(range(x.rank))
    if len(amounts) != 2 * len(where):
        raise UnsupportedError(f"{len(amounts)} pads for {len(where)} axes")
    begins = dict(zip(where, amounts[: len(where)], strict=True))
    ends = dict(zip(where, amounts[len(where) :], strict=True))
    padded = [a for a in sorted(where) if begins[a] != 0 or ends[a] != 0]
    if not padded:
        return x
    if mode == "constant" and all(isinstance(d, int) and d <= 0 for a in padded for d in (begins[a], ends[a])):
        for a in padded:
            x = b.slice(x, a, -begins[a], 1, x.shape[a] + begins[a] + ends[a])
        return x
    shape = tuple(d + begins.get(a, 0) + ends.get(a, 0) for a, d in enumerate(x.shape))
    names, groups = coordinates(x.rank, padded)
    lines, parameters = [], {}  # type: list[str], dict[str, Dim]
    for a in padded:
        parameters |= {f"begin{a}": begins[a], f"extent{a}": x.shape[a]}
        lines += [f"let i{a} = {_SOURCES[mode]};".replace("#", str(a))]
        if mode == "constant":
            lines.append(f"if (i{a} >= $extent{a}) {{ return fill_at(0u); }}")
    lines.append(f"return x_at({', '.join(f'i{n[2:]}' if n.startswith('at') else n for n in names)});")
    operands: dict[str, tuple[Operand, Sequence[int]]] = {"x": (x, groups)}
    if mode == "constant":
        fill = fill if fill is not None else b.constant(np.array([value], x.dtype.numpy))
        operands["fill"] = (b.reshape(fill, (1,)), (1,))
    return b.map(
        body(lines),
        x.dtype,
        shape,
        names,
        groups,
        operands,
        parameters=parameters,
        cost=4 * len(padded),
        reuse=mode != "constant",
    )


# The u32 input index along axis #. A constant pad lets it wrap past every extent; the others bring it back.
_SOURCES = {
    "constant": "at# - $begin#",
    "edge": "u32(clamp(i32(at#) - i32($begin#), 0, i32($extent#) - 1))",
    "reflect": "reflected(i32(at#) - i32($begin#), i32($extent#))",
    "wrap": "u32(floormod_i32(i32(at#) - i32($begin#), i32($extent#)))",
}


def coordinates(rank: int, axes: list[int]) -> tuple[list[str], list[int]]:
    """Names and groups of coordinates: `at<axis>` for each of `axes`, one for every run of other axes between them."""
    names: list[str] = []
    groups: list[int] = []
    for axis in range(rank):
        if axis not in axes and axis and axis - 1 not in axes:
            groups[-1] += 1
        else:
            names.append(f"at{axis}" if axis in axes else f"kept{axis}")
            groups.append(1)
    return names, groups


@op("Trilu", types=ANY, diagonal=INTEGERS)
def trilu(b: Builder, x: Operand, diagonal: Operand | None = None, *, upper: int = 1) -> Operand:
    """Keeps the upper or lower triangle of the last two axes and zeroes the rest."""
    k = index32(b, b.reshape(diagonal, (1,))) if diagonal is not None else b.constant(np.zeros(1, np.int32))
    keep = "i32(column) - i32(row) >= k_at(0u)" if upper else "i32(column) - i32(row) <= k_at(0u)"
    groups = (x.rank - 2, 1, 1)
    lines = [f"if ({keep}) {{ return x_at(outer, row, column); }}", "return $out_t();"]
    return b.map(
        body(lines), x.dtype, x.shape, ("outer", "row", "column"), groups, {"x": (x, groups), "k": (k, (1,))}, cost=4
    )
