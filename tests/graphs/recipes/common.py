"""What recipes share: operands that broadcast, values of a wanted rank, whole numbers computed from shapes.

A recipe is a function that takes a Graph, picks values and appends nodes; it raises Reject when nothing fits, and what it added
is taken back. `@recipe(weight)` puts it into the table.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import values
from ..builder import Graph
from ..rounding import Reject
from ..values import Value

Recipe = Callable[[Graph], Any]
RECIPES: list[tuple[Recipe, float]] = []
Extent = tuple[int, ...]  # per run


def recipe(weight: float = 1.0) -> Callable[[Recipe], Recipe]:
    def add(function: Recipe) -> Recipe:
        RECIPES.append((function, weight))
        return function

    return add


# ---- picking


def some_float(g: Graph, least: int = 0, most: int = 6) -> Value:
    """A float value whose rank is in the range."""
    return g.pick(lambda v: v.is_float and least <= v.rank <= most)


def some(g: Graph, dtypes: Sequence[str], least: int = 0, most: int = 6) -> Value:
    return g.pick(lambda v: v.dtype in dtypes and least <= v.rank <= most)


def of_rank(g: Graph, x: Value, rank: int) -> Value:
    """x with this rank, by one of the operators that make it so."""
    if x.rank == rank:
        return x
    if x.rank < rank:
        axes = sorted(int(a) for a in g.dice.numbers.permutation(rank)[: rank - x.rank])
        if g.dice.chance(0.6):
            return unsqueeze(g, x, axes)
        rest = iter(range(x.rank))
        return reshape(g, x, [(1,) * g.runs if k in axes else x.dim(next(rest)) for k in range(rank)])
    if rank == 2 and g.dice.chance(0.3):
        return g.add("Flatten", x, axis=g.dice.between(0, x.rank))
    ones = [k for k in range(x.rank) if set(x.dim(k)) == {1}]
    if len(ones) >= x.rank - rank and g.dice.chance(0.5):
        return squeeze(g, x, sorted(g.dice.shuffled(ones)[: x.rank - rank]))
    if rank == 0:
        raise Reject("no scalar")
    cut = sorted(int(c) + 1 for c in g.dice.numbers.permutation(x.rank - 1)[: rank - 1])
    ends = [0, *cut, x.rank]
    return reshape(g, x, [_product([x.dim(a) for a in range(i, j)], g.runs) for i, j in itertools.pairwise(ends)])


def of_size(g: Graph, x: Value, most: int) -> Value:
    """x, or a part of it when it has more than `most` elements."""
    while x.elements > most:
        axis = max(range(x.rank), key=lambda k: max(x.dim(k)))
        x = g.add("Slice", x, g.constant([0]), g.constant([max(1, max(x.dim(axis)) // 2)]), g.constant([axis]))
    return x


def tame(g: Graph, x: Value, most: float) -> Value:
    """x, brought into [-most, most]."""
    if x.largest <= most:
        return x
    way = g.dice.between(0, 2)
    if way == 0:
        return g.add("Tanh", x)
    if way == 1:
        return g.add("Clip", x, g.constant(-most, x.dtype), g.constant(most, x.dtype))
    power = 2.0 ** -math.ceil(math.log2(x.largest / most))
    return g.add("Mul", x, scalar(g, x.dtype, power))


def positive(g: Graph, x: Value, least: float = 0.25) -> Value:
    if x.least >= least:
        return x
    x = g.add("Abs", x)
    return g.add("Add", x, scalar(g, x.dtype, least))


def scalar(g: Graph, dtype: str, number: Any) -> Value:
    shape = g.dice.of([(), (), (1,)])
    return g.constant(np.full(shape, number), dtype)


def operand(g: Graph, x: Value, shapes: Sequence[tuple[int, ...]] | None = None, **how: Any) -> Value:
    """A value of x's type that broadcasts with x: one that is there, or a new one."""
    if shapes is None and g.dice.chance(0.6):
        return g.pick(lambda v: v.dtype == x.dtype and _broadcast(x, v))
    wanted = list(shapes or x.shapes)
    if g.dice.chance(0.6):
        rank = len(wanted[0])
        drop = g.dice.between(0, rank)
        ones = {k for k in range(rank) if g.dice.chance(0.3)}
        wanted = [tuple(1 if k in ones else d for k, d in enumerate(s))[drop:] for s in wanted]
    return g.tensor(x.dtype, wanted, **how)


