"""Indices from tensors: read with all their 64 bits, checked where they are known, safe where they are not.

In: an operand of indices and, per indexed axis, the valid range. Out: the same indices as i32. An index that does not fit
becomes the extreme number on its side, which is still outside every axis.

An index out of range is an error:

* a constant raises `OutOfRangeError`,
* if its axis depends on the run, it is an error of the run,
* if it is data, it is an error of runs with validationMode=full (`Builder.expect`). Other runs clamp or skip it, as each
  operator defines, and never access memory outside a tensor.
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
    """The least and the largest valid index, and a name for what is indexed, for messages."""

    low: Dim
    high: Dim
    what: str


def along(x: Operand, axis: int, what: str = "the data") -> Allowed:
    """The valid indices of an axis of x; negative ones count from its end."""
    return Allowed(-x.shape[axis], x.shape[axis] - 1, f"axis {axis} of {what} {x}")


def index32(b: Builder, indices: Operand, *allowed: Allowed) -> Operand:
    """Returns indices as i32. A single `allowed` applies to all of them; several apply to one place each along the last axis."""
    if len(allowed) > 1:
        for k, bounds in enumerate(allowed):
            check_indices(b, _column(b, indices, k), bounds)
    elif allowed:
        check_indices(b, indices, allowed[0])
    return narrowed(b, indices)


def narrowed(b: Builder, x: Operand) -> Operand:
    """Returns integers as i32. A number that does not fit becomes the least or the largest i32. Fractions are truncated."""
    kind = x.dtype.compute
    if x.dtype is DType.INT32:
        return x
    cut = {"f32": "i32(trunc(x))", "f64": "i32(x)", "i32": "x"}.get(kind or "", "narrow(x)")
    return b.pointwise(cut, {"x": x}, DType.INT32)


def _column(b: Builder, indices: Operand, k: int) -> Operand:
    """Returns the k-th numbers along the last axis, with their host values if known."""
    host = (lambda: indices.host[..., k : k + 1]) if indices.has_host else None
    view = b.slice(indices, indices.rank - 1, k, 1, 1)
    return Operand(indices.dtype, view.shape, view.view, host=host, known=indices.known)


def evenly_spaced(indices: Operand, extent: Dim) -> tuple[Dim, int] | None:
    """Returns the first of known, evenly spaced indices of an axis, counted from its beginning, and their step; None for
    others."""
    if indices.rank > 1 or not (indices.known and indices.has_host):
        return None
    values = [select(less(it, 0), it + extent, it) for it in indices.dims("the indices")]
    steps = {b - a for a, b in pairwise(values)} or {1}
    step = steps.pop()
    if not values or steps or not isinstance(step, int) or step == 0:
        return None
    return values[0], step


def check_indices(b: Builder, indices: Operand, allowed: Allowed) -> None:
    """Raises OutOfRangeError for a constant that is out of range, and requires what only a run can check."""
    low, high, what = allowed
    values = _known_values(indices)
    if values is None:
        b.expect(indices, low, high, what)
        return
    for place, value in _extremes(values):
        text = f"the index {{}}{f' at {list(place)}' if place else ''} is outside {what}"
        for inside in (less_equal(low, value), less_equal(value, high)):
            # with assumptions, a run may have another axis, for which this graph is not used
            if inside == 0 and not b.assumes:
                raise OutOfRangeError(f"{text.format(value)}: change the model, or name the node in forceCpuNodeNames")
            b.require(inside, text, value)


def _known_values(indices: Operand) -> np.ndarray | None:
    if indices.constant is not None:
        return np.asarray(indices.constant)
    return np.asarray(indices.host) if indices.has_host and indices.known else None


def _extremes(values: np.ndarray) -> list[tuple[tuple[int, ...], Dim]]:
    """Returns the least and the largest number, and all that depend on the run, each with its position."""
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
