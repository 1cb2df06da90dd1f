"""Element types: the ONNX code, the numpy type and how a tensor of it lies in a storage buffer.

Storage follows ONNX Runtime's memory layout exactly (a bool is a byte, an int64 is eight bytes), so that
caller-owned buffers are bound without conversion. The *compute* type is what a kernel calculates with.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np


class DType(enum.Enum):
    """An ONNX tensor element type: (ONNX code, numpy name, bytes per element, compute type or None)."""

    FLOAT32 = (1, "float32", 4, "f32")
    UINT8 = (2, "uint8", 1, "u32")
    INT8 = (3, "int8", 1, "i32")
    UINT16 = (4, "uint16", 2, "u32")
    INT16 = (5, "int16", 2, "i32")
    INT32 = (6, "int32", 4, "i32")
    INT64 = (7, "int64", 8, "i64")
    STRING = (8, "object", 0, None)
    BOOL = (9, "bool", 1, "bool")
    FLOAT16 = (10, "float16", 2, "f32")
    FLOAT64 = (11, "float64", 8, None)
    UINT32 = (12, "uint32", 4, "u32")
    UINT64 = (13, "uint64", 8, "u64")

    @property
    def code(self) -> int:
        """The number in `onnx.TensorProto.DataType` and in ORT's `ONNXTensorElementDataType`."""
        return int(self.value[0])

    @property
    def itemsize(self) -> int:
        """Bytes per element; 0 for strings."""
        return int(self.value[2])

    @property
    def compute(self) -> str | None:
        """`f32`, `i32`, `u32`, `i64`, `u64` or `bool`; None when no kernel can calculate with it."""
        kind: str | None = self.value[3]
        return kind

    @property
    def numpy(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(self.value[1])
        return dtype

    @property
    def label(self) -> str:
        """Lower-case name for messages and tables, `float32`."""
        return self.name.lower()

    @property
    def is_float(self) -> bool:
        return self in (DType.FLOAT32, DType.FLOAT16, DType.FLOAT64)

    @property
    def is_integer(self) -> bool:
        return self.compute in ("i32", "u32", "i64", "u64")

    @staticmethod
    def of(code: int) -> DType:
        """The type of an ONNX code; raises KeyError for types without a tensor layout here."""
        return _BY_CODE[code]

    @staticmethod
    def of_numpy(dtype: Any) -> DType:
        return _BY_NUMPY[np.dtype(dtype).name]


_BY_CODE = {t.code: t for t in DType}
_BY_NUMPY = {t.value[1]: t for t in DType}
