"""Reports to users where the nodes of a session run: log lines at each decision, placements on request.

In: every decision on a graph, later the kernels of every compiled group. Out: log lines, `Placement`s.
Invariant: ONNX Runtime may change a graph (it expands functions, and replaces each group by one node), and then needs another
decision. Claimed nodes stay in the report. Nodes that disappeared without a claim are removed from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..abi import INFO, Logger
from .decision import FORCED, SHAPE_ARITHMETIC, VIEWS_AND_CASTS, Claim
from .placement import GroupValues, Placement, reasons_of

if TYPE_CHECKING:
    from ...program.program import Program
    from .shown import ShownGraph

CPU = "CPUExecutionProvider"

# A graph: its parent, a control-flow node ("" for the main graph), its own name, and its outputs.
_Key = tuple[str, str, tuple[str, ...]]


class AssignmentReport:
    """The placement of all nodes in one session of the provider `name`."""

    def __init__(self, name: str, logger: Logger) -> None:
        self._name, self._logger = name, logger
        self._graphs: dict[_Key, dict[str, Placement]] = {}
        # Groups, by the names of all their outputs: the graph, and per output the name of its node.
        self._groups: dict[frozenset[str], tuple[_Key, dict[str, str]]] = {}
        self._values: dict[tuple[str, int], GroupValues] = {}

    def decided(self, within: str, graph: ShownGraph, decision: Claim, assigned: Sequence[str]) -> None:
        """Records a decision. `assigned`: per node, the name of the provider that held it before."""
        key = (within, graph.name or "", tuple(value.name or "" for value in graph.outputs))
        earlier = {name: it for name, it in self._graphs.get(key, {}).items() if it.partition is not None}
        first = 1 + max((it.partition for it in earlier.values() if it.partition is not None), default=-1)
        partition = {place: first + number for number, group in enumerate(decision.parts) for place in group}
        now: dict[str, Placement] = {}
        for place, node in enumerate(graph):
            if assigned[place] == self._name:
                continue  # one of our own groups, from an earlier decision
            name = node.name or ""
            provider = self._name if place in partition else assigned[place] or CPU
            reason = decision.reasons[place]
            now[name] = Placement(name, node.op_type, node.domain, within, provider, partition.get(place), (), reason)
        self._graphs[key] = earlier | now
        nodes = list(graph)
        for group in decision.parts:
            made = {value.name or "": nodes[place].name or "" for place in group for value in nodes[place].outputs}
            self._groups[frozenset(made)] = (key, made)
        self._log(within, now, decision)

    def _log(self, within: str, nodes: Mapping[str, Placement], decision: Claim) -> None:
        claimed = sum(map(len, decision.parts))
        where = f"the body of {within}" if within else "the graph"
        self._logger.log(
            INFO, f"{claimed} of {len(nodes)} nodes of {where} run on {self._name}, in {len(decision.parts)} groups"
        )
        for node in nodes.values():
            if node.reason is not None:
                self._logger.log(INFO, f"{node.op_type} {node.name!r} runs on {node.provider}: {node.reason}")

    def names_of(self, made: frozenset[str]) -> dict[str, str]:
        """Returns the node names of a group at its decision, by value name. `made`: the names of all its outputs."""
        known = self._groups.get(made)
        return {} if known is None else known[1]

    def compiled(self, made: frozenset[str], program: Program) -> None:
        """Records the kernels of a group, and the rules that did not apply, by node name."""
        kernels, declined = kernels_of(program), declined_of(program)
        known = self._groups.get(made)
        if known is not None:
            nodes = self._graphs[known[0]]
            partition = nodes[next(iter(known[1].values()))].partition
            if partition is not None:
                self._values[known[0][0], partition] = values_of(known[0][0], partition, program)
            if {*known[1].values()}.isdisjoint(kernels):
                # A context: its Program has the node names of the original model.
                labels = sorted({it for each in kernels.values() for it in each}, key=lambda it: int(it.split()[0]))
                kernels = dict.fromkeys(known[1].values(), tuple(labels))
            for name in known[1].values():
                nodes[name] = dataclasses.replace(
                    nodes[name], kernels=kernels.get(name, ()), declined=declined.get(name, ())
                )

    def declined(self, made: frozenset[str], reason: str) -> None:
        """Records for a group what was not done, and why."""
        key, names = self._groups.get(made, (None, {}))
        nodes = {} if key is None else self._graphs[key]
        for name in names.values():
            nodes[name] = dataclasses.replace(nodes[name], declined=(reason,))

    def placements(self) -> list[Placement]:
        """Returns the placement of every node. The bodies of control-flow nodes come after the main graph."""
        graphs = sorted(self._graphs.items(), key=lambda item: bool(item[0][0]))
        return [node for _, nodes in graphs for node in nodes.values()]

    def values(self) -> list[GroupValues]:
        """Returns the groups that read elements of their inputs on the host."""
        return [it for _, it in sorted(self._values.items()) if it.sizes or it.kernels]

    def describe_cpu_nodes(self) -> str:
        """Describes how many nodes run on the CPU, and why; "" if they are only nodes that the user put there or that are
        cheaper there."""
        nodes = self.placements()
        on_cpu = [node for node in nodes if not node.on_webgpu and node.provider == CPU]
        unwanted = [node for node in on_cpu if node.reason not in (FORCED, SHAPE_ARITHMETIC, VIEWS_AND_CASTS)]
        return f"{len(on_cpu)} of {len(nodes)} nodes on the CPU: {reasons_of(unwanted)}" if unwanted else ""

    def describe_none_here(self) -> str:
        """Describes why no node of the session runs here; "" if one does, or if there is no node."""
        nodes = self.placements()
        if not nodes or any(node.on_webgpu for node in nodes):
            return ""
        count = "the only node" if len(nodes) == 1 else f"all {len(nodes)} nodes"
        return f"{count} of the model on the CPU: {reasons_of(nodes)}"

    def all_forced(self) -> bool:
        """Whether the user put every node that does not run here on the CPU."""
        return all(node.reason in (None, FORCED) for node in self.placements())


def values_of(within: str, partition: int, program: Program) -> GroupValues:
    """Returns the inputs of a group with elements that a run reads on the host."""
    elements = {it.input for it in program.symbols if it.is_element}
    kernels = {it.input for it in program.symbols if it.name in program.decisive}

    def names(numbers: set[int]) -> tuple[str, ...]:
        return tuple(program.values[program.inputs[number]].name for number in sorted(numbers))

    return GroupValues(within, partition, names(elements - kernels), names(kernels))


def kernels_of(program: Program) -> dict[str, tuple[str, ...]]:
    """Returns, per ONNX node of a Program, the dispatches that compute it: position in the order of execution and kernel,
    `3 softmax`."""
    found: dict[str, list[str]] = {}
    for number, dispatch in enumerate(program.dispatches):
        for name in dispatch.origin:
            found.setdefault(name, []).append(f"{number} {program.kernels[dispatch.kernel].label}")
    return {name: tuple(labels) for name, labels in found.items()}


def declined_of(program: Program) -> dict[str, tuple[str, ...]]:
    """Returns, per ONNX node of a Program, the rules that examined it and did not apply: `attention: the scores have ...`."""
    found: dict[str, list[str]] = {}
    for it in program.declined:
        for name in it.origin:
            found.setdefault(name, []).append(f"{it.rule}: {it.reason}")
    return {name: tuple(reasons) for name, reasons in found.items()}
