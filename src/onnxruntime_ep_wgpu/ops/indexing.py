"""Operators that pick elements by computed indices, or make elements from them. Indices out of a tensor are clamped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..builder import Builder, Operand
from ..dims import Dim, product
from ..dtypes import DType
from ..errors import UnsupportedError
from .pointwise import type_of
from .registry import ANY, BOOLS, INTEGERS, NUMBERS, op
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


def gather_along(b: Builder, x: Operand, indices: Operand, axis: int) -> Operand:
    """y[..., k, ...] = x[..., indices[..., k, ...], ...]; on the other axes indices may be shorter than x."""
    names, groups = beside(x, indices, axis)
    at = ", ".join(names)
    lines = (
        f"  let k = indices_at({at});\n"
        "  let i = clamp(select(k, k + i32($extent), k < 0), 0, i32($extent) - 1);\n"
        f"  return x_at({at.replace('along', 'u32(i)')});"
    )
    return b.map(
        lines,
        x.dtype,
        indices.shape,
        names,
        groups,
        {"x": (x, groups), "indices": (index32(b, indices), groups)},
        parameters={"extent": x.shape[axis]},
        cost=4,
    )


def beside(x: Operand, y: Operand, axis: int) -> tuple[list[str], list[int]]:
    """Coordinates that x and y share, `along` the one of `axis`: names and groups. The other axes count together on each
    side where x and y agree on their extents, else each by itself."""
    if x.rank != y.rank:
        raise UnsupportedError(f"indices of rank {y.rank} for data of rank {x.rank}")
    after = x.rank - axis - 1
    if x.shape[:axis] == y.shape[:axis] and x.shape[axis + 1 :] == y.shape[axis + 1 :]:
        return ["before", "along", "after"], [axis, 1, after]
    return ["along" if k == axis else f"at{k}" for k in range(x.rank)], [1] * x.rank


@op("GatherElements", types=ANY, indices=INDICES)
def gather_elements(b: Builder, x: Operand, indices: Operand, *, axis: int = 0) -> Operand:
    return gather_along(b, x, indices, axis_of(axis, x.rank))


@op("GatherND", types=ANY, indices=INDICES)
def gather_nd(b: Builder, x: Operand, indices: Operand, *, batch_dims: int = 0) -> Operand:
    """The last axis of the indices picks along the axes of x that follow the batch; the rest of x is copied."""
    count = indices.shape[-1]
    if not isinstance(count, int):
        raise UnsupportedError("the number of indices per element depends on the input")
    inner = x.rank - batch_dims - count
    shape = (*indices.shape[:-1], *x.shape[batch_dims + count :])
    lines, parameters = picked_axes(x.shape[batch_dims : batch_dims + count], "indices_at(batch, picked, #u)")
    picks = ", ".join(f"p{k}" for k in range(count))
    lines.append(f"return x_at({', '.join(n for n in ('batch', picks, 'inner') if n)});")
    queries = indices.rank - batch_dims - 1
    return b.map(
        body(lines),
        x.dtype,
        shape,
        ("batch", "picked", "inner"),
        (batch_dims, queries, inner),
        {"x": (x, (batch_dims, *(1,) * count, inner)), "indices": (index32(b, indices), (batch_dims, queries, 1))},
        parameters=parameters,
        cost=4 * max(count, 1),
    )


def picked_axes(extents: Sequence[Dim], index: str) -> tuple[list[str], dict[str, Dim]]:
    """WGSL statements for `p0`, `p1`..., indices clamped to their axes; "#" in `index` is the number of the axis."""
    lines = []
    for k in range(len(extents)):
        lines.append(f"let k{k} = {index.replace('#', str(k))};")
        lines.append(f"let p{k} = u32(clamp(select(k{k}, k{k} + i32($extent{k}), k{k} < 0), 0, i32($extent{k}) - 1));")
    return lines, {f"extent{k}": e for k, e in enumerate(extents)}


@op("ReverseSequence", types=ANY, lengths=INDICES)
def reverse_sequence(b: Builder, x: Operand, lengths: Operand, *, batch_axis: int = 1, time_axis: int = 0) -> Operand:
    """Reverses the first lengths[batch] elements along the time axis of each batch."""
    names, groups = coordinates(x.rank, sorted((batch_axis, time_axis)))
    time = f"at{time_axis}"
    lines = [
        f"let length = u32(lengths_at(at{batch_axis}));",
        f"let i = select({time}, length - 1u - {time}, {time} < length);",
        f"return x_at({', '.join('min(i, $extent - 1u)' if n == time else n for n in names)});",
    ]
    return b.map(
        body(lines),
        x.dtype,
        x.shape,
        names,
        groups,
        {"x": (x, groups), "lengths": (index32(b, lengths), (1,))},
        parameters={"extent": x.shape[time_axis]},
        cost=4,
    )


@op("OneHot", types=ANY, indices=NUMBERS, depth=NUMBERS)
def one_hot(b: Builder, indices: Operand, depth: Operand, values: Operand, *, axis: int = -1) -> Operand:
    """values[1] where the position along the new axis is the index, which may count from the end, else values[0]."""
    extent: Dim = depth.dims("the depth")[0] if depth.has_host else int(depth.floats("the depth")[0])
    axis = axis_of(axis, indices.rank + 1)
    shape = (*indices.shape[:axis], extent, *indices.shape[axis:])
    kind = f"i32({'trunc(x)' if indices.dtype.is_float else 'x'})"
    index = indices if indices.dtype is DType.INT32 else b.pointwise(kind, {"x": indices}, DType.INT32)
    lines = [
        "let k = index_at(outer, inner);",
        "let i = select(k, k + i32($depth), k < 0);",
        "return values_at(select(0u, 1u, i == i32(at)));",
    ]
    return b.map(
        body(lines),
        values.dtype,
        shape,
        ("outer", "at", "inner"),
        (axis, 1, indices.rank - axis),
        {"index": (index, (axis, indices.rank - axis)), "values": (values, (1,))},
        parameters={"depth": extent},
        cost=4,
    )


@op("EyeLike", types=ANY)
def eye_like(b: Builder, x: Operand, *, dtype: int | None = None, k: int = 0) -> Operand:
    """Ones on diagonal k, zeros elsewhere."""
    to = x.dtype if dtype is None else type_of(dtype)
    counter = b.map(
        f"  return select(0i, 1i, i32(column) - i32(row) == {k}i);",
        DType.INT32,
        x.shape,
        ("row", "column"),
        (1, 1),
        {},
        cost=2,
    )
    return b.pointwise(f"{to.compute}(x)", {"x": counter}, to)


def _depends_on_data(name: str, what: str) -> None:
    @op(name, types=ANY)
    def lower(b: Builder, *xs: Operand, **attributes: object) -> Operand:
        raise UnsupportedError(f"{what}, so the shape of the result depends on data; it runs on the CPU")


_depends_on_data("NonZero", "the number of elements that are not zero is known only from the data")
_depends_on_data("Unique", "the number of distinct elements is known only from the data")
_depends_on_data("NonMaxSuppression", "the number of boxes that stay is known only from the data")


@op("Compress", types=ANY, condition=BOOLS)
def compress(b: Builder, x: Operand, condition: Operand, *, axis: int | None = None) -> Operand:
    """Elements or slices of x whose condition holds; the conditions must be known when the graph is compiled."""
    known = condition.constant
    if known is None and not (condition.has_host and condition.known):
        raise UnsupportedError(
            "the condition is computed on the device, so the shape of the result depends on data; it runs on the CPU"
        )
    kept = np.flatnonzero(known if known is not None else condition.ints("the condition")).astype(np.int64)
    if axis is None:
        x = b.reshape(x, (product(x.shape),))
    result: Operand = gather(b, x, b.constant(kept), axis=axis or 0)
    return result


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
