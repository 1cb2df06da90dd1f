"""Whether a model multiplies weights of f16 as they are, asked before ONNX Runtime shows a graph.

In: an ONNX file or its bytes. Out: a bool; False where the file cannot be read. The file is looked through where it lies.
"""

from __future__ import annotations

import mmap
import os

from .protobuf import VARINT, Data, fields, last_number, varint

# Field numbers of onnx.proto, and the number of the type.
_GRAPH, _NODE, _INITIALIZER, _OP_TYPE, _DIMS, _DATA_TYPE, _FLOAT16 = 7, 1, 5, 4, 1, 2, 10
_PACKED = (b"MatMulNBits", b"QMoE", b"GatherBlockQuantized")
"""Operators whose weights have a few bits each: what decodes with them is bound by reading, not by products."""


def multiplies_halves(model: str | bytes | None) -> bool:
    """Whether a model has a matrix of f16 among its weights, and none of a few bits."""
    if model is None:
        return False
    try:
        if isinstance(model, bytes):
            return _looked_through(model)
        if not os.path.isfile(model):  # a pipe would be waited for
            return False
        with open(model, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _looked_through(data)
    except (OSError, ValueError, IndexError):
        return False


def _looked_through(data: Data) -> bool:
    found = False
    for number, start, end in fields(data, 0, len(data)):
        if number != _GRAPH:
            continue
        for inner, at, until in fields(data, start, end):
            if inner == _INITIALIZER:
                found = found or _is_matrix_of_halves(data, at, until)
            elif inner == _NODE and any(
                data[a:b] in _PACKED for field, a, b in fields(data, at, until) if field == _OP_TYPE
            ):
                return False
    return found


def _is_matrix_of_halves(data: Data, start: int, end: int) -> bool:
    return last_number(data, start, end, _DATA_TYPE) == _FLOAT16 and _rank(data, start, end) >= 2


def _rank(data: Data, start: int, end: int) -> int:
    """The number of dims, which are a field each, or packed into one."""
    rank = sum(1 for number, _, _ in fields(data, start, end, VARINT) if number == _DIMS)
    for number, at, until in fields(data, start, end):
        if number == _DIMS:
            while at < until:
                _, at = varint(data, at)
                rank += 1
    return rank
