"""A model that grows as a chain of reshapes, pointwise operators and broadcasts from any value, by a seed."""

from __future__ import annotations

import math
import random
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
