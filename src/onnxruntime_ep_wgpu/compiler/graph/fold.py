"""Constant folding: what a few plain operators make of constants becomes a constant itself, where that is no larger.

In: an ONNX graph, which stays as it is. Out: which nodes need not be lowered, and the constants that take their place.
Invariant: folding never makes weights grow. A node stays when its
result has more bytes than the constants that disappear with it: integer weights stay integers, which products dequantise
where they load them, and weights with another reader are not kept twice.

onnx's reference evaluator calculates. It is trusted only with operators for which it is numpy's indexing or one rounded
operation; for others it differs from onnxruntime in places (integer division and remainders, casts that overflow, ties).
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

ALWAYS_FOLDED_BYTES = 1024  # whatever it replaces: such a result costs less than a kernel that makes it
LARGEST_STEP_BYTES = 64 << 20  # of what is calculated on the way to a smaller result

_MOVING = frozenset(
    {"Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose"}
    | {"Unsqueeze", "Constant", "ConstantOfShape"}
)
_CALCULATING = frozenset({"Abs", "Add", "Cos", "Div", "Exp", "Log", "Mul", "Neg", "Sin", "Sqrt", "Sub"})  # of floats
FOLDED = _MOVING | _CALCULATING
"""The operators of constants that are calculated here."""


@dataclass(frozen=True)
class Folded:
    """What folding makes of a graph: `nodes` are not lowered, `constants` are what those that stay read of them."""

    nodes: frozenset[ir.Node]
    constants: dict[ir.Value, ir.TensorProtocol]


def fold_constants(graph: ir.Graph, opset_imports: Mapping[str, int]) -> Folded:
    """Calculates the results of constant nodes."""
    folding = _Folding(graph, opset_imports)
    for node in reversed(list(graph)):
        folding.visit(node)
    return folding.folded()


def _goes_forward(steps: ir.Value | None) -> bool:
    """Whether the steps of a slice are positive: only then do numpy and ONNX clamp its bounds alike."""
    return steps is None or (steps.const_value is not None and bool((steps.const_value.numpy() > 0).all()))


class _Folding:
    """Decides from the readers to what they read, so that a large step on the way to a small result is never kept."""

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
        """True for a node that can be calculated here, though not that it is worth it."""
        if node.domain not in ("", "ai.onnx") or node.op_type not in FOLDED:
            return False
        inputs = [v for v in node.inputs if v is not None]
        if node.op_type == "Slice" and len(node.inputs) > 4 and not _goes_forward(node.inputs[4]):
            return False
        return all(v.const_value is not None or v.producer() in self._constant for v in inputs)

    def visit(self, node: ir.Node) -> None:
        """Folds the node when a node that stays reads it; called for every node after its readers."""
        if node not in self._constant or not self._outputs.isdisjoint(node.outputs):
            return
        readers = [use.node for value in node.outputs for use in value.uses()]
        if readers and all(reader in self._folded for reader in readers):
            self._folded[node] = []  # nothing reads it any more
            return
        budget = max(ALWAYS_FOLDED_BYTES, self._disappearing(node))
        if _stated_bytes(node.outputs) > budget:
            return
        results = self._results(node)
        if results is not None and sum(r.nbytes for r in results) <= budget:
            self._folded[node] = results

    def _disappearing(self, node: ir.Node) -> int:
        """Bytes of the constants that only this node reads, directly or through nodes that only it reads."""
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
        """The node's results; None when a step on the way is too large, or the evaluator does not know it."""
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
        if _least_bytes(node, [feeds[it.name or ""] for it in node.inputs if it is not None]) > LARGEST_STEP_BYTES:
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
    """The nodes that make this one's inputs, without those of constants."""
    for value in node.inputs:
        producer = value.producer() if value is not None and value.const_value is None else None
        if producer is not None:
            yield producer


def _stated_bytes(values: Iterable[ir.Value]) -> int:
    """Bytes of the values whose type and shape the model states."""
    total = 0
    for value in values:
        dims = [d for d in value.shape if isinstance(d, int)] if value.shape is not None else []
        if value.dtype is not None and value.shape is not None and len(dims) == len(value.shape):
            total += math.prod(dims) * int(value.dtype.bitwidth) // 8
    return total


def _least_bytes(node: ir.Node, inputs: list[Array]) -> int:
    """About how many bytes a result has that may be much larger than what it is made of; numbers of the model's text decide. 0 for
    other results."""
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
        return 0  # malformed: the evaluator refuses it
    return 0


def _calculated(node: ir.Node, feeds: Mapping[str, Array], opsets: Mapping[str, int]) -> list[Array] | None:
    """What onnx's reference evaluator makes of one node; None when it refuses."""
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
        # Malformed nodes and types that numpy lacks: lowering says what is wrong, if anything is.
        return None
    return [np.asarray(r) for r in results] if all(isinstance(r, (np.ndarray, np.generic)) for r in results) else None
