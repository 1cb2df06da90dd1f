"""The order of nodes: each one behind those that make what it reads.

In: nodes of a lowered graph, each with tensors that know what makes them. Out: the same nodes in an order in which they can run, as
near to theirs as that allows; or a circle of them, which no order can run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..ir import Node
from .dead import used


def in_order(nodes: Sequence[Node]) -> tuple[list[Node], Collection[Node]]:
    """The nodes, of which those that others need sooner have moved before these; and those of a circle, if there is one."""
    all_of_them, placed = set(nodes), dict[Node, None]()
    for node in nodes:
        path = {node: _missing(node, all_of_them, placed)} if node not in placed else {}
        while path:
            last, missing = next(reversed(path.items()))
            needed = missing.pop() if missing else None
            if needed is None:
                del path[last]
                placed[last] = None
            elif needed in path:
                return list(placed), [*path][[*path].index(needed) :]
            elif needed not in placed:
                path[needed] = _missing(needed, all_of_them, placed)
    return list(placed), ()


def _missing(node: Node, among: Collection[Node], placed: Collection[Node]) -> list[Node]:
    """What makes what a node reads, and has no place yet; the first one at the end."""
    made_by = dict.fromkeys(tensor.producer for tensor in used(node))
    return [it for it in reversed(made_by) if it is not None and it in among and it not in placed]
