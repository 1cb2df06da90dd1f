"""Gives each reader of quantised weights its own calculation of them, as for an embedding that is also the last product.

The weights then stay quantised in memory and are never stored as real numbers.

In: the lowered graph, with `users`. Out: the same graph with one map per reader. Run `remove_dead` afterwards.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import LoweredGraph, Map, Node, Read, Tensor
from ..ir.binding_ranges import only_decodes_weights


def duplicate_for_readers(graph: LoweredGraph) -> LoweredGraph:
    """Returns the graph with one copy per reader of each inline map that reads only weights."""
    seen: set[Tensor] = set()
    nodes: list[Node] = []
    for node in graph.nodes:
        for name, read in node.operands.items():
            tensor = read.view.tensor
            if len(tensor.users) < 2 or not _is_of_weights(tensor):
                continue
            if tensor in seen:
                nodes.append(_copy(tensor))
                node.operands[name] = _read(read, nodes[-1].outputs[0])
            seen.add(tensor)
        nodes.append(node)
    return replace(graph, nodes=nodes)


def _is_of_weights(tensor: Tensor) -> bool:
    node = tensor.producer
    return isinstance(node, Map) and only_decodes_weights(node) and not tensor.is_stored


def _copy(tensor: Tensor) -> Map:
    node = tensor.producer
    assert isinstance(node, Map)
    output = replace(tensor, users=[])
    copied = replace(node, output=output, operands=dict(node.operands))
    output.producer = copied
    return copied


def _read(read: Read, tensor: Tensor) -> Read:
    return replace(read, view=replace(read.view, tensor=tensor))
