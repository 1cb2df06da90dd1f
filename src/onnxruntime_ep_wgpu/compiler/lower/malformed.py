"""Whose fault it is that a node cannot be lowered: the node's, or ours. ONNX decides.

In: a node for which lowering raised what it was not to raise, and what is known of its inputs. Out: what is wrong with the
node, in ONNX's words where it has some, or None: then the fault is ours, and is reported as one. Lowering functions check what
they make of a node and not what ONNX says of every node: ONNX Runtime has asked that before it asks us.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx_ir as ir
from onnx import defs, helper

from ..graph.inference import onnx_inference
from ..graph.schemas import schema_of, version_of
from .operand import Operand


def malformation(node: ir.Node, opsets: Mapping[str, int], operands: Sequence[Operand | None]) -> str | None:
    """What ONNX has against a node with these inputs, None for nothing or for an operator that it does not know.

    `operands` are as many as the node has inputs; None for one that is left out or not known.
    """
    domain, opset = version_of(node.domain, opsets)
    schema = schema_of(node.op_type, domain, opset)
    if schema is None:
        later = not domain and schema_of(node.op_type, domain, defs.onnx_opset_version()) is not None
        return f"opset {opset} has no such operator" if later else None
    names = [it.name for it in node.inputs if it is not None and it.name]
    known = {
        value.name: it
        for value, it in zip(node.inputs, operands, strict=True)
        if value is not None and value.name and it is not None
    }
    if len(known) == len(set(names)):
        wrong = _types(schema, node, known)
        if wrong is not None:
            return wrong
        try:
            onnx_inference.results(node, opsets, {name: _type(it) for name, it in known.items()}, checked=True)
        except onnx_inference.Refused as error:
            return str(error)
    else:
        return onnx_inference.refusal(node, opsets)
    return None


def _types(schema: defs.OpSchema, node: ir.Node, known: Mapping[str, Operand]) -> str | None:
    """What is wrong with the types of inputs: one that the operator does not take, or two that have to be the same."""
    bound: dict[str, str] = {}
    for k, value in enumerate(node.inputs):
        name = value.name if value is not None else None
        if name is None or name not in known or not schema.inputs:
            continue
        formal = schema.inputs[min(k, len(schema.inputs) - 1)]
        found = f"tensor({helper.tensor_dtype_to_string(known[name].dtype.code).removeprefix('TensorProto.').lower()})"
        if formal.types and found not in formal.types:
            return f"input {name!r} is a {found}"
        if formal.is_homogeneous and bound.setdefault(formal.type_str, found) != found:
            return f"input {name!r} is a {found}, where another is a {bound[formal.type_str]}"
    return None


def _type(operand: Operand) -> onnx.TypeProto:
    shape = [dim if isinstance(dim, int) else None for dim in operand.shape]
    return helper.make_tensor_type_proto(operand.dtype.code, shape)
