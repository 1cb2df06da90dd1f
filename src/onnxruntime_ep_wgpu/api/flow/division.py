"""A graph into what its Flow has as parts: groups of nodes that are Programs, and nodes with bodies between them.

In: a graph, and a way to ask what the compiler says of one. Out: units in an order in which they can run, or `NotDivided`, which
names nodes that no Program runs. Invariant: each node is in one unit, and what a unit reads is made by those before it.
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

Ask = Callable[[ir.Graph], Attempt]
_CONTROL = ("If", "Loop")


class NotDivided(Exception):
    """Nodes that cannot run, each with the reason."""

    def __init__(self, reasons: Sequence[tuple[ir.Node, str]]) -> None:
        super().__init__("; ".join(reason for _, reason in reasons))
        self.reasons = reasons


@dataclass(frozen=True)
class Group:
    """Nodes that are compiled together, as a graph of their own."""

    graph: ir.Graph


@dataclass(frozen=True)
class Control:
    """An If or Loop. `captured` is what its bodies read from around it, constants apart."""

    node: ir.Node
    captured: tuple[ir.Value, ...]


def is_control(node: ir.Node) -> bool:
    """Whether a Flow has a part for a node."""
    return node.op_type in _CONTROL and node.domain in ("", "ai.onnx")


def bodies_of(node: ir.Node) -> list[ir.Graph]:
    """The bodies of a node, in the order of a part's Programs. Raises NotDivided where one is missing."""
    names = ("then_branch", "else_branch") if node.op_type == "If" else ("body",)
    try:
        return [node.attributes[name].as_graph() for name in names]
    except (KeyError, TypeError):
        raise NotDivided([(node, f"it has no {' or '.join(names)}")]) from None


def units_of(graph: ir.Graph, ask: Ask) -> list[Group | Control]:
    """The units of a graph, of which branches that run in every run are taken."""
    whole = ask(graph)
    while take_branches(graph, whole.taken):
        whole = ask(graph)
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
            tried = ask(alone)
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
    """The numbers of units in an order in which each follows those that it reads of."""
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
    """What the bodies of a node read that is made around it, constants apart."""
    graphs, own, read = bodies_of(node), set[ir.Value](), list[ir.Value]()
    for graph in graphs:
        for it in (graph, *graph.subgraphs()):
            own.update(it.inputs, it.initializers.values())
            read += list(it.outputs)
        for inner in graph.all_nodes():
            own.update(inner.outputs)
            read += [value for value in inner.inputs if value is not None]
    return tuple(it for it in dict.fromkeys(read) if it not in own and it.const_value is None and it.name)
