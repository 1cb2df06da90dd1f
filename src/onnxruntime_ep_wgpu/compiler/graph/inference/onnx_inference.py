"""onnx's inference for the results of one node, and its checks of the node.

In: a node, the versions of its operators, the types of its inputs. Out: types of its outputs by name, or Refused with onnx's
message. Invariant: no node terminates the process or raises any other error. onnx's inference uses some attributes before it
checks them; this file checks those first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import onnx
import onnx_ir as ir
from onnx import checker, helper, shape_inference

from ....errors import cut
from ..schemas import schema_of, version_of

SMALL = 4096
"""Bytes of a constant that may be a shape, axes or sizes."""
_REFUSALS = (
    checker.ValidationError, shape_inference.InferenceError,
    RuntimeError, ValueError, TypeError, IndexError, OverflowError, MemoryError,
)  # fmt: skip
"""onnx's own errors, and those that C++ raises for nonexistent types, attributes of a wrong kind, and lists that are too short.
"""


_TERMS = re.compile(rb"(?:[A-Za-z, ]|\.\.\.)*(?:->.*)?", re.DOTALL)
"""Einsum equations with a left side that onnx can parse to its end."""


class Refused(Exception):
    """onnx rejects the node."""


def results(
    node: ir.Node, opsets: Mapping[str, int], types: Mapping[str, onnx.TypeProto], *, checked: bool = False
) -> dict[str, onnx.TypeProto]:
    """Returns the output types that onnx infers, by name. `types` are those of all named inputs.

    With `checked`, attributes and the number of inputs are checked too. Raises Refused, also for an operator that onnx lacks.
    """
    domain, opset = version_of(node.domain, opsets)
    schema = schema_of(node.op_type, domain, opset)
    if schema is None:
        raise Refused(f"ONNX has no operator {node.op_type} in opset {opset} of {domain or 'ai.onnx'!r}")
    reason = refusal(node, opsets) if checked else None
    if reason is not None:
        raise Refused(reason)
    try:
        proto = _proto(node)
        _bounds(proto, types)
        return shape_inference.infer_node_outputs(
            schema,
            proto,
            dict(types),
            _constants(node),
            opset_imports=[helper.make_opsetid(domain, opset)],
            ir_version=onnx.IR_VERSION,
        )
    except _REFUSALS as error:
        raise Refused(_first_line(error)) from error


def refusal(node: ir.Node, opsets: Mapping[str, int]) -> str | None:
    """Returns onnx's error about the attributes, or the number of inputs and outputs, of a node. This is independent of input
    types."""
    domain, opset = version_of(node.domain, opsets)
    context = checker.C.CheckerContext()
    context.ir_version, context.opset_imports = onnx.IR_VERSION, {**opsets, domain: opset}
    try:
        checker.check_node(_proto(node), context)
    except _REFUSALS as error:
        return _first_line(error)
    return None


def _proto(node: ir.Node) -> onnx.NodeProto:
    proto: onnx.NodeProto = onnx.NodeProto.FromString(ir.to_proto(node).SerializeToString())
    return proto


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _bounds(proto: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]) -> None:
    """Raises ValueError for values that onnx (1.23.2) uses as an index or a loop end before it checks them."""
    for it in proto.attribute:
        if proto.op_type == "Einsum" and it.name == "equation" and not _TERMS.fullmatch(it.s):
            raise ValueError(f"the equation {cut(it.s.decode(errors='replace'))} is invalid")
    ints = {it.name: it.i for it in proto.attribute if it.type == onnx.AttributeProto.INT}
    shapes = [[d.dim_value for d in types[n].tensor_type.shape.dim] if n in types else [] for n in proto.input]
    if proto.op_type == "LayerNormalization" and shapes:
        axis, rank = ints.get("axis", -1), len(shapes[0])
        if rank and not -rank <= axis < rank:
            raise ValueError(f"axis is {axis} and X has rank {rank}")
    if proto.op_type == "Split" and ints.get("num_outputs", len(proto.output)) != len(proto.output):
        raise ValueError(f"num_outputs is {ints['num_outputs']} and the node has {len(proto.output)} outputs")
    if proto.op_type == "GatherND":
        if ints.get("batch_dims", 0) < 0:
            raise ValueError(f"batch_dims is {ints['batch_dims']}, and must be at least 0")
        if any(dim < 0 for shape in shapes for dim in shape):
            raise ValueError(f"dimensions are at least 0: {shapes}")


def _constants(node: ir.Node) -> dict[str, onnx.TensorProto]:
    """Returns the inputs with known, small values, by name."""
    values = {it.name: it.const_value for it in node.inputs if it is not None and it.name}
    return {
        name: ir.serde.serialize_tensor(it)
        for name, it in values.items()
        if name and it is not None and it.nbytes <= SMALL
    }
