"""Random models around one kernel: an anchor of any kind, then a chain of reshapes, pointwise operators and broadcasts.

In: the name of an anchor, a seed, and whether the extents of the inputs are known when the model is compiled. Out: a model
and one or two sets of inputs. Results of the chain are also results of the model, are read again later in the chain in
other shapes, and feed other kernels. Invariant: the same arguments give the same model, whose smallest part that is still
wrong is found by lowering `steps`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F = np.float32
Dims = tuple[int, ...]


@dataclass
class Value:
    """A float value of the model: its name, its shape with the first set of inputs, and which axes are always so."""

    name: str
    shape: Dims
    fixed: tuple[bool, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)


class Chain:
    """Builds one model. `dynamic` leaves the first two extents of every input open."""

    def __init__(self, seed: int, dynamic: bool) -> None:
        self.chance, self.dynamic = random.Random(seed), dynamic
        self.numbers = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, tuple[type, Dims]] = {}
        self.weights: dict[str, np.ndarray] = {}
        self.results: list[tuple[str, int]] = []
        self._named = 0

    # ---- parts of a model

    def name(self) -> str:
        self._named += 1
        return f"v{self._named}"

    def node(self, op: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        names = [self.name() for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, f"{op}_{names[0]}", **attributes))
        return names[0]

    def weight(self, array: object, dtype: type | None = None) -> str:
        name = self.name()
        self.weights[name] = np.asarray(array, dtype)
        return name

    def floats(self, *shape: int) -> str:
        return self.weight(self.numbers.standard_normal(shape), F)

    def input(self, *shape: int, dtype: type = F) -> Value:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = (dtype, shape)
        return Value(name, shape, tuple(not (self.dynamic and k < 2) for k in range(len(shape))))

    def result(self, name: str, dtype: int = TensorProto.FLOAT) -> None:
        self.results.append((name, dtype))

    # ---- the chain

    def follow(self, value: Value, steps: int) -> None:
        """`steps` random operators after a value, which is read again from time to time, as are those between."""
        start, known = value, [value]
        for _ in range(steps):
            move = self.chance.choice(
                (self.pointwise, self.pointwise, self.reshape, self.reshape, self.combine, self.look)
            )
            value = move(value, start, known)
            known.append(value)
        value = self.back(value, start)
        value = Value(self.node("Add", value.name, start.name), start.shape, start.fixed)
        self.result(value.name)

    def pointwise(self, value: Value, start: Value, known: list[Value]) -> Value:
        op = self.chance.choice(("Relu", "Neg", "Abs", "Tanh", "Sigmoid", "scale", "shift", "clip"))
        if op == "scale":
            name = self.node("Mul", value.name, self.weight(self.chance.choice((0.5, -2.0)), F))
        elif op == "shift":
            extents = [
                n if known and self.chance.random() < 0.7 else 1
                for n, known in zip(value.shape, value.fixed, strict=False)
            ]
            extents = extents[self.chance.randrange(len(extents) + 1) :]
            name = self.node("Add", value.name, self.floats(*extents))
        elif op == "clip":
            name = self.node("Clip", value.name, self.weight(-1.5, F), self.weight(2.5, F))
        else:
            name = self.node(op, value.name)
        return Value(name, value.shape, value.fixed)

    def reshape(self, value: Value, start: Value, known: list[Value]) -> Value:
        moves = [self.unsqueeze, self.unsqueeze, self.flatten, self.split, self.merge, self.squeeze, self.back]
        self.chance.shuffle(moves)
        for move in moves:
            moved = move(value, start)
            if moved is not None and moved.rank <= 6:
                return moved
        return value

    def unsqueeze(self, value: Value, start: Value) -> Value | None:
        axis = self.chance.randrange(value.rank + 1)
        name = self.node("Unsqueeze", value.name, self.weight([axis], np.int64))
        shape, fixed = list(value.shape), list(value.fixed)
        shape.insert(axis, 1)
        fixed.insert(axis, True)
        return Value(name, tuple(shape), tuple(fixed))

    def squeeze(self, value: Value, start: Value) -> Value | None:
        ones = [k for k in range(value.rank) if value.shape[k] == 1 and value.fixed[k]]
        if not ones:
            return None
        axis = self.chance.choice(ones)
        name = self.node("Squeeze", value.name, self.weight([axis], np.int64))
        return Value(name, value.shape[:axis] + value.shape[axis + 1 :], value.fixed[:axis] + value.fixed[axis + 1 :])

    def flatten(self, value: Value, start: Value) -> Value | None:
        axis = self.chance.randrange(value.rank + 1)
        name = self.node("Flatten", value.name, axis=axis)
        return Value(
            name,
            (math.prod(value.shape[:axis]), math.prod(value.shape[axis:])),
            (all(value.fixed[:axis]), all(value.fixed[axis:])),
        )

    def split(self, value: Value, start: Value) -> Value | None:
        """A known axis becomes two."""
        axes = [k for k in range(value.rank) if value.fixed[k] and value.shape[k] > 1 and all(value.fixed[k + 1 :])]
        if not axes:
            return None
        axis = self.chance.choice(axes)
        extent = value.shape[axis]
        outer = self.chance.choice([n for n in range(1, extent + 1) if extent % n == 0])
        target = [0] * axis + [outer, extent // outer, *value.shape[axis + 1 :]]
        name = self.node("Reshape", value.name, self.weight(target, np.int64))
        shape = (*value.shape[:axis], outer, extent // outer, *value.shape[axis + 1 :])
        return Value(name, shape, (*value.fixed[:axis], True, *value.fixed[axis:]))

    def merge(self, value: Value, start: Value) -> Value | None:
        """Two neighbouring axes become one; what follows them is known."""
        axes = [k for k in range(value.rank - 1) if all(value.fixed[k + 2 :])]
        if not axes:
            return None
        axis = self.chance.choice(axes)
        name = self.node("Reshape", value.name, self.weight([0] * axis + [-1, *value.shape[axis + 2 :]], np.int64))
        joined = value.shape[axis] * value.shape[axis + 1]
        known = value.fixed[axis] and value.fixed[axis + 1]
        return Value(
            name,
            (*value.shape[:axis], joined, *value.shape[axis + 2 :]),
            (*value.fixed[:axis], known, *value.fixed[axis + 2 :]),
        )

    def back(self, value: Value, start: Value) -> Value:
        """The shape in which the chain began."""
        return Value(self.node("Reshape", value.name, self.node("Shape", start.name)), start.shape, start.fixed)

    def combine(self, value: Value, start: Value, known: list[Value]) -> Value:
        """With an earlier value of the chain in this one's shape, as it is or elsewhere: the last does not fit a kernel."""
        other = self.chance.choice(known)
        name = other.name
        if other.shape != value.shape or other.fixed != value.fixed:
            name = self.node("Reshape", name, self.node("Shape", value.name))
        how = self.chance.random()
        if how < 0.2 and value.rank > 1:
            axis = self.chance.randrange(value.rank)
            name = self.node("ReduceMean", name, self.weight([axis], np.int64))
        elif how < 0.3 and value.rank > 1 and value.fixed[-1] and value.shape[-1] > 1:
            first, last = (self.weight([n], np.int64) for n in (0, 1))
            name = self.node("Slice", name, first, last, self.weight([value.rank - 1], np.int64))
        return Value(self.node(self.chance.choice(("Add", "Sub", "Max")), value.name, name), value.shape, value.fixed)

    def look(self, value: Value, start: Value, known: list[Value]) -> Value:
        """Somebody else reads the value too: the caller, or another kernel."""
        how = self.chance.randrange(4)
        if how == 0:
            self.result(self.node("Transpose", value.name))
        elif how == 1:
            self.result(self.node("ReduceMax", value.name, keepdims=0))
        elif how == 2:
            self.result(self.node("Cast", value.name, to=TensorProto.FLOAT16), TensorProto.FLOAT16)
        elif value.name.startswith("v") and value.name not in {name for name, _ in self.results}:
            self.result(value.name)
        return value

    # ---- the whole

    def model(self) -> onnx.ModelProto:
        inputs = []
        for name, (dtype, shape) in self.inputs.items():
            dims = [f"{name}_{k}" if self.dynamic and k < 2 else n for k, n in enumerate(shape)]
            inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), dims))
        outputs = [helper.make_tensor_value_info(name, dtype, None) for name, dtype in self.results]
        weights = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        graph = helper.make_graph(self.nodes, "chain", inputs, outputs, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)

    def feeds(self, more: int = 0) -> dict[str, np.ndarray]:
        """Inputs; `more` is added to the first two extents of each, where they are open."""
        out = {}
        for name, (dtype, shape) in self.inputs.items():
            shape = tuple(n + more if self.dynamic and k < 2 else n for k, n in enumerate(shape))
            if np.dtype(dtype).kind == "f":
                out[name] = self.numbers.standard_normal(shape).astype(dtype)
            else:
                out[name] = self.numbers.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
        return out


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
