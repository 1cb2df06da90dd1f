"""Reductions, sums along an axis, the largest and their places; gathering and scattering."""

from __future__ import annotations

import numpy as np

from .. import semantics, values
from ..builder import Graph
from ..rounding import Reject
from ..values import Value
from .common import axis_of, numbers, of_size, positive, recipe, reduced, some, some_float, tame

NUMBERS = (*values.FLOATS, "float64", *values.INTEGERS)


@recipe(4)
def reduction(g: Graph) -> Value:
    op = g.dice.of(list(semantics.REDUCTIONS))
    x = some(g, (*values.FLOATS, "float64", "int32", "int64", "int8", "uint8"), 1)
    if not x.is_float and op == "ReduceLogSumExp":
        raise Reject("floats only")
    if op == "ReduceLogSum":
        x = positive(g, x) if x.is_float else x
    elif op in ("ReduceProd", "ReduceSumSquare", "ReduceL2", "ReduceLogSumExp"):
        x = tame(g, x, 3.0) if x.is_float else x
    count = g.dice.between(1, x.rank)
    axes: list[int] | None = sorted(int(a) for a in g.dice.numbers.permutation(x.rank)[:count])
    if g.dice.chance(0.15):
        axes = None
    elif g.dice.chance(0.3):
        axes = [a - x.rank for a in axes or []]
    return reduced(g, op, x, axes, g.dice.between(0, 1))


@recipe(0.2)
def no_reduction(g: Graph) -> Value:
    x = some_float(g, 1)
    return reduced(g, "ReduceSum", x, [], g.dice.between(0, 1), noop_with_empty_axes=g.dice.between(0, 1))


@recipe(1)
def extreme(g: Graph) -> Value:
    x = some(g, ("float32", "float16", "float64", "int32", "int8"), 1)
    op = g.dice.of(["ArgMax", "ArgMin"])
    last = {"select_last_index": 1} if g.dice.chance(0.3) else {}
    return g.add(op, x, types=["int64"], axis=axis_of(g, x), keepdims=g.dice.between(0, 1), **last)


@recipe(1)
def top(g: Graph) -> list[Value]:
    x = some(g, ("float32", "float16", "float64", "int32", "int64"), 1)
    axis = axis_of(g, x)
    count = g.dice.between(0 if g.dice.chance(0.1) else 1, max(1, min(x.dim(axis))))
    return list(
        g.add(
            "TopK", x, g.constant([count]), outputs=2, types=[x.dtype, "int64"], axis=axis, largest=g.dice.between(0, 1)
        )
    )


@recipe(1)
def cumulative(g: Graph) -> Value:
    x = some(g, ("float32", "float16", "float64", "int32", "int64"), 1)
    axis = g.constant(g.dice.of([axis_of(g, x)]))
    return g.add("CumSum", x, axis, exclusive=g.dice.between(0, 1), reverse=g.dice.between(0, 1))


def _indices(g: Graph, shapes: list[tuple[int, ...]], extents: tuple[int, ...], unique: bool = False) -> Value:
    """Integers below the extent of each run; some count from the end."""
    arrays = []
    dtype = g.dice.of(["int64", "int64", "int32"])
    same = len(set(shapes)) == 1 and g.dice.chance(0.6)
    for shape, extent in zip(shapes, [min(extents)] * g.runs if same else extents, strict=True):
        if extent == 0 and np.prod(shape):
            raise Reject("nothing to index")
        if unique:
            drawn = np.stack([g.dice.numbers.permutation(extent)[: shape[0]]] if len(shape) == 1 else [], axis=0)[0]
        else:
            drawn = g.dice.numbers.integers(0, max(extent, 1), shape)
        if g.dice.chance(0.3):
            drawn = np.where(g.dice.numbers.random(drawn.shape) < 0.5, drawn - extent, drawn)
        arrays.append(drawn)
    if same:
        arrays = [arrays[0]] * g.runs
        if len(set(extents)) > 1:
            arrays = [np.where(a < 0, 0, a) for a in arrays]
    return g.per_run(arrays, dtype)


