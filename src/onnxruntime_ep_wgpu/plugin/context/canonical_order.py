"""Sorts the nodes of a body by the names of their outputs.

In: a graph from ONNX Runtime. Out: the same graph, and data of its nodes, in this order; and back to the graph's own order. The
order of nodes in a body changes when ONNX Runtime writes it and reads it again, so nodes without a name get other numbers.
Invariant: graphs that differ only in this have equal keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ..assign.decision import Claim
from ..assign.shown import ShownGraph, ShownNode

_Item = TypeVar("_Item")


class CanonicalOrder:
    """The order of one graph. `with_outputs`: sorts its outputs too, because their order has no meaning."""

    def __init__(self, graph: ShownGraph, with_outputs: bool = False) -> None:
        self._places = sorted(range(len(graph)), key=lambda place: [it.name for it in graph.nodes[place].outputs])
        self.graph = replace(
            graph,
            nodes=[_unnumbered(it) for it in self.of(graph.nodes)],
            inputs=sorted(graph.inputs, key=lambda it: it.name),
            outputs=sorted(graph.outputs, key=lambda it: it.name) if with_outputs else graph.outputs,
        )

    def of(self, items: Sequence[_Item]) -> list[_Item]:
        """Sorts items, one per node, into this order."""
        return [items[place] for place in self._places]

    def at(self, items: Mapping[int, _Item]) -> dict[int, _Item]:
        """Converts items by position in the graph to items by position in this order."""
        return {k: items[place] for k, place in enumerate(self._places) if place in items}

    def claim(self, claim: Claim) -> Claim:
        """Converts a claim of the graph to this order."""
        return Claim(tuple(self.of(claim.outcomes)))

    def restore(self, claim: Claim) -> Claim:
        """Converts a claim in this order to the order of the graph."""
        outcomes = dict(zip(self._places, claim.outcomes, strict=True))
        return Claim(tuple(outcomes[place] for place in range(len(outcomes))))


def _unnumbered(node: ShownNode) -> ShownNode:
    made_up = re.fullmatch(rf"{re.escape(node.op_type)}_\d+", node.name)
    return replace(node, name="") if made_up else node
