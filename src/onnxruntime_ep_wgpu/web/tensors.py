"""Converts tensors between Python and JavaScript: numpy arrays, or `Tensor`s without numpy. Bytes are copied."""

from __future__ import annotations

import array
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import InputError

# For each type name of onnxruntime-common: the format of `struct`, and the JavaScript array type.
FORMATS = {
    "float32": ("f", "Float32Array"), "float64": ("d", "Float64Array"), "float16": ("e", "Uint16Array"), "int8": ("b", "Int8Array"),
    "uint8": ("B", "Uint8Array"), "int16": ("h", "Int16Array"), "uint16": ("H", "Uint16Array"), "int32": ("i", "Int32Array"),
    "uint32": ("I", "Uint32Array"), "int64": ("q", "BigInt64Array"), "uint64": ("Q", "BigUint64Array"), "bool": ("?", "Uint8Array"),
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """A tensor. `data` has the elements' bytes, row-major and little-endian. `type` is a key of FORMATS, `dims` the shape."""

    type: str
    dims: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, type: str, dims: Iterable[int], elements: Iterable[float]) -> Tensor:
        """Makes a tensor of row-major numbers. Raises InputError."""
        dims = tuple(dims)
        numbers = list(elements)
        if type not in FORMATS:
            raise InputError(f"there is no type {type!r}; there are {', '.join(FORMATS)}")
        if math.prod(dims) != len(numbers):
            raise InputError(f"{len(numbers)} elements do not fit a tensor of shape {list(dims)}")
        return cls(type, dims, struct.pack(f"<{len(numbers)}{FORMATS[type][0]}", *numbers))

    def elements(self) -> tuple[Any, ...]:
        """Returns all elements, row-major."""
        return struct.unpack(f"<{math.prod(self.dims)}{FORMATS[self.type][0]}", self.data)


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def as_tensor(name: str, value: Any) -> Tensor:
    """Returns an input as a Tensor. Raises InputError for an unsupported type."""
    if isinstance(value, Tensor):
        return value
    numpy = _numpy()
    if numpy is None:
        raise InputError(f"input {name!r} is {type(value).__name__}: without numpy, pass a Tensor")
    found = numpy.asarray(value, order="C")
    if found.dtype.name not in FORMATS:
        raise InputError(f"input {name!r} has the type {found.dtype}, which no tensor can have")
    return Tensor(found.dtype.name, found.shape, found.tobytes())


def as_array(tensor: Tensor) -> Any:
    """Returns a result as a numpy array, or unchanged without numpy."""
    numpy = _numpy()
    if numpy is None:
        return tensor
    return numpy.frombuffer(bytearray(tensor.data), tensor.type).reshape(tensor.dims)


def to_js(js: Any, library: Any, tensor: Tensor) -> Any:
    raw = js.Uint8Array.new(len(tensor.data))
    raw.assign(array.array("B", tensor.data))
    data = getattr(js, FORMATS[tensor.type][1]).new(raw.buffer)
    # Browsers with Float16Array require it for float16.
    if tensor.type == "float16" and getattr(js, "Float16Array", None):
        data = js.Float16Array.new(raw.buffer)
    return library.Tensor.new(tensor.type, data, js.Array.of(*tensor.dims))


def from_js(js: Any, tensor: Any) -> Tensor:
    data = tensor.data
    raw = js.Uint8Array.new(data.buffer, data.byteOffset, data.byteLength)
    return Tensor(str(tensor.type), tuple(int(it) for it in tensor.dims), raw.to_bytes())
