"""Models in another float type: the f16 and bf16 forms of an f32 model, and the f32 form that says what is right.

In: a model. Out: a copy in which every tensor of one float type is of another: inputs, outputs, weights, constants, and
what Cast and its like make. Invariant: an f32 model made from one in halves has the same, rounded, weights.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
TYPE_ATTRIBUTES = {"Cast": "to", "EyeLike": "dtype", "DequantizeLinear": "output_dtype"}
"""Attributes that name the element type of a result."""


def retyped(model: onnx.ModelProto, source: int, target: int) -> onnx.ModelProto:
    """A copy of the model with element type `target` wherever it has `source` (ONNX numbers)."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == source:
            value.type.tensor_type.elem_type = target
    for tensor in graph.initializer:
        _retype(tensor, source, target)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == TYPE_ATTRIBUTES.get(node.op_type) and attribute.i == source:
                attribute.i = target
            if attribute.HasField("t"):
                _retype(attribute.t, source, target)
    return copy


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with all halves as f32."""
    for half in HALVES:
        model = retyped(model, half, TensorProto.FLOAT)
    return model


def as_type(array: Any, source: int, target: int) -> Any:
    """The array, converted when it is of element type `source`."""
    array, kind = np.asarray(array), helper.tensor_dtype_to_np_dtype(target)
    if array.dtype != helper.tensor_dtype_to_np_dtype(source):
        return array
    largest = float(ml_dtypes.finfo(kind).max)
    # Finite numbers stay finite: models have the least one as a mask.
    wide = array.astype(np.float64)
    return np.where(np.isfinite(wide), np.clip(wide, -largest, largest), wide).astype(kind)


def _retype(tensor: TensorProto, source: int, target: int) -> None:
    if tensor.data_type == source:
        array = as_type(numpy_helper.to_array(tensor), source, target)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
