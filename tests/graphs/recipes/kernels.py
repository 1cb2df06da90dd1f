"""Operators with kernels of their own: products, convolutions, pooling, normalisation, attention, recurrence, sampling."""

from __future__ import annotations

import numpy as np

from .. import values
from ..builder import Graph
from ..rounding import Reject
from ..values import Value
from .common import axis_of, of_rank, of_size, operand, recipe, some, some_float, tame

HALVES = ("float32", "float32", "float16", "bfloat16")


@recipe(4)
def matmul(g: Graph) -> Value:
    x = some_float(g, 1, 4)
    if g.dice.chance(0.25):
        y = g.pick(lambda v: v.dtype == x.dtype and v.rank >= 1 and v.dim(max(v.rank - 2, 0)) == x.dim(-1))
    else:
        columns = g.dice.of([1, 2, 3, 5, 8, 17])
        shapes = [(s[-1], columns) for s in x.shapes]
        if g.dice.chance(0.2):
            shapes = [(s[-1],) for s in x.shapes]
        elif g.dice.chance(0.3) and x.rank > 2:
            shapes = [(*[1 if g.dice.chance(0.5) else d for d in x.shapes[0][:-2]], s[-1], columns) for s in x.shapes]
        y = g.tensor(x.dtype, shapes, constant=0.7, low=-1)
    return g.add("MatMul", x, y)


@recipe(1.5)
def product_with_its_transpose(g: Graph) -> Value:
    x = of_size(g, some_float(g, 2, 4), 120)
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    return g.add("MatMul", tame(g, x, 4), g.add("Transpose", x, perm=perm))


@recipe(1.5)
def gemm(g: Graph) -> Value:
    x = of_rank(g, some_float(g, 1, 4), 2)
    left, right = g.dice.between(0, 1), g.dice.between(0, 1)
    columns = g.dice.of([1, 3, 4, 9])
    y = g.tensor(x.dtype, [(columns, s[1 - left]) if right else (s[1 - left], columns) for s in x.shapes], constant=0.7)
    c = None
    if g.dice.chance(0.7):
        c = operand(g, x, [(s[left], columns) for s in x.shapes])
    scales = {"alpha": g.dice.of([1.0, 0.5]), "beta": g.dice.of([1.0, 0.25])}
    return g.add("Gemm", x, y, c, transA=left, transB=right, **scales)


