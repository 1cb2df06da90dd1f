"""Constant folding: nodes whose inputs are all constants become initializers, computed by onnx's reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

MAX_FOLDED_BYTES = 64 << 20  # a larger result is cheaper to compute on the device than to upload
_NEVER = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout"}
)


def fold_constants(graph: ir.Graph, opset_imports: Mapping[str, int]) -> int:
    """Gives the results of constant nodes a `const_value` and removes the nodes; returns how many were removed.

    A node that the evaluator does not know, or whose result is large, stays.
    """
    outputs = set(graph.outputs)
    folded = 0
    for node in list(graph):
        inputs = [v for v in node.inputs if v is not None]
        if node.op_type in _NEVER or any(v.const_value is None for v in inputs) or not outputs.isdisjoint(node.outputs):
            continue
        if any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values()):
            continue
        results = _evaluate(node, opset_imports)
        if results is None or sum(r.nbytes for r in results) > MAX_FOLDED_BYTES:
            continue
        for value, result in zip(node.outputs, results, strict=False):
            value.const_value = ir.tensor(result, name=value.name)
            value.shape, value.dtype = ir.Shape(result.shape), value.const_value.dtype
        graph.remove(node, safe=False)
        folded += 1
    return folded


def _evaluate(node: ir.Node, opset_imports: Mapping[str, int]) -> list[np.ndarray] | None:
    from onnx.reference import ReferenceEvaluator

    try:
        proto = onnx.NodeProto.FromString(ir.to_proto(node).SerializeToString())
        names = [n for n in dict.fromkeys(proto.input) if n]
        graph = helper.make_graph(
            [proto],
            "fold",
            [helper.make_value_info(n, onnx.TypeProto()) for n in names],
            [helper.make_value_info(n, onnx.TypeProto()) for n in proto.output if n],
        )
        opsets = [helper.make_opsetid(d, v) for d, v in opset_imports.items()]
        session = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets))
        feeds = {
            v.name or "": v.const_value.numpy() for v in node.inputs if v is not None and v.const_value is not None
        }
        results = session.run(None, feeds)
    except Exception:
        return None
    return [np.asarray(r) for r in results] if all(isinstance(r, (np.ndarray, np.generic)) for r in results) else None
