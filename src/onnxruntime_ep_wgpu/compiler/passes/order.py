"""Orders nodes topologically: each one after the producers of its operands.

In: nodes of a lowered graph; their tensors have producers. Out: the same nodes in a valid order that stays close to the given
one, or a cycle, for which no order exists.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..ir import Node
from .dead import used


def in_order(nodes: Sequence[Node]) -> tuple[list[Node], Collection[Node]]:
    """Returns the nodes in order, and the nodes of a cycle if there is one. A node moves only before a node that needs it."""
    node_set, placed = set(nodes), dict[Node, None]()
    for node in nodes:
        path = {node: _unplaced_producers(node, node_set, placed)} if node not in placed else {}
        while path:
            last, missing = next(reversed(path.items()))
            needed = missing.pop() if missing else None
            if needed is None:
                del path[last]
                placed[last] = None
            elif needed in path:
                return list(placed), [*path][[*path].index(needed) :]
            elif needed not in placed:
                path[needed] = _unplaced_producers(needed, node_set, placed)
    return list(placed), ()


def _unplaced_producers(node: Node, among: Collection[Node], placed: Collection[Node]) -> list[Node]:
    """Returns the producers of a node's operands that have no position yet, the first one last."""
    producers = dict.fromkeys(tensor.producer for tensor in used(node))
    return [it for it in reversed(producers) if it is not None and it in among and it not in placed]