@recipe(2.5)
def conv(g: Graph) -> Value:
    x = of_size(g, of_rank(g, some_float(g, 2, 5), g.dice.of([3, 4, 4, 4, 5])), 300)
    n = x.rank - 2
    channels = x.dim(1)
    groups = g.dice.of([d for d in (1, 1, 2, 3, channels[0]) if d and all(c % d == 0 for c in channels)])
    if any(c == 0 for c in channels):
        raise Reject("no channels")
    features = groups * g.dice.between(1, 4)
    kernel = [g.dice.between(1, 3) for _ in range(n)]
    w = g.tensor(x.dtype, [(features, c // groups, *kernel) for c in channels], constant=0.8, low=-1)
    bias = g.tensor(x.dtype, [(features,)] * g.runs, constant=0.8) if g.dice.chance(0.6) else None
    how = {"group": groups}
    if g.dice.chance(0.4):
        how["strides"] = [g.dice.between(1, 2) for _ in range(n)]
    if g.dice.chance(0.3):
        how["dilations"] = [g.dice.between(1, 2) for _ in range(n)]
    if g.dice.chance(0.6):
        how["pads"] = [g.dice.between(0, 2) for _ in range(2 * n)]
    elif g.dice.chance(0.3) and "dilations" not in how:
        how["auto_pad"] = g.dice.of(["SAME_UPPER", "SAME_LOWER", "VALID"])
    if any(min(s[0], *s[2:]) == 0 for s in x.shapes):
        raise Reject("an empty image")
    return g.add("Conv", x, w, bias, **how)


@recipe(0.6)
def conv_transpose(g: Graph) -> Value:
    x = of_size(g, of_rank(g, some(g, ("float32",), 2, 5), g.dice.of([3, 4])), 100)
    n = x.rank - 2
    if any(0 in s for s in x.shapes):
        raise Reject("an empty image")
    w = g.tensor(x.dtype, [(s[1], g.dice.between(1, 3), *[2] * n) for s in x.shapes[:1]] * g.runs if len(set(x.dim(1))) == 1 else
                 [(s[1], 2, *[2] * n) for s in x.shapes], constant=0.8, low=-1)  # fmt: skip
    return g.add("ConvTranspose", x, w, strides=[g.dice.between(1, 2) for _ in range(n)])


@recipe(1.5)
def pool(g: Graph) -> Value:
    x = of_size(g, of_rank(g, some(g, HALVES, 2, 5), g.dice.of([3, 4, 4])), 300)
    n = x.rank - 2
    if any(0 in s for s in x.shapes):
        raise Reject("an empty image")
    op = g.dice.of(["MaxPool", "AveragePool", "LpPool"])
    kernel = [g.dice.between(1, 3) for _ in range(n)]
    how: dict[str, object] = {"kernel_shape": kernel}
    if g.dice.chance(0.5):
        how["strides"] = [g.dice.between(1, 2) for _ in range(n)]
    if g.dice.chance(0.5):
        how["pads"] = [g.dice.between(0, k - 1) for k in kernel] * 2
    if op == "AveragePool":
        how["count_include_pad"] = g.dice.between(0, 1)
    return g.add(op, x, **how)


@recipe(0.8)
def global_pool(g: Graph) -> Value:
    x = of_rank(g, some_float(g, 2, 5), g.dice.of([3, 4]))
    if any(0 in s for s in x.shapes):
        raise Reject("an empty image")
    return g.add(g.dice.of(["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"]), x)


@recipe(2)
def softmax(g: Graph) -> Value:
    x = some_float(g, 1)
    return g.add(g.dice.of(["Softmax", "Softmax", "LogSoftmax"]), tame(g, x, 16), axis=axis_of(g, x))


@recipe(0.3)
def hardmax(g: Graph) -> Value:
    x = some(g, ("float32",), 1)
    return g.add("Hardmax", x, axis=axis_of(g, x))


def _parameter(g: Graph, x: Value, shapes: list[tuple[int, ...]]) -> Value:
    return g.tensor(x.dtype, shapes, low=0.5, whole=False, constant=0.8)


@recipe(1.5)
def layer_norm(g: Graph) -> Value:
    x = some_float(g, 1)
    axis = g.dice.of([-1, -1, g.dice.between(0, x.rank - 1)])
    shapes = [s[axis:] if axis >= 0 else s[axis % x.rank :] for s in x.shapes]
    gain = _parameter(g, x, shapes)
    if g.dice.chance(0.3):
        return g.add("RMSNormalization", x, gain, axis=axis)
    bias = _parameter(g, x, shapes) if g.dice.chance(0.7) else None
    return g.add("LayerNormalization", x, gain, bias, axis=axis, epsilon=0.01)


@recipe(1.2)
def channel_norm(g: Graph) -> Value:
    x = of_rank(g, some_float(g, 2, 5), g.dice.of([3, 4]))
    op = g.dice.of(["InstanceNormalization", "InstanceNormalization", "BatchNormalization", "GroupNormalization"])
    shapes = [(c,) for c in x.dim(1)]
    groups = g.dice.of([n for n in (1, 2, 3) if all(c % n == 0 for c in x.dim(1))])
    if op == "GroupNormalization" and g.opset < 21:
        shapes = [(groups,)] * g.runs
    pair = [_parameter(g, x, shapes), _parameter(g, x, shapes)]
    if op == "BatchNormalization":
        statistics = _parameter(g, x, shapes), _parameter(g, x, shapes)
        if g.opset >= 14 and g.dice.chance(0.3):
            return g.dice.of(g.add(op, x, *pair, *statistics, outputs=3, training_mode=1, epsilon=0.01))
        return g.add(op, x, *pair, *statistics)
    if op == "GroupNormalization":
        return g.add(op, x, *pair, num_groups=groups, epsilon=0.01)
    return g.add(op, x, *pair, epsilon=0.01)


@recipe(0.7)
def other_norm(g: Graph) -> Value:
    x = some_float(g, 2)
    op = g.dice.of(["MeanVarianceNormalization", "LpNormalization", "LRN"])
    if op == "MeanVarianceNormalization":
        return g.add(op, x, axes=sorted({0, g.dice.between(0, x.rank - 1)}))
    if op == "LpNormalization":
        return g.add(op, x, axis=axis_of(g, x), p=g.dice.between(1, 2))
    return g.add(op, of_rank(g, x, 4), size=3, alpha=0.1, beta=0.75, bias=1.5)


@recipe(1)
def scaled_attention(g: Graph) -> Value:
    """softmax(q k^T + mask) v, written out."""
    q = of_size(g, of_rank(g, some(g, ("float32", "float16"), 2, 4), g.dice.of([3, 4])), 150)
    k = g.tensor(q.dtype, [(*s[:-2], 5, s[-1]) for s in q.shapes], constant=0.3)
    scores = g.add("MatMul", q, g.add("Transpose", k, perm=[*range(q.rank - 2), q.rank - 1, q.rank - 2]))
    scores = g.add("Mul", scores, g.constant(0.5, q.dtype))
    if g.dice.chance(0.5):
        scores = g.add("Add", scores, operand(g, scores))
    weights = g.add("Softmax", tame(g, scores, 16), axis=-1)
    return g.add("MatMul", weights, g.tensor(q.dtype, [(*s[:-2], 5, 3) for s in q.shapes], constant=0.3))


@recipe(0.5)
def attention(g: Graph) -> Value:
    q = of_rank(g, some(g, ("float32",), 2, 4), 4)
    q = of_size(g, tame(g, q, 4), 100)
    k = g.tensor(q.dtype, [(*s[:2], 4, s[3]) for s in q.shapes], whole=False, constant=0.2)
    v = g.tensor(q.dtype, [(*s[:2], 4, 3) for s in q.shapes], whole=False, constant=0.2)
    return g.add("Attention", q, k, v)


@recipe(0.6)
def recurrent(g: Graph) -> Value:
    x = of_size(g, of_rank(g, tame(g, some(g, ("float32",), 1, 4), 4), 3), 60)
    if any(0 in s for s in x.shapes):
        raise Reject("no steps")
    op, gates = g.dice.of([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
    hidden, both = g.dice.between(1, 3), g.dice.between(1, 2)
    w = g.tensor("float32", [(both, gates * hidden, s[2]) for s in x.shapes], whole=False, low=-1, high=1, constant=0.9)
    r = g.tensor("float32", [(both, gates * hidden, hidden)] * g.runs, whole=False, low=-1, high=1, constant=0.9)
    bias = g.tensor("float32", [(both, 2 * gates * hidden)] * g.runs, constant=0.9) if g.dice.chance(0.6) else None
    how: dict[str, object] = {"hidden_size": hidden, "direction": "bidirectional" if both == 2 else "forward"}
    if op == "GRU":
        how["linear_before_reset"] = g.dice.between(0, 1)
    if both == 2:
        raise Reject("the reference evaluator has one direction")
    return g.add(op, x, w, r, bias, outputs=2, types=["float32"] * 2, **how)


@recipe(0.7)
def resize(g: Graph) -> Value:
    x = of_size(g, of_rank(g, some(g, ("float32", "float16"), 2, 4), 4), 150)
    if any(0 in s for s in x.shapes):
        raise Reject("an empty image")
    mode = g.dice.of(["nearest", "linear"])
    scales = g.constant(np.array([1, 1, g.dice.of([1, 2, 3]), g.dice.of([1, 2])], np.float32), "float32")
    how = {"coordinate_transformation_mode": g.dice.of(["asymmetric", "half_pixel"]), "mode": mode}
    if mode == "nearest":
        how |= {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    return g.add("Resize", x, None, scales, **how)


@recipe(0.3)
def regions(g: Graph) -> Value:
    """RoiAlign: parts of an image, resampled."""
    x = of_size(g, of_rank(g, some(g, ("float32",), 2, 4), 4), 150)
    if any(0 in s for s in x.shapes):
        raise Reject("an empty image")
    boxes = g.constant(np.array([[0, 0, 1.5, 1.25], [0.25, 0, 1, 1]]), "float32")
    images = g.constant([0, 0])
    return g.add("RoiAlign", x, boxes, images, output_height=2, output_width=2, sampling_ratio=2)


@recipe(0.3)
def windows_to_image(g: Graph) -> Value:
    """Col2Im: columns of windows added up."""
    x = of_size(g, of_rank(g, some(g, ("float32",), 1, 4), 3), 60)
    count = g.dice.between(1, 3)
    columns = g.tensor("float32", [(s[0], 4 * count, 6) for s in x.shapes])
    return g.add("Col2Im", columns, g.constant([3, 4]), g.constant([2, 2]))


@recipe(0.3)
def grid_sample(g: Graph) -> Value:
    x = of_size(g, of_rank(g, some(g, ("float32",), 2, 4), 4), 100)
    if any(0 in s for s in x.shapes):
        raise Reject("an empty image")
    grid = g.tensor("float32", [(s[0], 2, 3, 2) for s in x.shapes], whole=False, low=-1, high=1)
    return g.add(
        "GridSample",
        x,
        grid,
        mode="linear" if g.opset >= 20 else "bilinear",
        padding_mode=g.dice.of(["zeros", "border"]),
    )


@recipe(0.4)
def einsum(g: Graph) -> Value:
    x = of_size(g, of_rank(g, some(g, ("float32",), 1, 4), 3), 150)
    equation, shape = g.dice.of(
        [("abc,cd->abd", "c4"), ("abc,abc->ab", "abc"), ("abc,abd->acd", "ab3"), ("abc,dc->adb", "4c")]
    )
    letters = {"a": 0, "b": 1, "c": 2}
    shapes = [tuple(s[letters[c]] if c in letters else int(c) for c in shape) for s in x.shapes]
    return g.add("Einsum", x, g.tensor("float32", shapes), equation=equation)


@recipe(0.15)
def determinant(g: Graph) -> Value:
    x = g.pick(lambda v: v.dtype == "float32" and v.rank >= 2 and v.dim(-1) == v.dim(-2) and max(v.dim(-1)) < 5)
    return g.add("Det", x)


@recipe(0.3)
def rotary(g: Graph) -> Value:
    x = of_size(g, of_rank(g, some(g, ("float32", "float16"), 2, 4), 4), 200)
    if any(d % 2 for d in x.dim(3)):
        x = g.add("Concat", x, x, axis=3)
    shapes = [(s[0], s[2], s[3] // 2) for s in x.shapes]
    angles = [g.tensor(x.dtype, shapes, whole=False, low=-1, high=1) for _ in range(2)]
    return g.add("RotaryEmbedding", x, *angles, interleaved=g.dice.between(0, 1))


assert set(HALVES) <= set(values.FLOATS)
