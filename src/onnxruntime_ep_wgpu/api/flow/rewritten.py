"""Reduces a model to the constructs of a Flow.

In: a model with inferred types, and the branches that every run takes. Out: the same model, changed: such branches replace
their If, and the stacked results of a Loop have whole 32-bit words, which a host can copy. Invariant: input and output names
stay.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from ...compiler.graph.inference.value_info import ValueInfo, merged, of_value
from ...program.dtypes import DType

_WIDE = {True: ir.DataType.FLOAT, False: ir.DataType.INT32}  # by "is float"; exact for all narrower types


def take_branches(graph: ir.Graph, taken: Mapping[ir.Node, ir.Graph]) -> bool:
    """Replaces each If by the branch that every run takes. Returns whether there were any."""
    found = [node for node in graph if node in taken]
    for node in found:
        branch = taken[node]
        inner, results = list(branch), list(branch.outputs)
        branch.outputs.clear()
        branch.remove(inner)
        constants = list(branch.initializers.values())
        branch.initializers.clear()
        for value in constants:
            graph.register_initializer(value)
        graph.insert_before(node, inner)
        for old, new in zip(list(node.outputs), results, strict=True):
            _replace_output(graph, node, old, new)
        graph.remove(node, safe=True)
    return bool(found)


def _replace_output(graph: ir.Graph, node: ir.Node, old: ir.Value, new: ir.Value) -> None:
    """Replaces `old`, an output of `node`, by `new` for all readers."""
    if old.is_graph_output():
        copy = ir.node("Identity", [new])
        graph.insert_after(node, copy)
        (new,) = copy.outputs
        name, old.name = old.name, f"{old.name}.taken"
        new.name, new.type, new.shape = name, old.type, old.shape
    old.replace_all_uses_with(new, replace_graph_outputs=True)


def widen_stacked(graph: ir.Graph, known: dict[str, ValueInfo]) -> None:
    """Widens stacked Loop outputs of a graph and its bodies to at least 32 bits.

    A narrower value is cast in the body, and cast back after the Loop. Adds the types of new values to `known`."""
    for node in list(graph):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                widen_stacked(attribute.as_graph(), known)
        if node.op_type == "Loop" and "body" in node.attributes:
            body = node.attributes["body"].as_graph()
            states = len(node.inputs) - 2
            for place in range(states, len(node.outputs)):
                _widen(graph, node, body, place, known)


def _widen(graph: ir.Graph, node: ir.Node, body: ir.Graph, place: int, known: dict[str, ValueInfo]) -> None:
    made, result = body.outputs[place + 1], node.outputs[place]
    info = merged(of_value(made), known.get(made.name or "", ValueInfo()))
    if info.dtype is None or DType.of(int(info.dtype)).bits >= 32 or not result.name:
        return
    stacked = merged(of_value(result), known.get(result.name, ValueInfo()))
    wide = _WIDE[DType.of(int(info.dtype)).is_float]
    into = ir.node("Cast", [made], {"to": wide})
    into.outputs[0].name = f"{made.name}.wide"
    body.append(into)
    body.outputs[place + 1] = into.outputs[0]
    back = ir.node("Cast", [result], {"to": info.dtype})
    (narrow,) = back.outputs
    graph.insert_after(node, back)
    name, result.name = result.name, f"{result.name}.wide"
    narrow.name, narrow.type, narrow.shape = name, result.type, result.shape
    result.type = None
    result.replace_all_uses_with(narrow, replace_graph_outputs=True)
    back.replace_input_with(0, result)
    known[result.name] = ValueInfo(wide, stacked.shape)
    known[into.outputs[0].name or ""] = ValueInfo(wide, info.shape)
