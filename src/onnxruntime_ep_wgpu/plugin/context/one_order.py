"""A body in an order that its values decide.

In: a graph as ONNX Runtime shows it. Out: the same, and what is known of its nodes, in that order and back. ONNX Runtime sorts the
nodes of a body that it has written in another way than before, and so nodes without a name get other numbers. Invariant: graphs
that differ in this alone have one key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ..assign.decision import Claim
from ..assign.shown import ShownGraph, ShownNode

_Item = TypeVar("_Item")


class OneOrder:
    """Of one graph. `with_outputs`: the order of its outputs says nothing."""

    def __init__(self, graph: ShownGraph, with_outputs: bool = False) -> None:
        self._places = sorted(range(len(graph)), key=lambda place: [it.name for it in graph.nodes[place].outputs])
        self.graph = replace(
            graph,
            nodes=[_unnumbered(it) for it in self.of(graph.nodes)],
            inputs=sorted(graph.inputs, key=lambda it: it.name),
            outputs=sorted(graph.outputs, key=lambda it: it.name) if with_outputs else graph.outputs,
        )

    def of(self, items: Sequence[_Item]) -> list[_Item]:
        """Items of the nodes, in this order."""
        return [items[place] for place in self._places]

    def at(self, items: Mapping[int, _Item]) -> dict[int, _Item]:
        """Items by places, by the places in this order."""
        return {k: items[place] for k, place in enumerate(self._places) if place in items}

    def claim(self, claim: Claim) -> Claim:
        """A claim of the graph, in this order."""
        return Claim(tuple(self.of(claim.outcomes)))

    def back(self, claim: Claim) -> Claim:
        """A claim in this order, in that of the graph."""
        outcomes = dict(zip(self._places, claim.outcomes, strict=True))
        return Claim(tuple(outcomes[place] for place in range(len(outcomes))))


def _unnumbered(node: ShownNode) -> ShownNode:
    made_up = re.fullmatch(rf"{re.escape(node.op_type)}_\d+", node.name)
    return replace(node, name="") if made_up else node
