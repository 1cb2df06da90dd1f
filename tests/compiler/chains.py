"""Random models around one kernel: an anchor of any kind, then a chain of reshapes, pointwise operators and broadcasts.

In: the name of an anchor, a seed, and whether the extents of the inputs are known when the model is compiled. Out: a model
and one or two sets of inputs. Results of the chain are also results of the model, are read again later in the chain in
other shapes, and feed other kernels. Invariant: the same arguments give the same model, whose smallest part that is still
wrong is found by lowering `steps`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto

from .chain_builder import Chain, F, Value

# Anchors: each ends in a float value.

Anchor = Callable[[Chain], Value]


def _like(c: Chain, x: Value, name: str, *last: int) -> Value:
    """A result with the first two axes of x and `last` ones."""
    return Value(name, (*x.shape[:2], *last), (*x.fixed[:2], *(True for _ in last)))


def _same(op: str, **attributes: object) -> Anchor:
    def build(c: Chain) -> Value:
        x = c.input(2, 3, 12)
        return Value(c.node(op, x.name, **attributes), x.shape, x.fixed)

    return build


def _reduction(op: str) -> Anchor:
    def build(c: Chain) -> Value:
        x = c.input(2, 3, 4, 6)
        kept = c.chance.randrange(2)
        axes = c.weight([c.chance.choice((0, 1, 2, 3))], np.int64)
        name = c.node(op, x.name, axes, keepdims=kept)
        axis = int(c.weights[axes][0])
        shape, fixed = list(x.shape), list(x.fixed)
        shape[axis : axis + 1] = [1] * kept
        fixed[axis : axis + 1] = [True] * kept
        return Value(name, tuple(shape), tuple(fixed))

    return build


def _matmul(c: Chain) -> Value:
    x = c.input(2, 3, 8)
    return _like(c, x, c.node("MatMul", x.name, c.floats(8, 12)), 12)


def _batched(c: Chain) -> Value:
    """Both operands are inputs, as in attention."""
    x = c.input(2, 3, 4, 8)
    turned = c.node("Transpose", x.name, perm=[0, 1, 3, 2])
    return _like(c, x, c.node("MatMul", x.name, turned), 4, 4)


def _gemm(c: Chain) -> Value:
    x = c.input(5, 8)
    flat = (
        Value(c.node("Reshape", x.name, c.weight([-1, 8], np.int64)), (5, 8), (x.fixed[0], True))
        if not c.dynamic
        else None
    )
    if flat is None:
        wide = c.input(2, 3, 8)
        flat = Value(c.node("Reshape", wide.name, c.weight([-1, 8], np.int64)), (6, 8), (False, True))
        del c.inputs[x.name]
    name = c.node("Gemm", flat.name, c.floats(12, 8), c.floats(12), transB=1, alpha=0.5)
    return Value(name, (flat.shape[0], 12), (flat.fixed[0], True))


def _conv(group: int, padded: bool, moved: bool = False) -> Anchor:
    def build(c: Chain) -> Value:
        x = c.input(2, 4, 7, 6)
        if c.dynamic:  # channels are known
            del c.inputs[x.name]
            rows = c.input(2, 7, 4, 6)
            x = Value(c.node("Transpose", rows.name, perm=[0, 2, 1, 3]), (2, 4, 7, 6), (False, True, False, True))
        elif moved:
            x = Value(c.node("Slice", x.name, c.weight([0], np.int64), c.weight([5], np.int64), c.weight([2], np.int64)),
                      (2, 4, 5, 6), x.fixed)  # fmt: skip
            x = Value(c.node("Transpose", x.name, perm=[0, 1, 3, 2]), (2, 4, 6, 5), x.fixed)
        w = c.floats(8, 4 // group, 3, 3)
        name = c.node("Conv", x.name, w, c.floats(8), group=group, pads=[int(padded)] * 4, strides=[1, 1])
        rows, columns = (n if padded else n - 2 for n in x.shape[2:])
        return Value(name, (x.shape[0], 8, rows, columns), (x.fixed[0], True, *x.fixed[2:]))

    return build


def _norm(op: str) -> Anchor:
    def build(c: Chain) -> Value:
        if op == "LayerNormalization":
            x = c.input(2, 3, 12)
            return Value(c.node(op, x.name, c.floats(12), c.floats(12), axis=-1), x.shape, x.fixed)
        x = c.input(2, 3, 12)
        known = Value(c.node("Transpose", x.name, perm=[0, 2, 1]), (2, 12, 3), (x.fixed[0], True, x.fixed[1]))
        return Value(c.node(op, known.name, c.floats(12), c.floats(12)), known.shape, known.fixed)

    return build


def _cumsum(c: Chain) -> Value:
    x = c.input(2, 3, 12)
    axis = c.weight(c.chance.choice((0, 1, 2)), np.int64)
    return Value(c.node("CumSum", x.name, axis, reverse=c.chance.randrange(2)), x.shape, x.fixed)


def _argmax(c: Chain) -> Value:
    x = c.input(2, 3, 12)
    places = c.node("ArgMax", x.name, axis=2, keepdims=c.chance.randrange(2))
    kept = [1] if c.nodes[-1].attribute[1].i else []
    return _like(c, x, c.node("Cast", places, to=TensorProto.FLOAT), *kept)


def _topk(c: Chain) -> Value:
    x = c.input(2, 3, 12)
    name = c.node("TopK", x.name, c.weight([4], np.int64), outputs=2)
    places = c.nodes[-1].output[1]
    c.result(places, TensorProto.INT64)
    chosen = c.node("Cast", places, to=TensorProto.FLOAT) if c.chance.randrange(2) else name
    return _like(c, x, chosen, 4)


def _lstm(c: Chain) -> Value:
    x = c.input(3, 2, 4)
    name = c.node("LSTM", x.name, c.floats(1, 20, 4), c.floats(1, 20, 5), hidden_size=5)
    return Value(name, (3, 1, 2, 5), (x.fixed[0], True, x.fixed[1], True))


def _gru(c: Chain) -> Value:
    x = c.input(3, 2, 4)
    name = c.node("GRU", x.name, c.floats(1, 15, 4), c.floats(1, 15, 5), hidden_size=5, linear_before_reset=1)
    return Value(name, (3, 1, 2, 5), (x.fixed[0], True, x.fixed[1], True))


def _pool(op: str) -> Anchor:
    def build(c: Chain) -> Value:
        x = c.input(2, 3, 6, 8)
        return _like(c, x, c.node(op, x.name, kernel_shape=[2, 2], strides=[2, 2]), 3, 4)

    return build


def _scatter(c: Chain) -> Value:
    x = c.input(2, 3, 12)
    index = c.weight([[0, 0], [0, 2], [0, 1]], np.int64) if c.dynamic else c.weight([[0, 0], [1, 2], [0, 1]], np.int64)
    return Value(c.node("ScatterND", x.name, index, c.floats(3, 12)), x.shape, x.fixed)


def _scatter_elements(c: Chain) -> Value:
    x = c.input(2, 3, 12)
    index = c.weight(np.array([[[3, 1, 7]]]), np.int64)
    return Value(c.node("ScatterElements", x.name, index, c.floats(1, 1, 3), axis=2), x.shape, x.fixed)


def _integers(c: Chain) -> Value:
    x = c.input(2, 3, 8, dtype=np.uint8)
    w = c.weight(c.numbers.integers(-20, 20, (8, 12)), np.int8)
    name = c.node("MatMulInteger", x.name, w, c.weight(3, np.uint8), c.weight(1, np.int8))
    return _like(c, x, c.node("Mul", c.node("Cast", name, to=TensorProto.FLOAT), c.weight(0.001, F)), 12)


def _quantised(c: Chain) -> Value:
    x = c.input(2, 3, 8, dtype=np.uint8)
    scale, zero = c.weight(0.05, F), c.weight(7, np.uint8)
    real = c.node("DequantizeLinear", x.name, scale, zero)
    return _like(c, x, c.node("MatMul", real, c.floats(8, 12)), 12)


def _requantised(c: Chain) -> Value:
    x = c.input(2, 3, 8, dtype=np.uint8)
    scale, zero = c.weight(0.05, F), c.weight(7, np.uint8)
    w = c.weight(c.numbers.integers(0, 15, (8, 12)), np.uint8)
    name = c.node("QLinearMatMul", x.name, scale, zero, w, scale, zero, c.weight(0.25, F), c.weight(100, np.uint8))
    return _like(c, x, c.node("DequantizeLinear", name, scale, zero), 12)


def _pointwise(c: Chain) -> Value:
    x = c.input(2, 3, 12)
    return Value(c.node("Exp", x.name), x.shape, x.fixed)


ANCHORS: dict[str, Anchor] = {
    "MatMul": _matmul,
    "batched MatMul": _batched,
    "Gemm": _gemm,
    "Conv": _conv(1, True),
    "Conv without padding": _conv(1, False),
    "Conv of a view": _conv(1, False, moved=True),
    "Conv in groups": _conv(2, True),
    "depthwise Conv": _conv(4, True),
    "InstanceNormalization": _norm("InstanceNormalization"),
    "LayerNormalization": _norm("LayerNormalization"),
    "Softmax": _same("Softmax", axis=-1),
    "Softmax over rows": _same("Softmax", axis=1),
    "LogSoftmax": _same("LogSoftmax", axis=-1),
    "CumSum": _cumsum,
    "ReduceSum": _reduction("ReduceSum"),
    "ReduceMax": _reduction("ReduceMax"),
    "ReduceL2": _reduction("ReduceL2"),
    "ArgMax": _argmax,
    "TopK": _topk,
    "LSTM": _lstm,
    "GRU": _gru,
    "MaxPool": _pool("MaxPool"),
    "AveragePool": _pool("AveragePool"),
    "ScatterND": _scatter,
    "ScatterElements": _scatter_elements,
    "MatMulInteger": _integers,
    "DequantizeLinear and MatMul": _quantised,
    "QLinearMatMul": _requantised,
    "no kernel": _pointwise,
}


def chain(anchor: str, seed: int, dynamic: bool, steps: int = 9) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """The model, and inputs for one run or, with open extents, for two."""
    c = Chain(seed, dynamic)
    c.follow(ANCHORS[anchor](c), steps)
    return c.model(), [c.feeds(), c.feeds(2)] if dynamic else [c.feeds()]
