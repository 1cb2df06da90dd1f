"""What an operator of ONNX makes, as ONNX infers it: for those that do not run here, behind what ONNX Runtime infers nothing of.

In: a node, the version of its operators, and what is known of its operands. Out: what is known of its results. ONNX Runtime has
asked the same, without what is known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx_ir as ir
from onnx import checker, helper, shape_inference

from ..ops.registry import schema_of, version_of
from .told import UNKNOWN, Extent, Told

_SMALL = 4096  # bytes of a constant that may be a shape, axes or sizes


def results(node: ir.Node, opsets: Mapping[str, int], operands: Sequence[Told]) -> list[Told]:
    """Nothing is known of the results of an operator that ONNX does not have, or that it refuses."""
    domain, opset = version_of(node.domain, opsets)
    schema = schema_of(node.op_type, domain, opset)
    bodies = any(it.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for it in node.attributes.values())
    if (
        schema is None
        or bodies
        or any(it.dtype is None for it, value in zip(operands, node.inputs, strict=True) if value)
    ):
        return [UNKNOWN for _ in node.outputs]
    proto = onnx.NodeProto.FromString(ir.to_proto(node).SerializeToString())
    given = {name: _type(it) for name, it in zip(proto.input, operands, strict=True) if name}
    try:
        made = shape_inference.infer_node_outputs(
            schema, proto, given, _constants(node), opset_imports=[helper.make_opsetid(domain, opset)]
        )
    except (checker.ValidationError, shape_inference.InferenceError, RuntimeError):
        return [UNKNOWN for _ in node.outputs]
    return [_told(made.get(name)) for name in proto.output]


def _type(told: Told) -> onnx.TypeProto:
    assert told.dtype is not None
    return helper.make_tensor_type_proto(int(told.dtype), told.shape)


def _constants(node: ir.Node) -> dict[str, onnx.TensorProto]:
    values = {it.name: it.const_value for it in node.inputs if it is not None and it.name}
    return {
        name: ir.serde.serialize_tensor(it)
        for name, it in values.items()
        if name and it is not None and it.nbytes <= _SMALL
    }


def _told(made: onnx.TypeProto | None) -> Told:
    if made is None or not made.HasField("tensor_type") or not made.tensor_type.elem_type:
        return UNKNOWN
    tensor = made.tensor_type
    return Told(
        ir.DataType(tensor.elem_type), tuple(map(_extent, tensor.shape.dim)) if tensor.HasField("shape") else None
    )


def _extent(dim: onnx.TensorShapeProto.Dimension) -> Extent:
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return dim.dim_param if dim.dim_param.isidentifier() else None
