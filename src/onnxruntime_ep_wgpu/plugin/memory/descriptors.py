"""What ONNX Runtime says of a tensor: the number of its element type, its shape, where it is, and how many bytes that makes."""

from __future__ import annotations

import math
from typing import Any

from ..._ort import ffi, lib
from ...errors import DeviceError
from ...program.dtypes import DType
from ..abi import Ort

# Bits per element by ONNX type code; strings have none and stay on the host.
BITS = {2: 8, 3: 8, 9: 8, 4: 16, 5: 16, 10: 16, 16: 16, 1: 32, 6: 32, 12: 32, 7: 64, 11: 64, 13: 64, 14: 64, 15: 128}
BITS |= dict.fromkeys((17, 18, 19, 20, 26), 8) | dict.fromkeys((21, 22, 23), 4) | dict.fromkeys((24, 25), 2)
COMPLEX = frozenset((14, 15))
"""Types that no kernel reads."""

# ONNX Runtime numbers element types like ONNX, except the newest three.
ONNX_CODES = {24: 25, 25: 26, 26: 24}
ONNX_BITS = {ONNX_CODES.get(code, code): bits for code, bits in BITS.items()}
"""The same by ONNX's own numbers."""
_DTYPES = {next((ort for ort, onnx in ONNX_CODES.items() if onnx == it.code), it.code): it for it in DType}


def element_type(type_code: int) -> DType:
    """The type of ONNX Runtime's number; raises KeyError for types without a tensor layout here."""
    return _DTYPES[type_code]


def tensor_bytes(type_code: int, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor in ONNX Runtime's layout."""
    if type_code not in BITS:
        raise DeviceError(f"tensors of ONNX type {type_code} cannot lie on a device")
    return -(-math.prod(shape) * BITS[type_code] // 8)


def tensor_of(ort: Ort, value: Any) -> tuple[Any, int]:
    """(data pointer, bytes) of a tensor value."""
    tensor = ffi.new("Given *")
    ort.check_status(lib.read_tensor(ort.api, value, tensor))
    return tensor.data, tensor_bytes(tensor.type, shape_of(tensor))


def shape_of(tensor: Any) -> tuple[int, ...]:
    """The shape of a Given."""
    return tuple(ffi.unpack(tensor.dims, tensor.rank)) if tensor.rank else ()
