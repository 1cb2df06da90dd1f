"""Constant folding: a few plain operators on constants become constants, unless these are larger.

In: an ONNX graph, which is not modified. Out: the nodes that need no lowering, and the constants that replace them. Invariant:
folding never increases the size of weights. A node stays if its result has more bytes than the constants that disappear with it.
So integer weights stay integers, which products dequantise on load. Weights with another reader are not duplicated.

onnx's reference evaluator computes the results. It is used only for operators that it implements as numpy indexing or as one
rounded operation. For others it differs from onnxruntime in some cases (integer division and remainders, overflowing casts,
ties).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from ...records import dataclass

Array = np.ndarray[Any, Any]

ALWAYS_FOLDED_BYTES = 1024  # for any result: one of this size costs less than a kernel
LARGEST_STEP_BYTES = 64 << 20  # per intermediate result of a smaller final one

_MOVING = frozenset(
    {"Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose"}
    | {"Unsqueeze", "Constant", "ConstantOfShape"}
)
_CALCULATING = frozenset({"Abs", "Add", "Cos", "Div", "Exp", "Log", "Mul", "Neg", "Sin", "Sqrt", "Sub"})  # floats only
FOLDED = _MOVING | _CALCULATING
"""The operators on constants that are folded."""


@dataclass(frozen=True)
class Folded:
    """The result of folding: `nodes` are not lowered, `constants` are their results that other nodes read."""

    nodes: frozenset[ir.Node]
    constants: dict[ir.Value, ir.TensorProtocol]


def fold_constants(graph: ir.Graph, opset_imports: Mapping[str, int]) -> Folded:
    """Computes the results of constant nodes."""
    folding = _Folding(graph, opset_imports)
    for node in reversed(list(graph)):
        folding.visit(node)
    return folding.folded()


def _has_positive_steps(steps: ir.Value | None) -> bool:
    """Returns whether the steps of a slice are positive. Only then do numpy and ONNX clamp its bounds in the same way."""
    return steps is None or (steps.const_value is not None and bool((steps.const_value.numpy() > 0).all()))


class _Folding:
    """Decides from readers to producers, so that a large intermediate result of a small final one is never kept."""

    def __init__(self, graph: ir.Graph, opset_imports: Mapping[str, int]) -> None:
        self._opsets = opset_imports
        self._outputs = set(graph.outputs)
        self._constant: set[ir.Node] = set()
        for node in graph:
            if self._is_constant(node):
                self._constant.add(node)
        self._known: dict[ir.Node, list[Array] | None] = {}
        self._folded: dict[ir.Node, list[Array]] = {}

    def _is_constant(self, node: ir.Node) -> bool:
        """Returns True for a node that can be computed here, even if folding it does not pay."""
        if node.domain not in ("", "ai.onnx") or node.op_type not in FOLDED:
            return False
        inputs = [v for v in node.inputs if v is not None]
        if node.op_type == "Slice" and len(node.inputs) > 4 and not _has_positive_steps(node.inputs[4]):
            return False
        return all(v.const_value is not None or v.producer() in self._constant for v in inputs)

    def visit(self, node: ir.Node) -> None:
        """Folds the node if a node that stays reads it. Must be called for every node after its readers."""
        if node not in self._constant or not self._outputs.isdisjoint(node.outputs):
            return
        readers = [use.node for value in node.outputs for use in value.uses()]
        if readers and all(reader in self._folded for reader in readers):
            self._folded[node] = []  # all readers are folded
            return
        budget = max(ALWAYS_FOLDED_BYTES, self._removed_bytes(node))
        if _stated_bytes(node.outputs) > budget:
            return
        results = self._results(node)
        if results is not None and sum(r.nbytes for r in results) <= budget:
            self._folded[node] = results

    def _removed_bytes(self, node: ir.Node) -> int:
        """Returns the bytes of constants with only this node as reader, directly or through nodes that only it reads."""
        cone, pending = {node}, [node]
        leaves: set[ir.Value] = set()
        while pending:
            for value in pending.pop().inputs:
                if value is None or any(use.node not in cone for use in value.uses()) or value in self._outputs:
                    continue
                producer = value.producer()
                if producer is None or value.const_value is not None:
                    leaves.add(value)
                elif producer not in cone and all(v is value or not v.uses() for v in producer.outputs):
                    cone.add(producer)
                    pending.append(producer)
        constants = [v.const_value for v in leaves if v.const_value is not None]
        made_of = [a.as_tensor() for n in cone for a in n.attributes.values() if a.type == ir.AttributeType.TENSOR]
        return sum(int(c.nbytes) for c in constants) + sum(int(t.nbytes) for t in made_of)

    def _results(self, node: ir.Node) -> list[Array] | None:
        """Returns the node's results, or None if an intermediate result is too large or the evaluator lacks the operator."""
        pending = [node]
        while pending:
            current = pending[-1]
            missing = [n for n in _producers(current) if n not in self._known]
            if missing:
                pending.extend(missing)
                continue
            pending.pop()
            if current not in self._known:
                self._known[current] = self._evaluate(current)
        return self._known[node]

    def _evaluate(self, node: ir.Node) -> list[Array] | None:
        if _stated_bytes(node.outputs) > LARGEST_STEP_BYTES:
            return None
        feeds: dict[str, Array] = {}
        for value in node.inputs:
            if value is None:
                continue
            producer = value.producer()
            if value.const_value is not None:
                feeds[value.name or ""] = np.asarray(value.const_value.numpy())
                continue
            assert producer is not None
            results = self._known[producer]
            if results is None:
                return None
            feeds[value.name or ""] = results[list(producer.outputs).index(value)]
        if node.op_type in _CALCULATING and not all(f.dtype.kind == "f" for f in feeds.values()):
            return None
        if _estimated_bytes(node, [feeds[it.name or ""] for it in node.inputs if it is not None]) > LARGEST_STEP_BYTES:
            return None
        results = _calculated(node, feeds, self._opsets)
        return results if results is not None and sum(r.nbytes for r in results) <= LARGEST_STEP_BYTES else None

    def folded(self) -> Folded:
        constants = {
            value: ir.tensor(result, name=value.name)
            for node, results in self._folded.items()
            for value, result in zip(node.outputs, results, strict=False)
        }
        return Folded(frozenset(self._folded), constants)