def _broadcast(x: Value, y: Value) -> bool:
    try:
        shapes = [np.broadcast_shapes(a, b) for a, b in zip(x.shapes, y.shapes, strict=True)]
    except ValueError:
        return False
    return all(math.prod(s) <= 600 for s in shapes)


def axis_of(g: Graph, x: Value) -> int:
    """An axis, counted from either end."""
    if not x.rank:
        raise Reject("a scalar has no axis")
    axis = g.dice.between(0, x.rank - 1)
    return axis - x.rank if g.dice.chance(0.4) else axis


# ---- whole numbers on the host


def numbers(g: Graph, wanted: Sequence[Extent]) -> Value:
    """An int64 vector with these elements per run: a constant, computed from shapes, or, seldom, an input."""
    arrays = [[extent[run] for extent in wanted] for run in range(g.runs)]
    fixed = all(a == arrays[0] for a in arrays)
    if not wanted or (fixed and g.dice.chance(0.7)):
        return g.constant(np.array(arrays[0], np.int64))
    if g.dice.chance(0.12):
        return g.per_run(arrays)
    whole = next(
        (v for v in g.values if v.rank and all(list(s) == a for s, a in zip(v.shapes, arrays, strict=True))), None
    )
    if whole is not None and g.dice.chance(0.6):
        return disguised(g, g.add("Shape", whole, types=["int64"]))
    parts: list[Value] = []
    for extent in wanted:
        parts.append(_one_number(g, extent))
    made = parts[0] if len(parts) == 1 else g.add("Concat", *parts, axis=0)
    return disguised(g, made)