@recipe(2)
def gather(g: Graph) -> Value:
    x = some(g, tuple(values.CODES), 1)
    axis = axis_of(g, x)
    shape = g.dice.of([(), (1,), (3,), (2, 2), (0,), (5,)])
    return g.add("Gather", x, _indices(g, [shape] * g.runs, x.dim(axis)), axis=axis)


@recipe(1)
def gather_elements(g: Graph) -> Value:
    x = some(g, tuple(values.CODES), 1, 3)
    axis = axis_of(g, x)
    k = axis % x.rank
    count = g.dice.between(1, 4)
    return g.add(
        "GatherElements", x, _indices(g, [(*s[:k], count, *s[k + 1 :]) for s in x.shapes], x.dim(k)), axis=axis
    )


@recipe(0.8)
def gather_nd(g: Graph) -> Value:
    x = some(g, tuple(values.CODES), 1, 4)
    depth = g.dice.between(1, min(2, x.rank))
    arrays = []
    for shape in x.shapes:
        if 0 in shape[:depth]:
            raise Reject("nothing to index")
        arrays.append(np.stack([g.dice.numbers.integers(0, d, (3,)) for d in shape[:depth]], -1))
    return g.add("GatherND", x, g.per_run(arrays))


@recipe(0.8)
def scatter_elements(g: Graph) -> Value:
    x = of_size(g, some(g, ("float32", "int32", "int64", "float16"), 1, 3), 200)
    axis = axis_of(g, x)
    k = axis % x.rank
    count = g.dice.between(1, max(1, min(x.dim(k))))
    arrays = []
    for shape in x.shapes:
        if 0 in shape:
            raise Reject("nothing to write")
        order = np.argsort(g.dice.numbers.random(shape), axis=k)
        arrays.append(np.take(order, range(count), k))
    updates = g.tensor(x.dtype, [a.shape for a in arrays])
    reduction = g.dice.of(["none", "none", *(["add", "max", "min", "mul"] if g.opset >= 18 else [])])
    return g.add("ScatterElements", x, g.per_run(arrays), updates, axis=axis, reduction=reduction)


@recipe(0.8)
def scatter_nd(g: Graph) -> Value:
    x = of_size(g, some(g, ("float32", "int32", "int64"), 1, 4), 200)
    rows = g.dice.between(1, 3)
    if min(x.dim(0)) < rows:
        raise Reject("too few rows")
    arrays = [g.dice.numbers.permutation(s[0])[:rows].reshape(rows, 1) for s in x.shapes]
    updates = g.tensor(x.dtype, [(rows, *s[1:]) for s in x.shapes])
    reduction = g.dice.of(["none", "none", *(["add", "max"] if g.opset >= 18 else [])])
    return g.add("ScatterND", x, g.per_run(arrays), updates, reduction=reduction)


@recipe(0.6)
def one_hot(g: Graph) -> Value:
    x = g.pick(lambda v: v.dtype in ("int64", "int32") and 1 <= v.rank <= 3 and v.elements < 100)
    if x.largest > 1000:
        raise Reject("large indices")
    pair = g.constant([0, 3], g.dice.of(["float32", "int64", "int32"]))
    return g.add("OneHot", x, g.constant(g.dice.of([4, [4]])), pair, types=[pair.dtype], axis=g.dice.of([-1, 0]))


@recipe(0.2)
def compress(g: Graph) -> Value:
    x = some(g, ("float32", "int32"), 1)
    axis = axis_of(g, x)
    flags = g.constant(g.dice.numbers.random(min(x.dim(axis))) < 0.6, "bool")
    return g.add("Compress", x, flags, axis=axis)


@recipe(0.5)
def part_by_its_size(g: Graph) -> Value:
    """The last elements: a slice that starts at a size taken from a shape."""
    x = some(g, tuple(values.CODES), 1)
    k = g.dice.between(0, x.rank - 1)
    start = tuple(e // 2 for e in x.dim(k))
    return g.add("Slice", x, numbers(g, [start]), numbers(g, [x.dim(k)]), g.constant([k]))


@recipe(0.3)
def running_product(g: Graph) -> Value:
    x = tame(g, some(g, ("float32",), 1), 2.0)
    return g.add("CumProd", x, g.constant(axis_of(g, x)), exclusive=g.dice.between(0, 1), reverse=g.dice.between(0, 1))
