"""ONNX's inference for operators that do not run here, used after nodes that ONNX Runtime infers nothing for.

In: a node, the version of its operators, and the known types of its operands. Out: the known types of its results. ONNX Runtime
already ran the same inference, but with fewer known operands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx_ir as ir
from onnx import helper

from . import onnx_inference
from .value_info import UNKNOWN, Extent, ValueInfo

_TYPES = {int(it) for it in ir.DataType} - {0}


def results(node: ir.Node, opsets: Mapping[str, int], operands: Sequence[ValueInfo]) -> list[ValueInfo]:
    """Returns the results of a node; all are unknown for an operator that ONNX lacks or a node that it rejects."""
    unknown = [UNKNOWN for _ in node.outputs]
    given = {it.name: info for it, info in zip(node.inputs, operands, strict=True) if it is not None and it.name}
    bodies = any(it.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for it in node.attributes.values())
    if bodies or not all(it.dtype for it in given.values()):
        return unknown
    try:
        made = onnx_inference.results(node, opsets, {name: _type(it) for name, it in given.items()})
    except onnx_inference.Refused:
        return unknown
    return [_info(made.get(it.name or "")) for it in node.outputs]


def _type(info: ValueInfo) -> onnx.TypeProto:
    assert info.dtype is not None
    return helper.make_tensor_type_proto(int(info.dtype), info.shape)


def _info(made: onnx.TypeProto | None) -> ValueInfo:
    if made is None or made.tensor_type.elem_type not in _TYPES:
        return UNKNOWN
    tensor = made.tensor_type
    return ValueInfo(
        ir.DataType(tensor.elem_type), tuple(map(_extent, tensor.shape.dim)) if tensor.HasField("shape") else None
    )


def _extent(dim: onnx.TensorShapeProto.Dimension) -> Extent:
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else None
    return dim.dim_param if dim.dim_param.isidentifier() else None
