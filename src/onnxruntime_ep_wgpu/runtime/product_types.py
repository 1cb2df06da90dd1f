"""The operand types of a model's products that matrix units may multiply. Used before ONNX Runtime shows a graph.

In: an ONNX file or its bytes. Out: names of types, none if the file cannot be read. The file is scanned in place.
"""

from __future__ import annotations

import re

from ..device.webgpu import libraries
from ..names import NAMES
from ..program.compiled_for import LIBRARY, compiled_for
from .protobuf import VARINT, Data, fields, last_number, read_model, varint

# Field numbers of onnx.proto, and the numbers of data types.
_GRAPH, _NODE, _INITIALIZER, _OP_TYPE, _DIMS, _DATA_TYPE = 7, 1, 5, 4, 1, 2
_TYPES = {10: "f16", 2: "i8", 3: "i8"}
_OF_BYTES = re.compile(rb"Integer|^QLinear(MatMul|Conv)$|^QGemm$|^DynamicQuantizeMatMul$|^QuantizeLinear$")
"""Operators that multiply bytes, or make bytes that others multiply. Not those that read dequantised bytes."""
_PACKED = (b"MatMulNBits", b"MatMulNBitsMlp", b"MatMulNBitsQkv", b"QMoE", b"GatherBlockQuantized")
"""Operators with weights of a few bits each. Their products are bound by memory reads, not by arithmetic."""
_METADATA, _KEY, _VALUE = 14, 1, 2
_MADE_FOR = {f"ep_compatibility_info.{name}".encode() for name in NAMES}
"""The metadata of a compiled model in which ONNX Runtime stores for what it was compiled (`program/compiled_for.py`)."""


def matrix_types(model: str | bytes | None) -> frozenset[str]:
    """Returns the operand types of a model's products: `f16` if a weight is a matrix of f16, `i8` if one is a matrix of bytes
    and an operator multiplies bytes.

    Returns neither for a model with weights of a few bits. Returns both for a compiled model, if its target is the library that
    such models use.
    """
    return read_model(model, _product_types) or frozenset()


def _product_types(data: Data) -> frozenset[str]:
    found, of_bytes, compiled = set[str](), False, False
    for number, start, end in fields(data, 0, len(data)):
        if number == _METADATA:
            compiled = compiled or _for_matrix_library(data, start, end)
        if number != _GRAPH:
            continue
        for inner, at, until in fields(data, start, end):
            if inner == _INITIALIZER:
                found |= _type_of_matrix(data, at, until)
            elif inner == _NODE:
                operators = [data[a:b] for field, a, b in fields(data, at, until) if field == _OP_TYPE]
                if any(it in _PACKED for it in operators):
                    return frozenset()
                of_bytes = of_bytes or any(_OF_BYTES.search(it) for it in operators)
    if compiled:
        return frozenset(_TYPES.values())
    return frozenset(found if of_bytes else found - {"i8"})


def _for_matrix_library(data: Data, start: int, end: int) -> bool:
    """Whether an entry of the metadata says that a session through the library with matrix units compiled the model."""
    texts = {field: data[a:b] for field, a, b in fields(data, start, end)}
    if texts.get(_KEY) not in _MADE_FOR:
        return False
    found: str = compiled_for(texts.get(_VALUE, b""))[LIBRARY]
    return found == libraries.MATRIX_LIBRARY


def _type_of_matrix(data: Data, start: int, end: int) -> set[str]:
    """Returns the type of a weight, if the weight has at least two axes and matrix units may multiply the type."""
    name = _TYPES.get(last_number(data, start, end, _DATA_TYPE) or 0)
    return {name} if name and _rank(data, start, end) >= 2 else set()


def _rank(data: Data, start: int, end: int) -> int:
    """The number of dims. They are one field each, or packed into one."""
    rank = sum(1 for number, _, _ in fields(data, start, end, VARINT) if number == _DIMS)
    for number, at, until in fields(data, start, end):
        if number == _DIMS:
            while at < until:
                _, at = varint(data, at)
                rank += 1
    return rank
