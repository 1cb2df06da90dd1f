"""Whose fault it is that a node cannot be lowered: the node's, or ours. ONNX decides.

In: a node for which lowering raised what it was not to raise, and what is known of its inputs. Out: what is wrong with the
node, in ONNX's words where it has some, or None: then the fault is ours, and is told as one. Lowering functions check what
they make of a node and not what ONNX says of every node: ONNX Runtime has asked that before it asks us.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx_ir as ir
from onnx import checker, defs, helper, shape_inference

from .operand import Operand
from .ops.registry import schema_of, version_of


def malformation(node: ir.Node, opsets: Mapping[str, int], operands: Sequence[Operand | None]) -> str | None:
    """What ONNX has against a node with these inputs, None for nothing or for an operator that it does not know.

    `operands` are as many as the node has inputs; None for one that is left out or not known.
    """
    domain, opset = version_of(node.domain, opsets)
    schema = schema_of(node.op_type, domain, opset)
    if schema is None:
        return None
    proto = onnx.NodeProto.FromString(ir.to_proto(node).SerializeToString())
    names = [name for name in proto.input if name]
    known = {name: it for name, it in zip(proto.input, operands, strict=True) if name and it is not None}
    context = checker.C.CheckerContext()
    context.ir_version, context.opset_imports = onnx.IR_VERSION, {**opsets, domain: opset}
    try:
        checker.check_node(proto, context)
        if len(known) == len(names):
            wrong = _types(schema, proto, known)
            if wrong is not None:
                return wrong
            shape_inference.infer_node_outputs(
                schema,
                proto,
                {name: _type(it) for name, it in known.items()},
                _constants(node),
                opset_imports=[helper.make_opsetid(domain, opset)],
                ir_version=onnx.IR_VERSION,
            )
    except (checker.ValidationError, shape_inference.InferenceError) as error:
        return str(error).strip().splitlines()[0]
    return None


def _types(schema: defs.OpSchema, proto: onnx.NodeProto, known: Mapping[str, Operand]) -> str | None:
    """What is wrong with the types of inputs: one that the operator does not take, or two that have to be the same."""
    bound: dict[str, str] = {}
    for k, name in enumerate(proto.input):
        formal = schema.inputs[min(k, len(schema.inputs) - 1)]
        if name not in known:
            continue
        found = f"tensor({helper.tensor_dtype_to_string(known[name].dtype.code).removeprefix('TensorProto.').lower()})"
        if formal.types and found not in formal.types:
            return f"input {name!r} is a {found}"
        if formal.is_homogeneous and bound.setdefault(formal.type_str, found) != found:
            return f"input {name!r} is a {found}, where another is a {bound[formal.type_str]}"
    return None


def _type(operand: Operand) -> onnx.TypeProto:
    shape = [dim if isinstance(dim, int) else None for dim in operand.shape]
    return helper.make_tensor_type_proto(operand.dtype.code, shape)


def _constants(node: ir.Node) -> dict[str, onnx.TensorProto]:
    """The inputs whose values are known, by name."""
    values = {it.name: it.const_value for it in node.inputs if it is not None and it.name}
    return {name: ir.serde.serialize_tensor(it) for name, it in values.items() if name and it is not None}
