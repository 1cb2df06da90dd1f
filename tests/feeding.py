"""Feeding a session arrays of every element type, those that numpy lacks by their bytes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

STRANGE = ("bfloat16", "float8", "float4", "int4", "int2")


class NoPythonTypeError(Exception):
    """A value whose element type has no numpy array in onnxruntime's binding."""


def native(element: int) -> bool:
    """Whether numpy has the element type of this ONNX code by itself, without ml_dtypes."""
    return element <= 13


def ort_value(array: np.ndarray, element: int) -> ort.OrtValue:
    """A tensor of a type that numpy lacks, written byte by byte as onnx lays it out."""
    value = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), element)
    data = numpy_helper.from_array(array).raw_data
    ctypes.memmove(value.data_ptr(), data, len(data))
    return value


def run(session: ort.InferenceSession, feeds: Mapping[str, Any]) -> list[Any]:
    """All outputs; feeds are arrays, or OrtValues for types that numpy lacks. Raises NoPythonTypeError."""
    names = [o.name for o in session.get_outputs()]
    strange = [o.type for o in session.get_outputs() if any(t in o.type for t in STRANGE)]
    if not strange and not any(isinstance(v, ort.OrtValue) for v in feeds.values()):
        result: list[Any] = session.run(names, dict(feeds))
        return result
    if any(isinstance(v, list) or v is None for v in feeds.values()):
        raise NoPythonTypeError("sequence of a type that numpy lacks")
    values = {k: v if isinstance(v, ort.OrtValue) else ort.OrtValue.ortvalue_from_numpy(v) for k, v in feeds.items()}
    results = session.run_with_ort_values(names, values)
    try:
        return [array(r) for r in results]
    except (RuntimeError, TypeError, ValueError) as error:
        raise NoPythonTypeError(str(error)) from error


def array(value: Any) -> np.ndarray:
    """The elements of an OrtValue."""
    if native(value.element_type()):
        plain: np.ndarray = value.numpy()
        return plain
    tensor = onnx.TensorProto(data_type=value.element_type(), dims=value.shape())
    empty = np.empty(value.shape(), onnx.helper.tensor_dtype_to_np_dtype(value.element_type()))
    tensor.raw_data = ctypes.string_at(value.data_ptr(), len(numpy_helper.from_array(empty).raw_data))
    return numpy_helper.to_array(tensor)
