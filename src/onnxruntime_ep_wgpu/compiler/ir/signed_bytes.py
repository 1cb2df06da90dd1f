"""Integers of 32 bits that are signed bytes in memory, but for their first bit where that is unsigned.

In: a tensor that maps make of bytes. Out: what reads these. Invariant: what multiplies bytes sees the very numbers of the maps;
zero points that would take nine bits are no part of them (`lower/ops/byte_products.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from ...program.dtypes import DType
from .graph import Call, Map
from .view import Node, Read, Tensor, View

EXPRESSIONS = {DType.INT8: "i32(x)", DType.UINT8: "i32(x) - 128"}
"""The map of each type of bytes to numbers from -128 to 127."""
SIGNED = "SIGNED"
"""The constant of a map that is made so that units multiply the bytes."""
PADDING = "PADDING"
"""The constant of a map of windows that says what pads them."""


def bytes_of(tensor: Tensor) -> View | None:
    """The bytes that an inline map makes these numbers of; None where it does something else."""
    node = tensor.producer
    if not (isinstance(node, Map) and node.inline and SIGNED in node.constants):
        return None
    (view,) = node.reads
    return view if view.is_whole else None


def windows_of(tensor: Tensor) -> Map | None:
    """The map that makes these numbers windows of an image of signed bytes; None where something else does."""
    node = tensor.producer
    if isinstance(node, Map) and node.inline and PADDING in node.constants and tensor.dtype is DType.INT32:
        return node if all(bytes_of(view.tensor) is not None for view in node.reads) else None
    return None


def are_bytes(tensor: Tensor) -> bool:
    """Whether matrix units for signed bytes can multiply these numbers."""
    return bytes_of(tensor) is not None or windows_of(tensor) is not None


def sources(read: Read) -> Iterator[tuple[Tensor, bool]]:
    """The bytes that an operand of a product is made of, and whether sixteen neighbours of it are sixteen of them in memory."""
    if (view := bytes_of(read.view.tensor)) is not None:
        yield view.tensor, read.loads_together(16)
    elif (windows := windows_of(read.view.tensor)) is not None:
        together = windows.neighbours and read.loads_together(16)
        for theirs in windows.operands.values():
            yield from ((tensor, together and each) for tensor, each in sources(theirs))


def are_multiplied(tensor: Tensor) -> bool:
    """Whether matrix units multiply the bytes that a map makes these numbers of, and nothing else reads these."""
    if bytes_of(tensor) is None or len(tensor.users) != 1:
        return False
    (reader,) = tensor.users
    if windows_of(reader.outputs[0]) is not None and len(reader.outputs[0].users) == 1:
        (reader,) = reader.outputs[0].users
    return _has_units(reader)


def _has_units(node: Node) -> bool:
    return isinstance(node, Call) and any(it.by_matrices for it in node.variants)