def _one_number(g: Graph, extent: Extent) -> Value:
    """A vector of one element."""
    # What 0 and -1 stand for in a target shape is not known of a number that is computed.
    if len(set(extent)) == 1 and (extent[0] <= 0 or g.dice.chance(0.8)):
        return g.constant([extent[0]])
    known = [(v, k) for v in g.values for k in range(v.rank) if v.dim(k) == extent]
    if known:
        return _dim(g, *g.dice.of(known))
    dims = [(v, k) for v in g.values for k in range(v.rank) if len(set(v.dim(k))) > 1][-24:]
    for one, other in [(a, b) for a in g.dice.shuffled(dims) for b in g.dice.shuffled(dims)][:200]:
        for op, function in (
            ("Mul", np.multiply),
            ("Add", np.add),
            ("Sub", np.subtract),
            ("Max", np.maximum),
            ("Min", np.minimum),
        ):
            if tuple(function(one[0].dim(one[1]), other[0].dim(other[1]))) == extent:
                return g.add(op, _dim(g, *one), _dim(g, *other))
    for value, axis in dims:
        here = np.array(value.dim(axis))
        for factor in (2, 3, 4, 5, 6):
            if tuple(here * factor) == extent:
                return g.add("Mul", _dim(g, value, axis), g.constant([factor]))
            if tuple(here // factor) == extent:
                return g.add("Div", _dim(g, value, axis), g.constant([factor]))
        by = extent[0] - here[0]
        if tuple(here + by) == extent:
            return g.add("Add", _dim(g, value, axis), g.constant([by]))
    same = [v for v in g.values if all(math.prod(s) == e for s, e in zip(v.shapes, extent, strict=True))]
    if same:
        value = g.dice.of(same)
        if g.dice.chance(0.5):
            return of_rank(g, g.add("Size", value, types=["int64"]), 1)
        return reduced(g, "ReduceProd", g.add("Shape", value, types=["int64"]), [0], 1)
    return g.per_run([[e] for e in extent])


def _dim(g: Graph, value: Value, axis: int) -> Value:
    """The extent of an axis as a vector of one element."""
    way = g.dice.between(0, 3)
    if way == 0 and g.opset >= 15:
        return g.add("Shape", value, types=["int64"], start=axis, end=axis + 1)
    shape = g.add("Shape", value, types=["int64"])
    if way == 1:
        return g.add("Slice", shape, g.constant([axis]), g.constant([axis + 1]), g.constant([0]))
    if way == 2:
        return g.add("Gather", shape, g.constant([axis - value.rank]), axis=0)
    return unsqueeze(g, g.add("Gather", shape, g.constant(axis), axis=0), [0])


def disguised(g: Graph, x: Value) -> Value:
    """The same numbers, often by way of arithmetic that changes nothing."""
    way = g.dice.between(0, 9)
    if way == 0:
        number = g.dice.between(1, 4)
        return g.add("Sub", g.add("Add", x, g.constant([number])), g.constant([number]))
    if way == 1:
        return g.add("Div", g.add("Mul", x, g.constant([3])), g.constant([3]))
    if way == 2:
        return cast(g, cast(g, x, "int32"), "int64")
    if way == 3:
        ones = g.add(
            "ConstantOfShape", g.add("Shape", x, types=["int64"]), types=["int64"], value=np.array([-1], np.int64)
        )
        flags = g.add("Equal", x, ones, types=["bool"])
        return g.add("Where", flags, g.constant([7]), x, types=["int64"])
    if way == 4:
        return g.add("Gather", x, g.constant(np.arange(x.shapes[0][0])), axis=0)
    return x


# ---- operators whose form depends on the version


def unsqueeze(g: Graph, x: Value, axes: list[int]) -> Value:
    return g.add("Unsqueeze", x, g.constant(axes))


def squeeze(g: Graph, x: Value, axes: list[int]) -> Value:
    return g.add("Squeeze", x, g.constant(axes))


def reshape(g: Graph, x: Value, dims: Sequence[Extent]) -> Value:
    """Reshape to these extents; one of them may be written -1, or 0 where it stays."""
    wanted = list(dims)
    sized = [
        k
        for k in range(len(wanted))
        if all(math.prod(d[r] for j, d in enumerate(wanted) if j != k) for r in range(g.runs))
    ]
    copied = [k for k in range(min(len(wanted), x.rank)) if wanted[k] == x.dim(k)]
    if sized and g.dice.chance(0.4):
        wanted[g.dice.of(sized)] = (-1,) * g.runs
    if copied and g.dice.chance(0.3):
        k = g.dice.of(copied)
        if wanted[k] != (-1,) * g.runs:
            wanted[k] = (0,) * g.runs
    # A 0 that is an extent copies one; where that is another one it needs allowzero, which then goes for all.
    if any(0 in d and (k >= x.rank or x.dim(k) != d) for k, d in enumerate(dims)):
        return g.add("Reshape", x, numbers(g, dims), allowzero=1)
    return g.add("Reshape", x, numbers(g, wanted))


def cast(g: Graph, x: Value, to: str) -> Value:
    return g.add("Cast", x, types=[to], to=int(values.CODES[to]))


def reduced(g: Graph, op: str, x: Value, axes: Sequence[int] | None, keepdims: int, **attributes: Any) -> Value:
    by_input = g.opset >= 18 or op == "ReduceSum"
    if axes is None:
        return g.add(op, x, keepdims=keepdims, **attributes)
    if by_input:
        return g.add(op, x, g.constant(np.array(axes, np.int64)), keepdims=keepdims, **attributes)
    return g.add(op, x, keepdims=keepdims, axes=list(axes), **attributes)


def _product(extents: Sequence[Extent], runs: int) -> Extent:
    return tuple(math.prod(e[r] for e in extents) for r in range(runs))
