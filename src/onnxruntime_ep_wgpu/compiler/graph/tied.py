"""The ties of an onnx_ir graph (`program/ties.py`), computed once for a graph and the groups cut out of it.

In: an ONNX graph. Out: which of its constants are read through another one. Ties are part of the key of a compiled group, so the
search for ties does not record a fact about every constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import onnx_ir as ir

from ...program.ties import PRODUCTS, SMALLEST, Array, Candidate, Ties, equal, ties_among
from .facts import read_unrecorded

_KEY = "tied constants"


def ties_of(graph: ir.Graph) -> Ties:
    """Returns the ties in a graph; computed once."""
    if _KEY not in graph.meta:
        graph.meta[_KEY] = ties_among(_candidates(graph))
    return graph.meta[_KEY]  # type: ignore[no-any-return]


def pass_ties(ties: Ties, graph: ir.Graph) -> None:
    """Passes the ties on to a graph with the same constants or a subset of them."""
    constants = graph.initializers
    graph.meta[_KEY] = {name: tie for name, tie in ties.items() if name in constants and tie.of in constants}


def places_of(ties: Ties, graph: ir.Graph) -> dict[str, int]:
    """Returns the memory addresses of the constants in ties."""
    names = {*ties, *(tie.of for tie in ties.values())}
    found = {name: graph.initializers[name].const_value for name in names}
    return {name: _elements(it).ctypes.data for name, it in found.items() if it is not None}


def ties_hold(ties: Ties, graph: ir.Graph, places: Mapping[str, int]) -> bool:
    """Returns whether these ties hold in a graph that has all of their constants. Equal `places` imply this."""
    if places == places_of(ties, graph):
        return True
    for name, tie in ties.items():
        constant, other = graph.initializers[name].const_value, graph.initializers[tie.of].const_value
        if constant is None or other is None:
            return False
        array, whole = _elements(constant), _elements(other).transpose(tie.permutation)
        if array.dtype != whole.dtype or array.shape != whole.shape or not equal(whole, array):
            return False
    return True


def _candidates(graph: ir.Graph) -> Iterator[Candidate]:
    for value in graph.initializers.values():
        tensor = value.const_value
        if (
            tensor is None
            or tensor.nbytes < SMALLEST
            or tensor.dtype == ir.DataType.STRING
            or tensor.dtype.bitwidth not in (8, 16, 32, 64)
        ):
            continue
        multiplied = all(node.op_type in PRODUCTS for node, _ in value.uses())
        shape = tuple(map(int, tensor.shape.numpy()))
        yield Candidate(value.name or "", int(tensor.dtype), shape, multiplied, partial(_elements, tensor))


def _elements(tensor: ir.TensorProtocol) -> Array:
    array = np.asarray(read_unrecorded(tensor))
    return array.view(f"u{array.dtype.itemsize}")
