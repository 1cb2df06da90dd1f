"""Operators that select elements by computed indices, or generate elements from indices. For indices out of range see `index`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import LARGEST, Dim, equal, less_equal, maximum, may_be
from ...nodes.coordinates import named, separate_coordinates
from ..builder import Builder, Operand
from ..operand import fixed
from .choices import Flag
from .index import INDICES, Allowed, along, check_indices, evenly_spaced, index32, narrowed
from .named_axes import axes_of, axis_of
from .pointwise import type_of
from .registry import ANY, INTEGERS, MICROSOFT, SINGLES, KnownShape, at_least, op
from .shape import extents


@op("Gather", types=ANY, indices=INDICES)
def gather(b: Builder, x: Operand, indices: Operand, *, axis: int = 0) -> Operand:
    """y[outer, k, inner] = x[outer, indices[k], inner]; negative indices count from the end. For known, evenly spaced
    indices, such as a single one, the result is a view."""
    axis = axis_of(axis, x.rank)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    check_indices(b, indices, along(x, axis))
    if (row := evenly_spaced(indices, x.shape[axis])) is not None:
        view = x.view.slice(axis, *row, indices.size)
        view = None if view is None else view.reshape(shape)
        if view is not None:
            return b.view(x, view)
    groups = (axis, indices.rank, x.rank - axis - 1)
    return b.map(
        "gather",
        x.dtype,
        shape,
        ("outer", "picked", "inner"),
        groups,
        {
            "x": (x, (axis, 1, x.rank - axis - 1)),
            "indices": (narrowed(b, indices), (indices.rank,)),
        },
        parameters={"extent": x.shape[axis]},
        cost=4,
        MAY_BE_EMPTY=may_be(x.shape[axis], 0),
    )


def gather_along(b: Builder, x: Operand, indices: Operand, axis: int, *allowed: Allowed) -> Operand:
    """y[..., k, ...] = x[..., indices[..., k, ...], ...]. On the other axes, indices may be shorter than x.

    Without `allowed`, the indices are known to be valid.
    """
    groups, at, _ = shared_coordinates(b, x, indices, axis)
    return b.map(
        "gather_along",
        x.dtype,
        indices.shape,
        named("at", groups),
        groups,
        {"x": (x, groups), "indices": (index32(b, indices, *allowed), groups)},
        parameters={"extent": x.shape[axis]},
        cost=4,
        RANK=len(groups),
        AXIS=at,
        MAY_BE_EMPTY=may_be(x.shape[axis], 0),
    )


def shared_coordinates(b: Builder, x: Operand, y: Operand, axis: int) -> tuple[list[int], int, tuple[int, ...]]:
    """Returns three values: the number of axes per coordinate that x and indices y share, the coordinate of `axis`, and the
    coordinates along which y may be shorter than x.

    If x and y have the same extents except along `axis`, the axes before and after it are one coordinate each. Otherwise each
    axis is a coordinate, and y is at most as long as x there.
    """
    if x.rank != y.rank:
        raise UnsupportedError(f"indices of rank {y.rank} for data of rank {x.rank}")
    for k in range(x.rank):
        if k != axis:
            b.require(
                less_equal(y.shape[k], x.shape[k]), f"indices {{}} are longer than the data {{}} on axis {k}", y, x
            )
    after = x.rank - axis - 1
    if x.shape[:axis] == y.shape[:axis] and x.shape[axis + 1 :] == y.shape[axis + 1 :]:
        return [axis, 1, after], 1, ()
    return [1] * x.rank, axis, tuple(k for k in range(x.rank) if k != axis)


@op("GatherElements", types=ANY, indices=INDICES, ranks={"x": at_least(1)})
def gather_elements(b: Builder, x: Operand, indices: Operand, *, axis: int = 0) -> Operand:
    axis = axis_of(axis, x.rank)
    return gather_along(b, x, indices, axis, along(x, axis))


@op("GatherND", types=ANY, indices=INDICES, ranks={"x": at_least(1), "indices": at_least(1)})
@op("GatherND", domain=MICROSOFT, types=ANY, indices=INDICES, ranks={"x": at_least(1), "indices": at_least(1)})
def gather_nd(
    b: Builder, x: Operand, indices: Operand, *, batch_dims: int = 0, result_shapes: Sequence[KnownShape | None] = ()
) -> Operand:
    """The last axis of the indices selects along the axes of x after the batch axes. The remaining axes of x are copied."""
    count, declared_shape = indices.shape[-1], result_shapes[0] if result_shapes else None
    if not isinstance(count, int) and declared_shape is not None:
        # The model states the rank of the result.
        declared = x.rank + indices.rank - 1 - batch_dims - len(declared_shape)
        b.require(equal(count, declared), f"indices {{}} for a result of rank {len(declared_shape)}", indices)
        indices = b.assumed(indices, (*indices.shape[:-1], declared))
        count = declared
    (count,) = fixed("the number of indices per element", count)
    axes = range(batch_dims, batch_dims + count)
    inner = x.rank - batch_dims - count
    if inner < 0:
        raise UnsupportedError(f"{count} indices per element after {batch_dims} batch axes for data of rank {x.rank}")
    for k in range(batch_dims):
        b.require(
            equal(indices.shape[k], x.shape[k]), f"indices {{}} and data {{}} differ on batch axis {k}", indices, x
        )
    shape = (*indices.shape[:-1], *x.shape[batch_dims + count :])
    queries, picks = indices.rank - batch_dims - 1, [x.shape[axis] for axis in axes]
    if not count:
        shown = (*x.shape[:batch_dims], *(1,) * queries, *x.shape[batch_dims:])
        return b.expand(b.reshape(x, shown), shape)
    empty: dict[str, Any] = {f"MAY_BE_EMPTY{k}": may_be(extent, 0) for k, extent in enumerate(picks)}
    return b.map(
        "gather_nd",
        x.dtype,
        shape,
        ("batch", "picked", "inner"),
        (batch_dims, queries, inner),
        {
            "x": (x, (batch_dims, *(1,) * count, inner)),
            "indices": (index32(b, indices, *(along(x, axis) for axis in axes)), (batch_dims, queries, 1)),
        },
        parameters={f"extent{k}": extent for k, extent in enumerate(picks)},
        cost=4 * count,
        COUNT=count,
        **empty,
    )


@op("ReverseSequence", types=ANY, lengths=INDICES)
def reverse_sequence(b: Builder, x: Operand, lengths: Operand, *, batch_axis: int = 1, time_axis: int = 0) -> Operand:
    """Reverses the first lengths[batch] elements along the time axis of each batch."""
    batch_axis, time_axis = axis_of(batch_axis, x.rank), axis_of(time_axis, x.rank)
    if batch_axis == time_axis:
        raise UnsupportedError(f"batch_axis and time_axis are both {time_axis}")
    groups, numbers = separate_coordinates(x.rank, {batch_axis, time_axis})
    b.require(equal(lengths.size, x.shape[batch_axis]), f"{{}} lengths for axis {batch_axis} of {{}}", lengths, x)
    allowed = Allowed(0, x.shape[time_axis], f"the lengths of axis {time_axis} of {x}")
    return b.map(
        "reverse_sequence",
        x.dtype,
        x.shape,
        named("at", groups),
        groups,
        {"x": (x, groups), "lengths": (index32(b, lengths, allowed), (1,))},
        parameters={"extent": x.shape[time_axis]},
        cost=4,
        RANK=len(groups),
        BATCH=numbers[batch_axis],
        TIME=numbers[time_axis],
    )


@op("OneHot", types=ANY, indices=SINGLES, depth=SINGLES)
def one_hot(
    b: Builder,
    indices: Operand,
    depth: Operand,
    values: Operand,
    *,
    axis: int = -1,
    result_shapes: Sequence[KnownShape | None] = (),
) -> Operand:
    """values[1] where the position along the new axis equals the index, which may count from the end; else values[0]."""
    depth.check_one("the depth")
    axis = axis_of(axis, indices.rank + 1)
    if depth.dtype.is_float and not depth.has_host:
        declared = result_shapes[0] if result_shapes else None
        usual = (declared[axis] if declared is not None and len(declared) == indices.rank + 1 else None) or 1
        extent: Dim = int(b.assumed_floats(depth, "the depth", lambda count: [usual] * count)[0])
    else:
        (extent,) = extents(b, depth.dims("the depth"), "the depth")
    shape = (*indices.shape[:axis], extent, *indices.shape[axis:])
    index = narrowed(b, indices)
    return b.map(
        "let k = index_at(outer, inner); let i = select(k, k + i32($depth), k < 0);"
        " return values_at(select(0u, 1u, i == i32(at)));",
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
    if to.compute is None:
        raise UnsupportedError(f"no kernel for results of type {to.label}")
    k = min(max(k, -LARGEST), LARGEST)  # any diagonal outside is as empty
    counter = b.map(
        "return select(0i, 1i, i32(column) - i32(row) == #(K)i);",
        DType.INT32,
        x.shape,
        ("row", "column"),
        (1, 1),
        {},
        cost=2,
        K=k,
    )
    return b.pointwise(f"{to.compute}(x)", {"x": counter}, to)


PadMode = Literal["constant", "edge", "reflect", "wrap"]


@op("Pad", types=ANY, pads_input=INTEGERS, axes=INTEGERS, keeps_format=True)
@op("Pad", domain=MICROSOFT, types=ANY, pads_input=INTEGERS, axes=INTEGERS, keeps_format=True)
def pad(
    b: Builder,
    x: Operand,
    pads_input: Operand | None = None,
    fill: Operand | None = None,
    axes: Operand | None = None,
    *,
    mode: PadMode = "constant",
    pads: list[int] | None = None,
    paddings: list[int] | None = None,
    value: float = 0.0,
) -> Operand:
    """`pads` has all begins, then all ends. They may be negative, and expressions of the input shapes."""
    given = axes_of(b, axes, None, x.rank)
    where = list(range(x.rank)) if given is None else [axis_of(a, x.rank) for a in given]
    amounts: list[Dim] = list(pads or paddings or [])
    if pads_input is not None:
        amounts = pads_input.dims("the padding", 2 * len(where))
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
    if mode != "constant":
        # Elements cropped at one end must not be repeated at the other.
        for a in padded:
            before, after = maximum(-begins[a], 0), maximum(-ends[a], 0)
            if before != 0 or after != 0:
                x = b.slice(x, a, before, 1, x.shape[a] - before - after)
                begins[a], ends[a] = begins[a] + before, ends[a] + after
    shape = tuple(d + begins.get(a, 0) + ends.get(a, 0) for a, d in enumerate(x.shape))
    if mode == "constant":
        fill = fill if fill is not None else b.constant(np.array([value], x.dtype.numpy))
        return b.pad(x, fill, [begins.get(a, 0) for a in range(x.rank)], shape)
    groups, numbers = separate_coordinates(x.rank, padded)
    parameters = {f"begin{numbers[a]}": begins[a] for a in padded} | {f"extent{numbers[a]}": x.shape[a] for a in padded}
    is_padded: dict[str, Any] = {f"PADDED{k}": k in numbers.values() for k in range(len(groups))}
    return b.map(
        "pad",
        x.dtype,
        shape,
        named("at", groups),
        groups,
        {"x": (x, groups)},
        parameters=parameters,
        cost=4 * len(padded),
        reuse=True,
        RANK=len(groups),
        MODE=mode,
        **is_padded,
    )


@op("Trilu", types=ANY, diagonal=INTEGERS, ranks={"x": at_least(2)})
@op("Trilu", domain=MICROSOFT, types=ANY, diagonal=INTEGERS, ranks={"x": at_least(2)})
def trilu(b: Builder, x: Operand, diagonal: Operand | None = None, *, upper: Flag = 1) -> Operand:
    """Keeps the upper or lower triangle of the last two axes, and sets the rest to zero."""
    k = index32(b, b.reshape(diagonal, (1,))) if diagonal is not None else b.constant(np.zeros(1, np.int32))
    groups = (x.rank - 2, 1, 1)
    return b.map(
        'if (i32(column) - i32(row) #(">=" if UPPER else "<=") k_at(0u)) { return x_at(outer, row, column); } return $out_t();',
        x.dtype,
        x.shape,
        ("outer", "row", "column"),
        groups,
        {"x": (x, groups), "k": (k, (1,))},
        cost=4,
        UPPER=bool(upper),
    )
