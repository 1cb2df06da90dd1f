"""A Loop as nodes of the surrounding graph: one copy of its body's nodes for each iteration.

In: a graph, a Loop in it with a constant trip count, and its body. Out: the same graph with other nodes in place of the Loop.
Invariants: the graph is changed, so nothing else may read it. Equal graphs stay equal. All new nodes have the Loop's name, so
that messages and reports name it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...program.drawing import DRAWING
from ..assign.editing import constant, drop_unread_constants, node_of
from ..assign.shown import ShownAttribute, ShownGraph, ShownNode, ShownValue
from .body import LoopBody, source_of

MOST_NODES = 256  # of all iterations together
_AXES_ARE_INPUTS = 13  # from this version of Unsqueeze on


def trips_of(node: ShownNode, body: LoopBody, graph: ShownGraph) -> int | str:
    """Returns how many iterations a Loop has in every run, or why it is not unrolled. `graph` is its body."""
    trips, condition = (None if it is None else source_of(it).constant for it in node.inputs[:2])
    starts = node.inputs[1] is None or not node.inputs[1].name or (condition is not None and bool(condition.raw[0]))
    if trips is None or len(trips.raw) != np.dtype(np.int64).itemsize:
        return "its trip count is not constant"
    if not starts or body.condition or body.once:
        return "its condition can end it early"
    count = int(trips.raw.view(np.int64)[0])
    if count <= 0 or count * len(graph) > MOST_NODES:
        return f"{count} iterations of {len(graph)} nodes; from 1 to {MOST_NODES} nodes are unrolled"
    if any(it.op_type in DRAWING for it in graph):
        return "each iteration draws other random numbers"
    return "its body contains a Loop or an If" if any(it.has_body for it in graph) else count


def unroll(graph: ShownGraph, node: ShownNode, body: LoopBody, inner: ShownGraph, trips: int) -> None:
    """Replaces a Loop by its iterations. `inner` is the graph of its body."""
    around = {it.name: it for it in (*graph.inputs, *graph.initializers.values(), *node.implicit_inputs)}
    around |= {made.name: made for it in graph for made in it.outputs if made.name}
    known: dict[str, ShownValue] = {name: around[name] for name in body.captured}
    for name, value in inner.initializers.items():
        if name not in around:
            own = ShownValue(f"{node.name}/{name}", value.code, value.shape, value.constant)
            graph.initializers[own.name] = around[name] = own
        known[name] = around[name]
    graph.in_files.update(inner.in_files)
    states = [it for it in node.inputs[2:] if it is not None]
    made: list[ShownNode] = []
    rows: list[list[ShownValue]] = [[] for _ in body.rows]
    for number in range(trips):
        mark = f"{node.name}/{number}"
        here = {**known, **dict(zip(body.states, states, strict=True))}
        here[body.number] = constant(graph, f"{mark}/number", np.full(body.number_shape, number))
        for it in inner:
            made.append(_copy(it, node.name, mark, here))
        states = [here[name] for name in body.next]
        for row, name in zip(rows, body.rows, strict=True):
            row.append(here[name])
    outputs = node.outputs
    for value, state in zip(outputs, states, strict=False):
        if value.name:
            made.append(node_of(graph, "Identity", [state], value, name=node.name))
    for value, parts in zip(outputs[len(states) :], rows, strict=True):
        if value.name:
            made += _joined(graph, node.name, parts, value)
    place = graph.nodes.index(node)
    for it in made:
        it.handle = node.handle
    graph.nodes[place : place + 1] = made
    drop_unread_constants(graph)


def _copy(node: ShownNode, name: str, mark: str, here: dict[str, ShownValue]) -> ShownNode:
    """Returns a copy of a node for one iteration. `here` maps names in the body to the values of the iteration."""
    outputs = [ShownValue(f"{mark}/{it.name}" if it.name else "", it.code, it.shape) for it in node.outputs]
    inputs = [None if it is None else here.get(it.name, it) for it in node.inputs]
    made = ShownNode(node.domain, node.op_type, node.version, name, inputs, outputs, node.attributes)
    for old, new in zip(node.outputs, outputs, strict=True):
        new.maker = made
        here[old.name] = new
    return made


def _joined(graph: ShownGraph, name: str, parts: Sequence[ShownValue], output: ShownValue) -> list[ShownNode]:
    """Returns nodes that concatenate rows along a new first axis."""
    axes = constant(graph, f"{name}/first axis", np.zeros(1, np.int64))
    old = graph.opset_imports.get("", 1) < _AXES_ARE_INPUTS
    made = []
    for number, part in enumerate(parts):
        row = ShownValue(f"{output.name}/{number}", part.code)
        how = [ShownAttribute("axes", "ints", np.zeros(1, np.int64))] if old else []
        made.append(node_of(graph, "Unsqueeze", [part] if old else [part, axes], row, how, name))
    rows: list[ShownValue | None] = [it.outputs[0] for it in made]
    return [*made, node_of(graph, "Concat", rows, output, [ShownAttribute("axis", "int", 0)], name)]
