"""Divides a graph into the parts of a Flow: groups of nodes that become Programs, and control-flow nodes.

In: a graph, and a function that asks the compiler about a graph. Out: units in execution order, or `NotDivided` with the nodes
that no Program can run. Invariant: each node is in one unit, and a unit reads only results of earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import onnx_ir as ir

from ...compiler.lower.lower import Attempt
from ...plugin.assign.partition import groups as partition
from ...plugin.assign.shown import predecessors
from ...plugin.assign.subgraph import extract
from ...records import dataclass
from .rewritten import take_branches

TryLower = Callable[[ir.Graph], Attempt]
_CONTROL = ("If", "Loop")


class NotDivided(Exception):
    """Nodes that cannot run, each with its reason."""

    def __init__(self, reasons: Sequence[tuple[ir.Node, str]]) -> None:
        super().__init__("; ".join(reason for _, reason in reasons))
        self.reasons = reasons


@dataclass(frozen=True)
class Group:
    """Nodes that are compiled together, as a separate graph."""

    graph: ir.Graph


@dataclass(frozen=True)
class Control:
    """An If or Loop. `captured` are the outer values that its bodies read, without constants."""

    node: ir.Node
    captured: tuple[ir.Value, ...]


def is_control(node: ir.Node) -> bool:
    """Returns whether a Flow has a part for this node."""
    return node.op_type in _CONTROL and node.domain in ("", "ai.onnx")


def bodies_of(node: ir.Node) -> list[ir.Graph]:
    """Returns the bodies of a node in the order of a part's Programs. Raises NotDivided if one is missing."""
    names = ("then_branch", "else_branch") if node.op_type == "If" else ("body",)
    try:
        return [node.attributes[name].as_graph() for name in names]
    except (KeyError, TypeError):
        raise NotDivided([(node, f"it has no {' or '.join(names)}")]) from None


def units_of(graph: ir.Graph, try_lower: TryLower) -> list[Group | Control]:
    """Returns the units of a graph. Branches that every run takes are inlined first."""
    whole = try_lower(graph)
    while take_branches(graph, whole.taken):
        whole = try_lower(graph)
    nodes = list(graph)
    controls = {place: node for place, node in enumerate(nodes) if is_control(node)}
    for node in controls.values():
        node.meta["implicit_inputs"] = _captured(node)
    refused = [(nodes[k], reason) for k, reason in enumerate(whole.reasons) if reason is not None and k not in controls]
    if refused:
        raise NotDivided(refused)
    before = predecessors(graph)
    can_run = [place not in controls for place in range(len(nodes))]
    waits = set(whole.waits)
    while True:
        found = partition(before, can_run, waits)
        graphs, more = [], set[tuple[int, int]]()
        for group in found:
            alone = extract(graph, [nodes[place] for place in group])
            tried = try_lower(alone)
            wrong = [(nodes[k], it) for k, it in zip(group, tried.reasons, strict=True) if it is not None]
            if wrong:
                raise NotDivided(wrong)
            more |= {(group[maker], group[node]) for maker, node in tried.waits}
            graphs.append(Group(alone))
        if not more - waits:
            break
        waits |= more
    units: list[Group | Control] = [*graphs, *(Control(it, it.meta["implicit_inputs"]) for it in controls.values())]
    places = [*found, *([place] for place in controls)]
    return [units[number] for number in _in_order(before, places)]


def _in_order(before: Sequence[Sequence[int]], places: Sequence[Sequence[int]]) -> Iterator[int]:
    """Yields the numbers of units in topological order."""
    unit = {place: number for number, group in enumerate(places) for place in group}
    needs = [{unit[it] for place in group for it in before[place]} - {number} for number, group in enumerate(places)]
    left = dict.fromkeys(range(len(places)))
    while left:
        ready = [number for number in left if needs[number].isdisjoint(left)]
        assert ready, "groups are convex"
        yield from ready
        for number in ready:
            del left[number]


def _captured(node: ir.Node) -> tuple[ir.Value, ...]:
    """Returns the outer values that the bodies of a node read, without constants."""
    graphs, own, read = bodies_of(node), set[ir.Value](), list[ir.Value]()
    for graph in graphs:
        for it in (graph, *graph.subgraphs()):
            own.update(it.inputs, it.initializers.values())
            read += list(it.outputs)
        for inner in graph.all_nodes():
            own.update(inner.outputs)
            read += [value for value in inner.inputs if value is not None]
    return tuple(it for it in dict.fromkeys(read) if it not in own and it.const_value is None and it.name)
