"""Which outputs of a model are written while one of its inputs may still be read, where several groups and the CPU run it.

In: a graph and its groups. Out: pairs of names, for callers that bind an output to the memory of an input. Invariant: what is no
pair is right. A group copies the inputs that share memory with what it writes; an input that a node on the CPU reads too is
copied before the run, and an output that one makes or reads is in host memory until the run ends: ONNX Runtime copies both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

from .shown import ShownGraph, predecessors


class Crossings:
    """Keeps names and numbers of a graph, and nothing of its values. `ours` are nodes that are groups already."""

    def __init__(self, graph: ShownGraph, groups: Sequence[Sequence[int]], ours: Sequence[int] = ()) -> None:
        unit = list(range(len(graph)))  # what runs as one: a node, or a group by its first node
        for group in groups:
            for place in group:
                unit[place] = group[0]
        here = {group[0] for group in groups} | set(ours)
        inputs, outputs = ({it.name or "" for it in them} for them in (graph.inputs, graph.outputs))
        self._makers: dict[str, int] = {}
        self._readers: dict[str, set[int]] = defaultdict(set)
        self._before: dict[int, set[int]] = defaultdict(set)
        for place, (node, waits) in enumerate(zip(graph, predecessors(graph), strict=True)):
            self._before[unit[place]] |= {unit[it] for it in waits} - {unit[place]}
            read = {it.name or "" for it in (*node.inputs, *node.meta.get("implicit_inputs", ())) if it is not None}
            for name in read & (inputs | outputs):
                self._readers[name].add(unit[place])
            if unit[place] in here:
                self._makers |= {name: unit[place] for it in node.outputs if (name := it.name or "") in outputs}
        self._makers = {name: unit for name, unit in self._makers.items() if self._readers[name] <= here}
        self._inputs = [name for name in inputs if self._readers[name] <= here]

    @cached_property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """Outputs, each with an input that something may read when the output has been written."""
        earlier = {unit: self._earlier(unit) for unit in set(self._makers.values())}
        return frozenset(
            (output, name)
            for output, maker in self._makers.items()
            for name in self._inputs
            if not self._readers[name] <= earlier[maker]
        )

    def _earlier(self, unit: int) -> set[int]:
        """A unit and all that it waits for."""
        found, pending = {unit}, [unit]
        while pending:
            new = self._before[pending.pop()] - found
            found |= new
            pending += new
        return found
