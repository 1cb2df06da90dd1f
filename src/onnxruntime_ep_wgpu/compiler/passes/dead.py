"""Dead code: nodes of a lowered graph on which no element of an output depends."""

from __future__ import annotations

from dataclasses import replace

from ..ir import Call, LoweredGraph, Node, Tensor


def remove_dead(graph: LoweredGraph) -> LoweredGraph:
    """The graph with only the nodes its outputs need; says anew in `users` of every tensor who reads it."""
    needed = {*graph.outputs, *(it.values for it in graph.assertions)}
    kept: list[tuple[Node, list[Tensor]]] = []
    for node in reversed(graph.nodes):
        used, made = _used(node), node.outputs
        for tensor in (*used, *made):
            tensor.users = []
        if not needed.isdisjoint(tensor for tensor in made if 0 not in tensor.shape):
            kept.append((node, used))
            needed.update(used)
    kept.reverse()
    for node, used in kept:
        for tensor in dict.fromkeys(used):
            tensor.users.append(node)
    return replace(graph, nodes=[node for node, _ in kept])


def _used(node: Node) -> list[Tensor]:
    """What a node reads, and what it stores onto."""
    return [*(view.tensor for view in node.reads), *(node.onto.values() if isinstance(node, Call) else ())]
