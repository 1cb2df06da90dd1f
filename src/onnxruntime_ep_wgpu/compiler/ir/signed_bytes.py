"""Integers of 32 bits that are signed bytes in memory, but for their first bit where that is unsigned.

In: a tensor that a map makes of bytes. Out: the view of these. Invariant: what multiplies bytes sees the very numbers of the map;
zero points that would take nine bits are no part of it (`lower/ops/byte_products.py`).
"""

from __future__ import annotations

from ...program.dtypes import DType
from .graph import Map
from .view import Tensor, View

EXPRESSIONS = {DType.INT8: "i32(x)", DType.UINT8: "i32(x) - 128"}
"""The map of each type of bytes to numbers from -128 to 127."""


def bytes_of(tensor: Tensor) -> View | None:
    """The bytes that an inline map makes these numbers of; None where it does something else."""
    node = tensor.producer
    if not (isinstance(node, Map) and node.inline and node.is_pointwise and tensor.dtype is DType.INT32):
        return None
    views = node.reads
    if len(views) == 1 and views[0].is_whole and node.expression == EXPRESSIONS.get(views[0].dtype):
        return views[0]
    return None
