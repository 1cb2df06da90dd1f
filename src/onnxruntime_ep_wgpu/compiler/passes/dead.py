"""Dead code: nodes of a lowered graph that no element of an output depends on."""

from __future__ import annotations

from dataclasses import replace

from ..ir import Call, LoweredGraph, Node, Tensor


def remove_dead(graph: LoweredGraph) -> LoweredGraph:
    """Returns the graph with only the nodes that its outputs need. Recomputes `users` of every tensor: the nodes that read it."""
    needed = {*graph.outputs, *(it.values for it in graph.assertions)}
    kept: list[tuple[Node, list[Tensor]]] = []
    later: set[Node] = set()
    for node in reversed(graph.nodes):
        read, made = used(node), node.outputs
        for tensor in (*read, *made):
            tensor.users = []
        if not needed.isdisjoint(tensor for tensor in made if 0 not in tensor.shape):
            kept.append((node, read))
            needed.update(read)
            assert later.isdisjoint(tensor.producer for tensor in read), f"{node} reads the result of a later node"
        later.add(node)
    kept.reverse()
    for node, read in kept:
        for tensor in dict.fromkeys(read):
            tensor.users.append(node)
    return replace(graph, nodes=[node for node, _ in kept])


def used(node: Node) -> list[Tensor]:
    """Returns the tensors that a node reads, and those it stores onto."""
    return [*(view.tensor for view in node.reads), *(node.onto.values() if isinstance(node, Call) else ())]
