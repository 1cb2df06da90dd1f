"""ONNX Runtime's description of a tensor: its element type, shape, address and size in bytes."""

from __future__ import annotations

import math
from typing import Any

from ..._ort import ffi, lib
from ...errors import DeviceError
from ...program.dtypes import DType
from ..abi import Ort

# Bits per element by ONNX Runtime's type number. Strings have none and stay on the host.
BITS = {2: 8, 3: 8, 9: 8, 4: 16, 5: 16, 10: 16, 16: 16, 1: 32, 6: 32, 12: 32, 7: 64, 11: 64, 13: 64, 14: 64, 15: 128}
BITS |= dict.fromkeys((17, 18, 19, 20, 26), 8) | dict.fromkeys((21, 22, 23), 4) | dict.fromkeys((24, 25), 2)
COMPLEX = frozenset((14, 15))
"""Types that no kernel reads."""

# ONNX Runtime uses the numbers of ONNX for element types, except for the newest three.
ONNX_CODES = {24: 25, 25: 26, 26: 24}
ONNX_BITS = {ONNX_CODES.get(code, code): bits for code, bits in BITS.items()}
"""Bits per element by ONNX's number."""
_DTYPES = {next((ort for ort, onnx in ONNX_CODES.items() if onnx == it.code), it.code): it for it in DType}


def element_type(type_code: int) -> DType:
    """Returns the type with this number in ONNX Runtime. Raises KeyError for types without a tensor layout here."""
    return _DTYPES[type_code]


def tensor_bytes(type_code: int, shape: tuple[int, ...]) -> int:
    """Returns the size of a tensor in bytes, in ONNX Runtime's layout. Raises DeviceError for other types."""
    if type_code not in BITS:
        raise DeviceError(f"tensors of ONNX type {type_code} cannot be stored on a device")
    return -(-math.prod(shape) * BITS[type_code] // 8)


def tensor_of(ort: Ort, value: Any) -> tuple[Any, int]:
    """Returns the data pointer of a tensor value and its size in bytes."""
    tensor = ffi.new("Given *")
    ort.check_status(lib.read_tensor(ort.api, value, tensor))
    return tensor.data, tensor_bytes(tensor.type, shape_of(tensor))


def shape_of(tensor: Any) -> tuple[int, ...]:
    """Returns the shape of a `Given`, C code's description of a tensor."""
    return tuple(ffi.unpack(tensor.dims, tensor.rank)) if tensor.rank else ()
