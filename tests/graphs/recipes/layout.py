"""Views and copies: what changes shape, order or number of elements, and comes back to an earlier shape."""

from __future__ import annotations

import math

import numpy as np

from .. import values
from ..builder import Graph
from ..rounding import Reject
from ..values import Value
from .common import axis_of, cast, numbers, of_rank, recipe, reshape, some, squeeze, unsqueeze

ALL = tuple(values.CODES)


@recipe(3)
def any_reshape(g: Graph) -> Value:
    """Axes merged, split, or both."""
    x = some(g, ALL)
    dims = [x.dim(k) for k in range(x.rank)]
    for _ in range(g.dice.between(1, 3)):
        if len(dims) > 1 and g.dice.chance(0.5):
            k = g.dice.between(0, len(dims) - 2)
            dims[k : k + 2] = [tuple(a * b for a, b in zip(dims[k], dims[k + 1], strict=True))]
        elif dims and len(dims) < 5:
            k = g.dice.between(0, len(dims) - 1)
            factor = g.dice.of([f for f in (1, 2, 3, 4, 5) if all(d % f == 0 for d in dims[k])])
            rest = tuple(d // factor for d in dims[k])
            dims[k : k + 1] = g.dice.shuffled([(factor,) * g.runs, rest])
    return reshape(g, x, dims)


@recipe(2.5)
def back_to_a_shape(g: Graph) -> Value:
    """A value takes the shape that another one of as many elements has, and may meet it again."""
    x = g.pick(lambda v: v.rank > 0 and not v.constant)
    count = [math.prod(s) for s in x.shapes]
    other = g.pick(lambda v: [math.prod(s) for s in v.shapes] == count and v.shapes != x.shapes)
    y = reshape(g, x, [other.dim(k) for k in range(other.rank)])
    if y.dtype == other.dtype and y.dtype in ("float32", "float16", "int32", "int64") and g.dice.chance(0.6):
        return g.add(g.dice.of(["Add", "Mul", "Sub"]), y, other)
    return y


@recipe(2)
def add_axes(g: Graph) -> Value:
    x = some(g, ALL, 0, 4)
    rank = x.rank + g.dice.between(1, 2)
    axes = [int(a) for a in g.dice.numbers.permutation(rank)[: rank - x.rank]]
    return unsqueeze(g, x, [a - rank if g.dice.chance(0.3) else a for a in axes])


@recipe(2)
def drop_axes(g: Graph) -> Value:
    x = g.pick(lambda v: any(set(v.dim(k)) == {1} for k in range(v.rank)))
    ones = [k for k in range(x.rank) if set(x.dim(k)) == {1}]
    if g.dice.chance(0.2) and all(1 not in x.dim(k) for k in range(x.rank) if k not in ones):
        return g.add("Squeeze", x)
    return squeeze(g, x, g.dice.shuffled(ones)[: g.dice.between(1, len(ones))])


@recipe(2)
def there_and_back(g: Graph) -> Value:
    """An axis comes, a pointwise operator follows, and it goes."""
    x = some(g, ("float32", "float16"), 1, 4)
    axis = g.dice.between(0, x.rank)
    y = unsqueeze(g, x, [axis])
    y = g.add(g.dice.of(["Relu", "Tanh", "Neg", "Sigmoid", "Abs"]), y)
    return squeeze(g, y, [axis])


@recipe(2.5)
def transpose(g: Graph) -> Value:
    x = some(g, ALL, 1)
    if g.dice.chance(0.2):
        return g.add("Transpose", x)
    return g.add("Transpose", x, perm=[int(k) for k in g.dice.numbers.permutation(x.rank)])


@recipe(1)
def flatten(g: Graph) -> Value:
    x = some(g, ALL)
    return g.add("Flatten", x, axis=g.dice.between(-x.rank, x.rank))


@recipe(2.5)
def slice_(g: Graph) -> Value:
    x = some(g, ALL, 1)
    axes = sorted(int(a) for a in g.dice.numbers.permutation(x.rank)[: g.dice.between(1, min(2, x.rank))])
    starts, ends, steps = [], [], []
    for axis in axes:
        extent = x.dim(axis)
        step = g.dice.of([1, 1, 1, 2, 3, -1, -2])
        low, high = g.dice.of([0, 0, 1, -2, -3]), g.dice.of([2, 3, 4, 2**31 - 1, 2**63 - 1, -1])
        if step < 0:
            low, high = g.dice.of([-1, 2**31 - 1, 3]), g.dice.of([-(2**31), -(2**63), 0, -4])
        start, end = (low,) * g.runs, (high,) * g.runs
        if g.dice.chance(0.2) and step > 0:
            end = tuple(-(-e // 2) for e in extent)
        if g.dice.chance(0.2) and step > 0:
            start = tuple(-e for e in extent)
        starts.append(start)
        ends.append(end)
        steps.append(step)
    named = [a - x.rank if g.dice.chance(0.3) else a for a in axes]
    by = g.constant(steps) if set(steps) != {1} or g.dice.chance(0.3) else None
    return g.add("Slice", x, numbers(g, starts), numbers(g, ends), g.constant(named), by)


@recipe(1.5)
def split(g: Graph) -> list[Value]:
    x = some(g, ALL, 1)
    axis = axis_of(g, x)
    extent = x.dim(axis)
    if len(set(extent)) == 1 and extent[0] > 1 and g.dice.chance(0.6):
        first = g.dice.between(0 if g.dice.chance(0.1) else 1, extent[0] - 1)
        return list(
            g.add("Split", x, g.constant([first, extent[0] - first]), outputs=2, types=[x.dtype] * 2, axis=axis)
        )
    count = g.dice.of([n for n in (2, 3) if all(e % n == 0 for e in extent)])
    if g.opset >= 18:
        return list(g.add("Split", x, outputs=count, types=[x.dtype] * count, axis=axis, num_outputs=count))
    parts = numbers(g, [tuple(e // count for e in extent)] * count)
    return list(g.add("Split", x, parts, outputs=count, types=[x.dtype] * count, axis=axis))


@recipe(2)
def concat(g: Graph) -> Value:
    x = some(g, ALL, 1)
    axis = axis_of(g, x)
    k = axis % x.rank

    def fits(v: Value) -> bool:
        return v.dtype == x.dtype and v.rank == x.rank and all(v.dim(j) == x.dim(j) for j in range(x.rank) if j != k)

    parts = [x]
    for _ in range(g.dice.between(1, 3)):
        if g.dice.chance(0.6):
            parts.append(g.pick(fits))
        else:
            size = g.dice.between(0, 3)
            parts.append(g.tensor(x.dtype, [(*s[:k], size, *s[k + 1 :]) for s in x.shapes]))
    return g.add("Concat", *g.dice.shuffled(parts), axis=axis)


@recipe(0.3)
def long_concat(g: Graph) -> Value:
    """More operands than a kernel binds buffers."""
    x = some(g, ("float32", "int32"), 1)
    parts = [
        x if g.dice.chance(0.3) else g.tensor(x.dtype, [(1, *s[1:]) for s in x.shapes], constant=0.1) for _ in range(10)
    ]
    return g.add("Concat", *parts, axis=0)


@recipe(1.5)
def expand(g: Graph) -> Value:
    x = some(g, ALL, 0, 4)
    sizes = [*g.sizes.values(), (2,) * g.runs, (3,) * g.runs]
    dims = [g.dice.of([*sizes, (1,) * g.runs]) if set(x.dim(k)) == {1} else x.dim(k) for k in range(x.rank)]
    dims = [g.dice.of(sizes) for _ in range(g.dice.between(0, 1))] + dims
    if not dims:
        raise Reject("a scalar stays")
    return g.add("Expand", x, numbers(g, [(1,) * g.runs if g.dice.chance(0.2) else d for d in dims]))


@recipe(1)
def tile(g: Graph) -> Value:
    x = some(g, ALL, 1, 4)
    return g.add("Tile", x, numbers(g, [(g.dice.of([1, 1, 2, 3]),) * g.runs for _ in range(x.rank)]))


@recipe(1)
def pad(g: Graph) -> Value:
    x = some(g, (*values.FLOATS, "int32", "int64", "int8", "uint8", "bool"), 1, 4)
    mode = g.dice.of(["constant", "constant", "reflect", "edge", *(["wrap"] if g.opset >= 19 else [])])
    low = -1 if g.dice.chance(0.3) else 0
    pads = [(g.dice.between(low, 2),) * g.runs for _ in range(2 * x.rank)]
    fill = g.constant(1, x.dtype) if mode == "constant" and g.dice.chance(0.5) else None
    return g.add("Pad", x, numbers(g, pads), fill, mode=mode)


def padded(g: Graph, x: Value) -> Value:
    """x with a border of 0 to 2 elements at each end."""
    amounts = [(g.dice.between(0, 2),) * g.runs for _ in range(2 * x.rank)]
    return g.add("Pad", x, numbers(g, amounts), g.constant(1, x.dtype) if g.dice.chance(0.3) else None)


def kernel_made(g: Graph) -> Value:
    """What a kernel of its own makes and may store anywhere: a product or a sum, and often a map behind it."""
    x = some(g, ("float32", "float16"), 1, 4)
    if g.dice.chance(0.5) and len(set(x.dim(x.rank - 1))) == 1:
        y = g.add("MatMul", x, g.tensor(x.dtype, [(s[-1], 3) for s in x.shapes], constant=1.0))
    else:
        y = g.add("Softmax", x, axis=-1)
    return g.add(g.dice.of(["Relu", "Neg", "Abs"]), y) if g.dice.chance(0.5) else y


@recipe(1.5)
def pad_to_a_multiple(g: Graph) -> Value:
    """What a kernel made, padded behind to whole windows: the amounts are calculated from its shape."""
    x = kernel_made(g)
    of = g.dice.of([2, 3, 4])
    axis = g.dice.between(0, x.rank - 1)
    missing = tuple(-d % of for d in x.dim(axis))
    amounts = [missing if k == x.rank + axis else (0,) * g.runs for k in range(2 * x.rank)]
    return g.add("Pad", x, numbers(g, amounts))


@recipe(1.5)
def nested(g: Graph) -> Value:
    """Pads of joins of pads, of what kernels make; also of the same one."""
    x = kernel_made(g)
    axis = axis_of(g, x)
    k = axis % x.rank
    for _ in range(g.dice.between(1, 3)):
        if g.dice.chance(0.5):
            x = padded(g, x)
            continue
        size = g.dice.between(0, 2)
        others = [g.tensor(x.dtype, [(*s[:k], size, *s[k + 1 :]) for s in x.shapes])]
        others += [x] if g.dice.chance(0.3) else []
        x = g.add(
            "Concat", *g.dice.shuffled([x, *(g.add("Neg", o) if g.dice.chance(0.5) else o for o in others)]), axis=axis
        )
    return padded(g, x)


@recipe(1.5)
def split_and_used(g: Graph) -> list[Value]:
    """Parts of what a kernel made, read by kernels and maps, and sometimes together again."""
    x = kernel_made(g)
    axis = axis_of(g, x)
    extent = x.dim(axis)
    if len(set(extent)) != 1:
        raise Reject("parts of one size")
    cuts = sorted(g.dice.between(0, extent[0]) for _ in range(g.dice.between(1, 2)))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, extent[0]], strict=True)]
    parts = list(g.add("Split", x, g.constant(sizes), outputs=len(sizes), types=[x.dtype] * len(sizes), axis=axis))
    used = [g.add(g.dice.of(["Relu", "Softmax", "Neg"]), part) if g.dice.chance(0.6) else part for part in parts]
    if g.dice.chance(0.5):
        used.append(g.add("Concat", *g.dice.shuffled(used), axis=axis))
    return used


@recipe(0.5)
def blocks(g: Graph) -> Value:
    x = of_rank(g, some(g, ("float32", "float16", "uint8")), 4)
    if all(c % 4 == 0 for c in x.dim(1)) and g.dice.chance(0.6):
        return g.add("DepthToSpace", x, blocksize=2, mode=g.dice.of(["DCR", "CRD"]))
    if any(d % 2 for k in (2, 3) for d in x.dim(k)):
        widen = [(0,), (0,), (0,), (0,), (0,), (0,), *[((-x.dim(k)[0]) % 2,) for k in (2, 3)]]
        if any(len({d % 2 for d in x.dim(k)}) > 1 for k in (2, 3)):
            raise Reject("sizes of both parities")
        x = g.add("Pad", x, g.constant([w[0] for w in widen]))
    return g.add("SpaceToDepth", x, blocksize=2)


@recipe(1)
def heads(g: Graph) -> Value:
    """The way of attention: (batch, sequence, heads * size) apart, transposed, and together again."""
    x = of_rank(g, some(g, ("float32", "float16")), 3)
    count = g.dice.of([n for n in (2, 3) if all(d % n == 0 for d in x.dim(2))])
    dims = [x.dim(0), x.dim(1), (count,) * g.runs, tuple(d // count for d in x.dim(2))]
    y = g.add("Transpose", reshape(g, x, dims), perm=[0, 2, 1, 3])
    if g.dice.chance(0.5):
        y = g.add(g.dice.of(["Relu", "Softmax", "Tanh"]), y)
    y = g.add("Transpose", y, perm=[0, 2, 1, 3])
    return reshape(g, y, [x.dim(0), x.dim(1), x.dim(2)])


@recipe(0.7)
def from_shapes(g: Graph) -> Value:
    """Data made of a shape."""
    x = g.pick(lambda v: v.rank > 0)
    shape = g.add("Shape", x, types=["int64"])
    way = g.dice.between(0, 3)
    if way == 0:
        dtype = g.dice.of(["float32", "int64", "int32", "float16", "bool"])
        fill = values.stored(np.array([g.dice.between(0, 3)]), dtype)
        return g.add("ConstantOfShape", shape, types=[dtype], value=fill)
    if way == 1:
        size = g.add("Size", x, types=["int64"])
        return g.add("Range", g.constant(0), size, g.constant(g.dice.of([1, 2, 3])))
    if way == 2:
        return cast(g, shape, "float32")
    first = g.add("Gather", shape, g.constant(0), axis=0)
    return g.add("Range", g.constant(g.dice.between(-2, 2)), first, g.constant(1))


@recipe(0.4)
def triangle(g: Graph) -> Value:
    x = some(g, ("float32", "int64", "bool", "float16"), 2)
    by = g.constant(g.dice.between(-2, 2)) if g.dice.chance(0.6) else None
    return g.add("Trilu", x, by, upper=g.dice.between(0, 1))


@recipe(0.2)
def eye(g: Graph) -> Value:
    x = some(g, ("float32", "int32"), 2, 2)
    return g.add("EyeLike", x, k=g.dice.between(-1, 1))


@recipe(0.4)
def reverse_sequence(g: Graph) -> Value:
    x = some(g, ("float32", "int32", "float16"), 2)
    if any(min(s[:2]) == 0 for s in x.shapes):
        raise Reject("no steps")
    lengths = g.per_run([[g.dice.between(1, s[0]) for _ in range(s[1])] for s in x.shapes])
    return g.add("ReverseSequence", x, lengths, batch_axis=1, time_axis=0)


@recipe(0.3)
def bit_cast(g: Graph) -> Value:
    x = some(g, ("int32", "uint32", "int64", "uint8", "int8"))
    to = {"int32": "uint32", "uint32": "int32", "int64": "uint64", "uint8": "int8", "int8": "uint8"}[x.dtype]
    return g.add("BitCast", x, types=[to], to=int(values.CODES[to]))