def _producers(node: ir.Node) -> Iterable[ir.Node]:
    """Yields the producers of this node's inputs, except for constants."""
    for value in node.inputs:
        producer = value.producer() if value is not None and value.const_value is None else None
        if producer is not None:
            yield producer


def _stated_bytes(values: Iterable[ir.Value]) -> int:
    """Returns the bytes of the values with a known type and shape."""
    total = 0
    for value in values:
        dims = [d for d in value.shape if isinstance(d, int)] if value.shape is not None else []
        if value.dtype is not None and value.shape is not None and len(dims) == len(value.shape):
            total += math.prod(dims) * int(value.dtype.bitwidth) // 8
    return total


def _estimated_bytes(node: ir.Node, inputs: list[Array]) -> int:
    """Returns a lower estimate of the bytes of a result that may be much larger than its inputs, because numbers in the model
    decide it.

    Returns 0 for other operators.
    """
    if not inputs:
        return 0
    (x, *others), operator = inputs, node.op_type
    try:
        if operator == "ConstantOfShape":
            return math.prod(x.reshape(-1).tolist())
        if operator == "Tile":
            return int(x.nbytes * math.prod(others[0].reshape(-1).tolist()))
        if operator == "Expand":
            return x.itemsize * math.prod(np.broadcast_shapes(x.shape, tuple(others[0].reshape(-1).tolist())))
        if operator == "Gather":
            axis = node.attributes.get_int("axis", 0)
            return int(x.nbytes * others[0].size // max(1, x.shape[axis or 0]))
        if operator == "Split":  # the evaluator lists a size for each
            return 8 * (node.attributes.get_int("num_outputs", 0) or 0)
        if operator in _CALCULATING:
            return x.itemsize * math.prod(np.broadcast_shapes(*(it.shape for it in inputs)))
    except (ValueError, IndexError, TypeError):
        return 0  # malformed; the evaluator rejects it
    return 0


def _calculated(node: ir.Node, feeds: Mapping[str, Array], opsets: Mapping[str, int]) -> list[Array] | None:
    """Returns the results of onnx's reference evaluator for one node, or None if it fails."""
    from onnx.reference import ReferenceEvaluator

    proto = onnx.NodeProto.FromString(ir.to_proto(node).SerializeToString())
    graph = helper.make_graph(
        [proto],
        "fold",
        [helper.make_value_info(n, onnx.TypeProto()) for n in feeds],
        [helper.make_value_info(n, onnx.TypeProto()) for n in proto.output if n],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(d, v) for d, v in opsets.items()])
    try:
        results = ReferenceEvaluator(model).run(None, dict(feeds))
    except (RuntimeError, NotImplementedError, ValueError, TypeError, IndexError, AttributeError):
        # Malformed nodes, and types that numpy lacks: lowering reports the error, if there is one.
        return None
    return [np.asarray(r) for r in results] if all(isinstance(r, (np.ndarray, np.generic)) for r in results) else None
