"""Operators that go through an axis: reductions, sorting, sums so far."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from .registry import RULES, Function, rule


def _axes(x: Any, axes: Any, noop: int) -> tuple[int, ...]:
    given = () if axes is None else tuple(int(a) % max(x.ndim, 1) for a in np.reshape(axes, -1))
    return given if given or noop else tuple(range(x.ndim))


def _reduction(function: Function) -> Function:
    def reduce(x: Any, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        over = _axes(x, axes, noop_with_empty_axes)
        if x.dtype.kind not in "iu":
            result = np.asarray(function(x, axis=over, keepdims=bool(keepdims)))
            return result.astype(x.dtype) if x.dtype.kind != "b" else result
        exact = function(x.astype(object), axis=over, keepdims=bool(keepdims))
        limits = np.iinfo(x.dtype)
        return np.asarray(np.clip(exact, limits.min, limits.max)).astype(x.dtype)

    return reduce


def _elements(function: Callable[[int], int], x: Any) -> Any:
    return np.frompyfunc(function, 1, 1)(x)


def _root(x: Any) -> Any:
    if np.asarray(x).dtype == object:
        return _elements(math.isqrt, x)
    return np.sqrt(x.astype(np.float64)).astype(x.dtype)


def _logarithm(x: Any) -> Any:
    if np.asarray(x).dtype != object:
        return np.log(x)
    with localcontext(prec=60):
        return _elements(lambda v: int(Decimal(int(v)).ln()), x)  # there is none of 0 and less


def _mean(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Truncated towards zero, of integers."""
    if x.dtype != object:
        return np.mean(x, axis=axis, keepdims=keepdims)
    count = math.prod(x.shape[a] for a in axis)
    return _elements(lambda v: abs(v) // count * (1 if v > 0 else -1), np.sum(x, axis=axis, keepdims=keepdims))


REDUCTIONS: dict[str, Function] = {
    "ReduceSum": np.sum, "ReduceProd": np.prod, "ReduceMax": np.max, "ReduceMin": np.min, "ReduceMean": _mean,
    "ReduceL1": lambda x, **how: np.sum(np.abs(x), **how),
    "ReduceL2": lambda x, **how: _root(np.sum(x * x, **how)),
    "ReduceSumSquare": lambda x, **how: np.sum(x * x, **how),
    "ReduceLogSum": lambda x, **how: _logarithm(np.sum(x, **how)),
    "ReduceLogSumExp": lambda x, **how: np.log(np.sum(np.exp(x), **how)),
}  # fmt: skip
RULES |= {name: _reduction(function) for name, function in REDUCTIONS.items()}


def _extreme(function: Function) -> Function:
    def pick(x: Any, axis: int, keepdims: int, select_last_index: int = 0) -> Any:
        if select_last_index:
            place = x.shape[axis] - 1 - function(np.flip(x, axis), axis=axis, keepdims=bool(keepdims))
        else:
            place = function(x, axis=axis, keepdims=bool(keepdims))
        return np.asarray(place, np.int64)

    return pick


RULES |= {"ArgMax": _extreme(np.argmax), "ArgMin": _extreme(np.argmin)}


@rule("TopK")
def _top_k(x: Any, k: Any, axis: int, largest: int, sorted: int) -> Any:
    count = int(np.reshape(k, -1)[0])
    if count > x.shape[axis]:
        raise ValueError("more than there are")
    wide = x if x.dtype.kind == "f" else x.astype(object)
    order = np.argsort(-wide if largest else wide, axis, kind="stable")
    order = np.take(order, range(count), axis).astype(np.int64)
    return [np.take_along_axis(x, order, axis), order]


@rule("CumSum", "CumProd")
def _cumulate(x: Any, axis: Any, exclusive: int, reverse: int, product: bool = False) -> Any:
    along = int(np.reshape(axis, -1)[0])
    x = np.flip(x, along) if reverse else x
    start = np.full_like(np.take(x, [], along), 0)
    out = (np.cumprod if product else np.cumsum)(x, along, dtype=x.dtype)
    if exclusive and x.shape[along]:
        first = np.full_like(np.take(x, [0], along), 1 if product else 0)
        out = np.concatenate([start, first, np.take(out, range(x.shape[along] - 1), along)], along)
    return np.flip(out, along) if reverse else out


RULES["CumProd"] = lambda x, axis, exclusive, reverse: _cumulate(x, axis, exclusive, reverse, product=True)
