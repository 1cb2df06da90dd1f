"""Indices that come out of tensors: seen in all their 64 bits, checked where they are known, safe where they are not.

In: an operand of indices and, per axis that it counts along, what is allowed. Out: the same indices as i32, in which one
that does not fit is the furthest number on its side, hence still outside every axis.

An index out of range is an error (`OutOfRangeError`) when it is a constant, an error of the run when its axis depends on
the run, and an error of the run with validationMode=full when it is data (`Builder.expect`). Otherwise data out of
range is clamped or skipped, as each operator says, and never reaches memory outside a tensor.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ....errors import OutOfRangeError
from ....program.dtypes import DType
from ...dims import Dim, less, less_equal, select
from ..builder import Builder, Operand

INDICES = frozenset({DType.INT32, DType.INT64})


class Allowed(NamedTuple):
    """The least and the largest index, and what it counts along, for messages."""

    low: Dim
    high: Dim
    what: str


def along(x: Operand, axis: int, what: str = "the data") -> Allowed:
    """Indices of an axis of x; negative ones count from its end."""
    return Allowed(-x.shape[axis], x.shape[axis] - 1, f"axis {axis} of {what} {x}")


def index32(b: Builder, indices: Operand, *allowed: Allowed) -> Operand:
    """Indices as i32. With one `allowed` it holds for all of them, with several each for its place along the last axis."""
    if len(allowed) > 1:
        for k, bounds in enumerate(allowed):
            check_indices(b, _column(b, indices, k), bounds)
    elif allowed:
        check_indices(b, indices, allowed[0])
    return narrowed(b, indices)


def narrowed(b: Builder, x: Operand) -> Operand:
    """Whole numbers as i32; what does not fit becomes the least or the largest one. Fractions are cut off."""
    kind = x.dtype.compute
    if x.dtype is DType.INT32:
        return x
    cut = {"f32": "i32(trunc(x))", "f64": "i32(x)", "i32": "x"}.get(kind or "", "narrow(x)")
    return b.pointwise(cut, {"x": x}, DType.INT32)


def _column(b: Builder, indices: Operand, k: int) -> Operand:
    """The k-th of the numbers along the last axis, with its value on the host where that is known."""
    host = (lambda: indices.host[..., k : k + 1]) if indices.has_host else None
    view = b.slice(indices, indices.rank - 1, k, 1, 1)
    return Operand(indices.dtype, view.shape, view.view, host=host, known=indices.known)


def evenly_apart(indices: Operand, extent: Dim) -> tuple[Dim, int] | None:
    """The first of known indices of an axis, counted from its beginning, and the step from each to the next; None for others."""
    if indices.rank > 1 or not (indices.known and indices.has_host):
        return None
    values = [select(less(it, 0), it + extent, it) for it in indices.dims("the indices")]
    steps = {b - a for a, b in pairwise(values)} or {1}
    step = steps.pop()
    if not values or steps or not isinstance(step, int) or step == 0:
        return None
    return values[0], step


def check_indices(b: Builder, indices: Operand, allowed: Allowed) -> None:
    """Raises OutOfRangeError for a constant that is not allowed; notes what only a run can check."""
    low, high, what = allowed
    values = _known(indices)
    if values is None:
        b.expect(indices, low, high, what)
        return
    for place, value in _extremes(values):
        text = f"the index {{}}{f' at {list(place)}' if place else ''} is outside {what}"
        for inside in (less_equal(low, value), less_equal(value, high)):
            if inside == 0 and not b.assumes:  # else a run may have another axis, and this graph is not the one for it
                raise OutOfRangeError(f"{text.format(value)}: change the model, or name the node in forceCpuNodeNames")
            b.require(inside, text, value)


def _known(indices: Operand) -> np.ndarray | None:
    if indices.constant is not None:
        return np.asarray(indices.constant)
    return np.asarray(indices.host) if indices.has_host and indices.known else None


def _extremes(values: np.ndarray) -> list[tuple[tuple[int, ...], Dim]]:
    """The least and the largest number, and all that depend on the run, each with its place."""
    flat = values.reshape(-1)
    if values.dtype == object:
        numbers = [k for k, v in enumerate(flat) if isinstance(v, int)]
        places = [k for k, v in enumerate(flat) if not isinstance(v, int)]
        if numbers:
            places += [min(numbers, key=flat.__getitem__), max(numbers, key=flat.__getitem__)]
    else:
        places = [int(flat.argmin()), int(flat.argmax())] if flat.size else []
    found = [(tuple(map(int, np.unravel_index(k, values.shape))), flat[k]) for k in dict.fromkeys(places)]
    return [(place, int(v) if isinstance(v, np.integer) else v) for place, v in found]
