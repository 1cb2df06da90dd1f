"""Dead code: nodes of a lowered graph on which no element of an output depends."""

from __future__ import annotations

from dataclasses import replace

from ..ir import Call, LoweredGraph, Node, Tensor


def remove_dead(graph: LoweredGraph) -> LoweredGraph:
    """The graph with only the nodes its outputs need; says anew in `users` of every tensor who reads it."""
    needed = {*graph.outputs, *(it.values for it in graph.assertions)}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(tensor for tensor in node.outputs if 0 not in tensor.shape):
            kept.append(node)
            needed.update(_used(node))
    kept.reverse()
    for tensor in {t: None for node in graph.nodes for t in (*_used(node), *node.outputs)}:
        tensor.users = []
    for node in kept:
        for tensor in dict.fromkeys(_used(node)):
            tensor.users.append(node)
    return replace(graph, nodes=kept)


def _used(node: Node) -> list[Tensor]:
    """What a node reads, and what it stores onto."""
    return [*(view.tensor for view in node.reads), *(node.onto.values() if isinstance(node, Call) else ())]
