"""Reads fields of protobuf messages in place, without a copy. An ONNX file of gigabytes is scanned in milliseconds.

In: bytes or a mapped file, and the range of a message. Out: its fields as ranges, its numbers. Raises ValueError or IndexError
for bytes that are not a protobuf message.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
Data = bytes | mmap.mmap
Seen = TypeVar("Seen")


def read_model(model: str | bytes | None, look: Callable[[Data], Seen]) -> Seen | None:
    """Returns the result of `look` for a model, given by path or as bytes; None if it is not a file or not a protobuf message."""
    try:
        if isinstance(model, bytes):
            return look(model)
        if model is None or not os.path.isfile(model):  # opening a pipe would block
            return None
        with open(model, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return look(data)
    except (OSError, ValueError, IndexError, RecursionError):
        return None


def last_number(data: Data, start: int, end: int, field: int) -> int:
    """Returns the number in a field of a protobuf message, the last one of several; 0 if the field is absent."""
    found = 0
    for number, at, _ in fields(data, start, end, VARINT):
        if number == field:
            found = varint(data, at)[0]
    return found


def fields(data: Data, at: int, end: int, wanted: int = BYTES) -> Iterator[tuple[int, int, int]]:
    """Yields (field number, start, end) of every length-delimited field of a message, or of the fields of the wire type `wanted`.

    Raises ValueError or IndexError if the bytes are not a protobuf message.
    """
    while at < end:
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == BYTES:
            length, at = varint(data, at)
            if at + length > end:
                raise ValueError("a field ends outside its message")
            start, at = at, at + length
        elif kind == VARINT:
            start = at
            _, at = varint(data, at)
        elif kind in (FIXED64, FIXED32):
            start, at = at, at + (8 if kind == FIXED64 else 4)
        else:
            raise ValueError(f"protobuf has no wire type {kind}")
        if kind == wanted:
            yield tag >> 3, start, at


def varint(data: Data, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
