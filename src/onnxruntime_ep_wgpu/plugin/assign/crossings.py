"""Finds outputs that are written while an input may still be read, in models that several groups and the CPU run.

In: a graph and its groups. Out: pairs of names, for callers that bind an output to the memory of an input. Invariant: a binding
that is not among the pairs gives correct results. A group copies the inputs that share memory with its outputs. ONNX Runtime
copies an input that a node on the CPU also reads, before the run. It keeps an output that a node on the CPU makes or reads in
host memory until the run ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

from .shown import ShownGraph, predecessors


class Crossings:
    """The crossings of one graph. Stores names and positions only, no values. `ours`: nodes that are already groups."""

    def __init__(self, graph: ShownGraph, groups: Sequence[Sequence[int]], ours: Sequence[int] = ()) -> None:
        unit = list(range(len(graph)))  # per node, the unit that runs it: a group's first node, or itself
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
        """Pairs of an output, and an input that may still be read after the output is written."""
        earlier = {unit: self._earlier(unit) for unit in set(self._makers.values())}
        return frozenset(
            (output, name)
            for output, maker in self._makers.items()
            for name in self._inputs
            if not self._readers[name] <= earlier[maker]
        )

    def _earlier(self, unit: int) -> set[int]:
        """Returns a unit and all units that it depends on."""
        found, pending = {unit}, [unit]
        while pending:
            new = self._before[pending.pop()] - found
            found |= new
            pending += new
        return found
