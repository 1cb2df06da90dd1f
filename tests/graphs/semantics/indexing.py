"""Operators that read and write at places that they are given."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import Function, rule


@rule("Gather")
def _gather(x: Any, indices: Any, axis: int) -> Any:
    return np.take(x, indices, axis)


@rule("GatherElements")
def _gather_elements(x: Any, indices: Any, axis: int) -> Any:
    for k in range(x.ndim):
        if k != axis % x.ndim and indices.shape[k] > x.shape[k]:
            raise ValueError("more indices than elements")
    cut = tuple(slice(None) if k == axis % x.ndim else slice(n) for k, n in enumerate(indices.shape))
    return np.take_along_axis(x[cut], np.where(indices < 0, indices + x.shape[axis], indices), axis)


@rule("GatherND")
def _gather_nd(x: Any, indices: Any, batch_dims: int) -> Any:
    if batch_dims:
        raise ValueError("left to the reference evaluator")
    if not indices.size:
        return np.zeros((*indices.shape[:-1], *x.shape[indices.shape[-1] :]), x.dtype)
    return x[tuple(np.moveaxis(indices, -1, 0))]


REDUCE: dict[str, Function] = {
    "none": lambda old, new: new, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


@rule("ScatterElements")
def _scatter_elements(x: Any, indices: Any, updates: Any, axis: int, reduction: str) -> Any:
    out = x.copy()
    for place in np.ndindex(*indices.shape):
        to = (*place[: axis % x.ndim], int(indices[place]), *place[axis % x.ndim + 1 :])
        out[to] = REDUCE[reduction](out[to], updates[place])
    return out


@rule("ScatterND")
def _scatter_nd(x: Any, indices: Any, updates: Any, reduction: str) -> Any:
    out = x.copy()
    for place in np.ndindex(*indices.shape[:-1]):
        to = tuple(int(i) for i in indices[place])
        out[to] = REDUCE[reduction](out[to], updates[place])
    return out


@rule("OneHot")
def _one_hot(indices: Any, depth: Any, pair: Any, axis: int) -> Any:
    count = int(np.reshape(depth, -1)[0])
    wrapped = np.where(indices < 0, indices + count, indices)
    hot = np.arange(count) == np.expand_dims(wrapped, -1)
    return np.moveaxis(np.where(hot, pair[1], pair[0]), -1, axis)


@rule("Trilu")
def _trilu(x: Any, k: Any = None, upper: int = 1) -> Any:
    by = 0 if k is None else int(np.reshape(k, -1)[0])
    rows, columns = x.shape[-2:]
    keep = np.arange(columns) - np.arange(rows)[:, None]
    return np.where(keep >= by if upper else keep <= by, x, np.zeros((), x.dtype))


@rule("EyeLike")
def _eye_like(x: Any, k: int, dtype: str | None = None) -> Any:
    return np.eye(*x.shape, k=k, dtype=x.dtype)


@rule("Compress")
def _compress(x: Any, condition: Any, axis: int | None = None) -> Any:
    return np.compress(condition, x, axis)
