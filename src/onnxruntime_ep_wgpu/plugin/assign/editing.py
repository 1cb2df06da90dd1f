"""Changes a `ShownGraph` before it is compiled: adds constants and nodes, replaces the inputs of nodes.

In: a graph that no other code uses. Out: the same graph, changed. Invariant: equal graphs stay equal after equal changes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...program.dtypes import DType
from .shown import Constant, ShownAttribute, ShownGraph, ShownNode, ShownValue


def constant(graph: ShownGraph, name: str, array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> ShownValue:
    """Returns the constant of a graph with this name; adds it first if there is none."""
    known = graph.initializers.get(name)
    if known is not None:
        return known
    dtype, raw = DType.of_numpy(array.dtype), np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    value = ShownValue(name, dtype.code, array.shape)
    value.constant = Constant(dtype.code, dtype.bits, array.shape, raw)
    graph.initializers[name] = value
    return value


def node_of(
    graph: ShownGraph,
    op: str,
    inputs: Sequence[ShownValue | None],
    output: ShownValue,
    attributes: Sequence[ShownAttribute] = (),
    name: str = "",
) -> ShownNode:
    """Returns a node of an ONNX operator that is in no graph yet. Its default name is that of its output."""
    made = ShownNode("", op, graph.opset_imports.get("", 1), name or output.name, [*inputs], [output], [*attributes])
    output.maker = made
    return made


def replace_reads(graph: ShownGraph, value: ShownValue, instead: ShownValue) -> None:
    """Replaces a value by another one in the inputs of all nodes."""
    for node in graph:
        node.inputs = [instead if it is value else it for it in node.inputs]
        node.implicit_inputs = [instead if it is value else it for it in node.implicit_inputs]


def read_in(graph: ShownGraph) -> set[int]:
    """Returns the ids of all values that nodes read."""
    return {id(it) for node in graph for it in (*node.inputs, *node.implicit_inputs) if it is not None}


def drop_unread_inputs(graph: ShownGraph) -> None:
    """Removes inputs that no node reads."""
    read = read_in(graph)
    graph.inputs[:] = [it for it in graph.inputs if id(it) in read]


def drop_unread_constants(graph: ShownGraph) -> None:
    """Removes constants that no node reads."""
    read = read_in(graph)
    graph.initializers = {name: it for name, it in graph.initializers.items() if id(it) in read}
