"""Quantised weights that have several readers, as an embedding has that is the last product too: each calculates for itself
what it reads of them, so that they are in memory as they are and never as real numbers.

In: the lowered graph, with `users`. Out: the same with a map of its own for every reader; run `remove_dead` afterwards.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import LoweredGraph, Map, Node, Read, Tensor
from ..ir.binding_ranges import is_way_to_read


def take_apart(graph: LoweredGraph) -> LoweredGraph:
    """The graph with a copy of each inline map of weights alone per reader."""
    taken: set[Tensor] = set()
    nodes: list[Node] = []
    for node in graph.nodes:
        for name, read in node.operands.items():
            tensor = read.view.tensor
            if len(tensor.users) < 2 or not _is_of_weights(tensor):
                continue
            if tensor in taken:
                nodes.append(_copy(tensor))
                node.operands[name] = _read(read, nodes[-1].outputs[0])
            taken.add(tensor)
        nodes.append(node)
    return replace(graph, nodes=nodes)


def _is_of_weights(tensor: Tensor) -> bool:
    node = tensor.producer
    return isinstance(node, Map) and is_way_to_read(node) and not tensor.is_stored


def _copy(tensor: Tensor) -> Map:
    node = tensor.producer
    assert isinstance(node, Map)
    output = replace(tensor, users=[])
    copied = replace(node, output=output, operands=dict(node.operands))
    output.producer = copied
    return copied


def _read(read: Read, tensor: Tensor) -> Read:
    return replace(read, view=replace(read.view, tensor=tensor))
