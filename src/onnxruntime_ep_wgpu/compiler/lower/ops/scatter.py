"""ScatterElements and ScatterND: elements of the data are replaced by, or combined with, updates.

Each element of the result gathers its updates, in the order of the updates, as on the CPU provider. So results do not depend
on timing, unlike a sum of floats by atomic operations. Any element type is possible, and the data is not copied first.
`scatter_along.py` describes how an element finds its updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ....program.target import elements_per_word
from ...dims import Dim, equal, product
from ...nodes.coordinates import named
from ...nodes.divide import BindingsError
from ..builder import Builder, Operand
from .index import INDICES, Allowed, along, index32
from .named_axes import axis_of
from .registry import ANY, at_least, op
from .scatter_along import along_lines, last_updates, scattered_along, wrapped

Reduction = Literal["none", "add", "mul", "min", "max"]
CacheMode = Literal["linear", "circular"]


@op("ScatterElements", "Scatter", types=ANY, indices=INDICES, ranks={"x": at_least(1)})
def scatter_elements(
    b: Builder, x: Operand, indices: Operand, updates: Operand, *, axis: int = 0, reduction: Reduction = "none"
) -> Operand:
    """y[..., indices[..., k, ...], ...] = updates[..., k, ...]."""
    axis = axis_of(axis, x.rank)
    if indices.rank != x.rank:
        raise UnsupportedError(f"indices of rank {indices.rank} for data of rank {x.rank}")
    _require_shape(b, updates, indices.shape)
    lines = along_lines(b, indices, axis)
    keys = wrapped(b, index32(b, lines, along(x, axis)), x.shape[axis])
    return _in_pieces(
        b, x, (keys, updates), axis, _max_updates(b, x, reduction), reduction,
        lambda y, here, these: scattered_along(b, y, here, these, axis, reduction),
    )  # fmt: skip


def _in_pieces(
    b: Builder,
    x: Operand,
    updates: tuple[Operand, Operand],
    axis: int,
    most: int | None,
    reduction: str,
    scattered: Callable[[Operand, Operand, Operand], Operand],
) -> Operand:
    """Returns x after all `updates`, (positions, values) along an axis. They are applied at once, or in pieces of at most
    `most`, such that each piece can be searched and bound."""
    count, mark = updates[0].shape[axis], b.mark()
    if most is not None and not isinstance(count, int):
        most = None  # a limit of the run
    while True:
        pieces = [(0, count)] if most is None or not isinstance(count, int) else _pieces(count, most)
        y = _accumulator(b, x, reduction) if len(pieces) > 1 else x
        try:
            for start, length in pieces:
                here, these = (b.slice(o, axis, start, 1, length) if len(pieces) > 1 else o for o in updates)
                y = scattered(y, here, these)
            return b.cast(y, x.dtype)
        except BindingsError:
            if not isinstance(count, int) or count < 2 or most == 1:
                raise
            b.undo(mark)
            most = min(count, most or count) // 2


def _accumulator(b: Builder, x: Operand, reduction: str) -> Operand:
    """Returns the operand that pieces of updates are combined with: sums are rounded only once."""
    return b.cast(x, x.dtype.accumulated) if reduction != "none" else x


def _max_updates(b: Builder, x: Operand, reduction: str) -> int | None:
    """The maximum number of updates of a combination; None for no limit. An invocation combines all elements that share a
    word with their updates."""
    longest = b.target.longest_loop
    return None if longest is None or reduction == "none" else longest // elements_per_word(x.dtype, b.target)


def _pieces(count: int, most: int) -> list[tuple[int, Dim]]:
    """Splits updates into consecutive pieces (first, count) of at most `most`."""
    return [(start, min(most, count - start)) for start in range(0, count, most)]


def _require_shape(b: Builder, updates: Operand, shape: Sequence[Dim]) -> None:
    alike = updates.rank == len(shape)
    b.require(int(alike), "updates {} must have the shape {}", updates, shape)
    for have, want in zip(updates.shape, shape, strict=True):
        b.require(equal(have, want), "updates {} must have the shape {}", updates, shape)


@op("ScatterND", types=ANY, indices=INDICES, ranks={"x": at_least(1), "indices": at_least(1)})
def scatter_nd(b: Builder, x: Operand, indices: Operand, updates: Operand, *, reduction: Reduction = "none") -> Operand:
    """Each index vector selects a slice of x, which its update replaces or is combined with."""
    queries = indices.rank - 1
    depth = queries + x.rank - updates.rank  # ONNX states it twice
    b.require(
        equal(indices.shape[-1], depth), "indices {} do not match slices of {} with updates {}", indices, x, updates
    )
    if not 0 <= depth <= x.rank:
        raise UnsupportedError(f"{depth} indices per update for data of rank {x.rank}")
    _require_shape(b, updates, (*indices.shape[:-1], *x.shape[depth:]))
    target = _targets(b, x, index32(b, indices, *(along(x, k) for k in range(depth))), depth)
    updates = b.reshape(updates, (target.size, *updates.shape[queries:]))
    if reduction == "none":
        return _in_pieces(
            b, x, (target, updates), 0, None, reduction,
            lambda y, here, these: _replaced_slices(b, y, here, these, depth),
        )  # fmt: skip
    slices, elements = product(x.shape[:depth]), product(x.shape[depth:])
    result = _in_pieces(
        b,
        b.reshape(x, (slices, elements)),
        (b.reshape(target, (target.size, 1)), b.reshape(updates, (target.size, elements))),
        0, _max_updates(b, x, reduction), reduction,
        lambda y, here, these: scattered_along(b, y, here, these, 0, reduction),
    )  # fmt: skip
    return b.reshape(result, x.shape)


def _replaced_slices(b: Builder, x: Operand, target: Operand, updates: Operand, depth: int) -> Operand:
    """Returns x after updates of its slices over the axes from `depth` on. `target` is the number of the slice for each
    update."""
    groups = (depth, x.rank - depth)
    sources = {"x": (x, groups), "updates": (updates, (1, x.rank - depth))}
    owner = b.reshape(last_updates(b, target, 0, product(x.shape[:depth])), x.shape[:depth])
    return b.map(
        "let n = owner_at(slice); if (n >= 0) { return updates_at(u32(n), inner); } return x_at(slice, inner);",
        x.dtype,
        x.shape,
        ("slice", "inner"),
        groups,
        {**sources, "owner": (owner, (depth,))},
        cost=4,
        reuse=True,
    )


def _targets(b: Builder, x: Operand, indices: Operand, depth: int) -> Operand:
    """Returns i32 per update: the number of its slice, -1 if an index is out of range."""
    if not depth:
        return b.map("return 0i;", DType.INT32, (product(indices.shape[:-1]),), ("n",), (1,), {}, cost=1)
    return b.map(
        "scatter_target",
        DType.INT32,
        (product(indices.shape[:-1]),),
        ("n",),
        (1,),
        {"indices": (indices, (indices.rank - 1, 1))},
        parameters={f"extent{k}": x.shape[k] for k in range(depth)},
        cost=4 * depth,
        DEPTH=depth,
    )


@op("TensorScatter", types=ANY, starts=INDICES)
def tensor_scatter(
    b: Builder,
    past: Operand,
    update: Operand,
    starts: Operand | None = None,
    *,
    axis: int = -2,
    mode: CacheMode = "linear",
) -> Operand:
    """Returns a cache with `update` written along an axis from starts[batch] on; `circular` wraps around to the beginning."""
    axis = axis_of(axis, past.rank)
    if not axis or update.rank != past.rank:
        raise UnsupportedError(
            f"axis {axis} of a cache {past} for an update {update}: an axis after the batch is needed"
        )
    groups = (1, axis - 1, 1, past.rank - axis - 1)
    extent = past.shape[axis]
    operands: dict[str, tuple[Operand, tuple[int, ...]]] = {"past": (past, groups), "update": (update, groups)}
    if starts is not None:
        last = extent if mode == "circular" else extent - update.shape[axis]
        allowed = Allowed(0, last, f"where {update} fits into axis {axis} of {past}")
        operands["starts"] = (index32(b, starts, allowed), (1,))
    return b.map(
        "tensor_scatter",
        past.dtype,
        past.shape,
        ("batch", "outer", "at", "inner"),
        groups,
        operands,
        parameters={"extent": extent, "count": update.shape[axis]},
        cost=4,
        CIRCULAR=mode == "circular",
    )


@op("MaxUnpool", types=ANY, indices=INDICES)
def max_unpool(
    b: Builder,
    x: Operand,
    indices: Operand,
    output_shape: Operand | None = None,
    *,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Operand:
    """Puts each element of x at its flat index, with zeros elsewhere. A larger `output_shape` adds zeros at the ends."""
    rank = x.rank - 2
    pads, strides = pads or [0] * (2 * rank), strides or [1] * rank
    spatial = [(x.shape[2 + k] - 1) * strides[k] - pads[k] - pads[rank + k] + kernel_shape[k] for k in range(rank)]
    shape = [*x.shape[:2], *spatial]
    zeros = b.expand(b.constant(np.zeros(1, x.dtype.numpy)), (product(shape),))
    y = b.reshape(scatter_nd(b, zeros, b.reshape(indices, (x.size, 1)), b.reshape(x, (x.size,))), shape)
    if output_shape is None:
        return y
    wanted = output_shape.dims("the shape of the result")
    return b.map(
        "if (#[at#k < $in#k for k RANK by &&]) { return y_at(#[at#k for k RANK]); } return $out_t();",
        x.dtype,
        tuple(wanted),
        named("at", wanted),
        (1,) * x.rank,
        {"y": (y, (1,) * x.rank)},
        parameters={f"in{k}": d for k, d in enumerate(shape)},
        cost=4,
        RANK=x.rank,
    )
