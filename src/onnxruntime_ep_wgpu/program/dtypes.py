"""Element types: the ONNX code, the numpy type, and the layout of a tensor in a storage buffer.

Storage has ONNX Runtime's memory layout (a bool is a byte, an int64 is eight bytes), so that callers' buffers are bound without
conversion. The *compute* type is the type in which a kernel calculates. `emit/storage.py` reads and writes elements narrower
than a word.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

_MOST_ELEMENTS = 1 << 60
"""The largest element count of a tensor: its numbers of bytes and of bits then fit into 64 bits."""


class DType(enum.Enum):
    """An ONNX tensor element type: (ONNX code, numpy name, bits per element, compute type or None)."""

    FLOAT32 = (1, "float32", 32, "f32")
    UINT8 = (2, "uint8", 8, "u32")
    INT8 = (3, "int8", 8, "i32")
    UINT16 = (4, "uint16", 16, "u32")
    INT16 = (5, "int16", 16, "i32")
    INT32 = (6, "int32", 32, "i32")
    INT64 = (7, "int64", 64, "i64")
    STRING = (8, "object", 0, None)
    BOOL = (9, "bool", 8, "bool")
    FLOAT16 = (10, "float16", 16, "f32")
    FLOAT64 = (11, "float64", 64, "f64")
    UINT32 = (12, "uint32", 32, "u32")
    UINT64 = (13, "uint64", 64, "u64")
    BFLOAT16 = (16, "bfloat16", 16, "f32")
    FLOAT8E4M3FN = (17, "float8_e4m3fn", 8, "f32")
    FLOAT8E4M3FNUZ = (18, "float8_e4m3fnuz", 8, "f32")
    FLOAT8E5M2 = (19, "float8_e5m2", 8, "f32")
    FLOAT8E5M2FNUZ = (20, "float8_e5m2fnuz", 8, "f32")
    UINT4 = (21, "uint4", 4, "u32")
    INT4 = (22, "int4", 4, "i32")
    FLOAT4E2M1 = (23, "float4_e2m1fn", 4, "f32")
    UINT2 = (25, "uint2", 2, "u32")
    INT2 = (26, "int2", 2, "i32")

    def __init__(self, code: int, numpy_name: str, bits: int, compute: str | None) -> None:
        """`code`: the number in `onnx.TensorProto.DataType`. `bits`: 0 for strings. `compute`: `f32`, `i32`, `u32`, `i64`,
        `u64`, `f64` or `bool`; None if no kernel can calculate with the type."""
        self.code, self.bits, self.compute = code, bits, compute
        self._numpy_name = numpy_name

    __hash__ = object.__hash__  # by identity, because members are unique; a hash of the name is four times slower

    def nbytes(self, count: int) -> int:
        """Bytes of a tensor of `count` elements. Elements of 2 and 4 bits share bytes, the first in the low bits."""
        return -(-count * self.bits // 8)

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy type; from the package ml_dtypes if numpy has none."""
        return numpy_type(self._numpy_name)

    @property
    def label(self) -> str:
        """The lower-case name for messages and tables, such as `float32`."""
        return self.name.lower()

    @property
    def is_float(self) -> bool:
        return self.compute in ("f32", "f64")

    @property
    def is_half(self) -> bool:
        """Whether this is a float of 16 bits. Such types are only for storage; kernels calculate in f32."""
        return self in (DType.FLOAT16, DType.BFLOAT16)

    @property
    def limits(self) -> tuple[int, int]:
        """The least and largest number of an integer type, or of bool."""
        if self is DType.BOOL:
            return 0, 1
        signed = self.compute in ("i32", "i64")
        return (-(1 << self.bits - 1), (1 << self.bits - 1) - 1) if signed else (0, (1 << self.bits) - 1)

    @property
    def accumulated(self) -> DType:
        """The type for sums of elements: whole words, exact for integers."""
        return DType.FLOAT32 if self.is_half else self

    @property
    def largest(self) -> float:
        """The largest finite number of a float type."""
        return _LARGEST[self]

    @property
    def is_integer(self) -> bool:
        return self.compute in ("i32", "u32", "i64", "u64")

    @staticmethod
    def of(code: int) -> DType:
        """Returns the type of an ONNX code. Raises KeyError for types without a tensor layout here."""
        return _BY_CODE[code]

    @staticmethod
    def of_numpy(dtype: Any) -> DType:
        return _BY_NUMPY[np.dtype(dtype).name]


def element_count(dims: Sequence[int]) -> int:
    """Returns the product of the extents of a tensor from an untrusted source.

    Raises ValueError for an extent below 0, and for a product beyond any memory. It takes no longer than reading the extents.
    """
    if min(dims, default=0) < 0:
        raise ValueError(f"the extent {min(dims)}")
    if 0 in dims:
        return 0
    count = 1
    for extent in dims:
        count *= extent
        if count > _MOST_ELEMENTS:
            raise ValueError(f"more than {_MOST_ELEMENTS} elements")
    return count


def numpy_type(name: str) -> np.dtype[Any]:
    """Returns the numpy type with a name such as `bfloat16`, which the package ml_dtypes adds to numpy."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype


def packed(array: Any) -> Any:
    """Returns the memory of an array as ONNX Runtime has it: a uint8 vector in which elements of 2 and 4 bits share bytes."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    bits = DType.of_numpy(array.dtype).bits
    if bits >= 8:
        return data
    together = 8 // bits
    parts = np.append(data & (1 << bits) - 1, np.zeros(-data.size % together, np.uint8)).reshape(-1, together)
    return np.bitwise_or.reduce(parts << _shifts(bits), axis=1)


def unpacked(data: Any, dtype: DType, shape: tuple[int, ...]) -> Any:
    """Returns the array with the uint8 vector `data` as its memory."""
    if dtype.bits >= 8:
        return data.view(dtype.numpy).reshape(shape)
    parts = data[:, None] >> _shifts(dtype.bits) & (1 << dtype.bits) - 1
    return parts.reshape(-1)[: np.prod(shape, dtype=np.int64)].view(dtype.numpy).reshape(shape)


def _shifts(bits: int) -> Any:
    """The bit offsets of the elements of a byte."""
    return np.arange(0, 8, bits, dtype=np.uint8)


_LARGEST = {
    DType.FLOAT64: 1.7976931348623157e308,
    DType.FLOAT32: 3.4028234663852886e38,
    DType.BFLOAT16: 3.3895313892515355e38,
    DType.FLOAT16: 65504.0,
}
_BY_CODE = {t.code: t for t in DType}
_BY_NUMPY = {t.value[1]: t for t in DType}
