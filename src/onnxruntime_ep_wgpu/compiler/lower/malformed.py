"""Decides whether an unexpected failure of lowering is a fault of the node or of this package, by ONNX's own checks.

In: a node for which lowering raised an unexpected exception, and what is known of its inputs. Out: what is wrong with the
node, in ONNX's words if it has some. Otherwise None: then this package is at fault, and reports that. Lowering functions
check only what they rely on. They do not repeat ONNX's rules for every node, because ONNX Runtime checks these before it
calls the provider.
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
    """Returns ONNX's objection to a node with these inputs; None if there is none, or if ONNX does not define the operator.

    `operands` has one entry per input, which is None if the input is omitted or unknown.
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
    """Returns what is wrong with the types of the inputs: a type that the operator does not support, or two that must be
    equal and are not."""
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
