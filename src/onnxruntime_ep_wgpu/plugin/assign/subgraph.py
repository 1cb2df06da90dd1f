"""Cuts a group of nodes out of a graph, in the same way as ONNX Runtime when it fuses the group.

In: a graph and some of its nodes. Out: a new graph with copies of the nodes. Values from outside are inputs (a constant stays
an initializer); values that are used outside are outputs. Invariant: the given graph is not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from ...compiler.graph.tied import pass_ties, ties_of


def extract(graph: ir.Graph, nodes: Sequence[ir.Node]) -> ir.Graph:
    """Returns the graph of `nodes`, which are in topological order. Node names and types stay the same."""
    inside = {id(node) for node in nodes}
    values: dict[int, ir.Value] = {}
    constants: list[ir.Value] = []
    inputs: list[ir.Value] = []

    def copy_of(value: ir.Value) -> ir.Value:
        known = values.get(id(value))
        if known is None:
            known = values[id(value)] = ir.Value(name=value.name, shape=value.shape, type=value.type)
            known.const_value = value.const_value
        return known

    copies = []
    for node in nodes:
        for value in node.inputs:
            if value is None or id(value) in values:
                continue
            if value.is_initializer():
                constants.append(copy_of(value))
            elif (producer := value.producer()) is None or id(producer) not in inside:
                inputs.append(copy_of(value))
        copies.append(
            ir.Node(
                node.domain,
                node.op_type,
                [None if value is None else copy_of(value) for value in node.inputs],
                list(node.attributes.values()),
                overload=node.overload,
                outputs=[copy_of(value) for value in node.outputs],
                version=node.version,
                name=node.name,
            )
        )
    outside = used_outside(graph, inside)
    outputs = [copy_of(value) for node in nodes for value in node.outputs if id(value) in outside]
    found = ir.Graph(
        inputs,
        outputs,
        nodes=copies,
        initializers=constants,
        opset_imports=dict(graph.opset_imports),
        name=graph.name,
    )
    pass_ties(ties_of(graph), found)
    return found


def used_outside(graph: ir.Graph, inside: Iterable[int]) -> set[int]:
    """Returns the ids of the graph's outputs, and of values that nodes other than those with the ids `inside` read."""
    inside = set(inside)
    found = {id(value) for value in graph.outputs}
    for node in graph:
        if id(node) not in inside:
            found.update(id(value) for value in node.inputs if value is not None)
            found.update(id(value) for value in node.meta.get("implicit_inputs", ()))
    return found
