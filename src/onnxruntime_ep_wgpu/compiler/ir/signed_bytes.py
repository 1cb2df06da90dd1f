"""Integers of 32 bits that are signed bytes in memory. For unsigned bytes the top bit is inverted.

In: a tensor that maps compute from bytes. Out: the bytes, windows and readers of such a tensor. Invariant: a multiplication of
the bytes uses exactly the numbers of the maps. Zero points that would need nine bits are not part of them
(`lower/ops/byte_products.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from ...program.dtypes import DType
from .graph import Call, Map
from .view import Node, Read, Tensor, View

EXPRESSIONS = {DType.INT8: "i32(x)", DType.UINT8: "i32(x) - 128"}
"""The map of each byte type to numbers from -128 to 127."""
SIGNED = "SIGNED"
"""The constant that marks a map for multiplication of bytes by matrix units."""
PADDING = "PADDING"
"""The constant of a map of windows with the value of their padding."""


def bytes_of(tensor: Tensor) -> View | None:
    """Returns the bytes that an inline map converts to these numbers, or None."""
    node = tensor.producer
    if not (isinstance(node, Map) and node.inline and SIGNED in node.constants):
        return None
    (view,) = node.reads
    return view if view.is_whole else None


def windows_of(tensor: Tensor) -> Map | None:
    """Returns the map that arranges signed bytes of an image as windows with these numbers, or None."""
    node = tensor.producer
    if isinstance(node, Map) and node.inline and PADDING in node.constants and tensor.dtype is DType.INT32:
        return node if all(bytes_of(view.tensor) is not None for view in node.reads) else None
    return None


def are_bytes(tensor: Tensor) -> bool:
    """Returns whether matrix units for signed bytes can multiply these numbers."""
    return bytes_of(tensor) is not None or windows_of(tensor) is not None


def sources(read: Read) -> Iterator[tuple[Tensor, bool]]:
    """Yields the bytes that an operand of a product comes from, and whether sixteen neighbours of it are adjacent in memory."""
    if (view := bytes_of(read.view.tensor)) is not None:
        yield view.tensor, read.loads_together(16)
    elif (windows := windows_of(read.view.tensor)) is not None:
        contiguous = windows.neighbours and read.loads_together(16)
        for operand in windows.operands.values():
            yield from ((tensor, contiguous and each) for tensor, each in sources(operand))


def are_multiplied(tensor: Tensor) -> bool:
    """Returns whether matrix units multiply the bytes that hold these numbers, and the numbers have no other reader."""
    if bytes_of(tensor) is None or len(tensor.users) != 1:
        return False
    (reader,) = tensor.users
    if windows_of(reader.outputs[0]) is not None and len(reader.outputs[0].users) == 1:
        (reader,) = reader.outputs[0].users
    return _has_units(reader)


def _has_units(node: Node) -> bool:
    return isinstance(node, Call) and any(it.by_matrices for it in node.variants)
