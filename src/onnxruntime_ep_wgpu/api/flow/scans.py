"""Rewrites Scan as Loop: the body selects its slices by the iteration number instead of receiving them.

In: a model with inferred types. Out: the same model, changed. Invariant: result names stay. Two kinds of Scan stay and are
refused by name later. One is of opset 8, which has a batch. The other has results of unknown rank along another axis than the
first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from ...compiler.graph.inference.bodies import axes_of
from ...compiler.graph.inference.value_info import ValueInfo, merged, of_value


def loops_for_scans(graph: ir.Graph, opset: int, known: Mapping[str, ValueInfo]) -> bool:
    """Rewrites the Scans of a graph and its bodies as Loops. Returns whether there were any."""
    found = False
    for node in list(graph):
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                found |= loops_for_scans(attribute.as_graph(), opset, known)
        if node.op_type == "Scan" and node.domain in ("", "ai.onnx") and opset >= 9:
            found |= _rewritten(graph, node, known)
    return found


def _rewritten(graph: ir.Graph, node: ir.Node, known: Mapping[str, ValueInfo]) -> bool:
    if "body" not in node.attributes or "num_scan_inputs" not in node.attributes:
        return False
    body, sequences = node.attributes["body"].as_graph(), node.attributes["num_scan_inputs"].as_int()
    states = len(node.inputs) - sequences
    results = len(node.outputs) - states
    if sequences < 1 or states < 0 or results < 0 or len(body.inputs) != len(node.inputs):
        return False
    axes = axes_of(node, "scan_input_axes", sequences)
    backwards = axes_of(node, "scan_input_directions", sequences)
    to = axes_of(node, "scan_output_axes", results)
    reversed_ = axes_of(node, "scan_output_directions", results)
    ranks = [_rank(body.outputs[states + k], known) for k in range(results)]
    if any(rank is None and axis for rank, axis in zip(ranks, to, strict=True)):
        return False
    before = _Nodes(graph, node)
    shape = before.add("Shape", [node.inputs[states]])
    count = before.add("Gather", [shape, before.number(axes[0])])
    round_ = ir.Value(name=f"{count.name}.round", type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(()))
    condition = ir.Value(name=f"{count.name}.more", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape(()))
    inside = _Nodes(body, body[0] if len(body) else None)
    slices = list(body.inputs)[states:]
    for k, old in enumerate(slices):
        place = round_
        if backwards[k]:
            last = inside.add("Sub", [count, inside.number(1)])
            place = inside.add("Sub", [last, round_])
        new = inside.add("Gather", [node.inputs[states + k], place], axis=axes[k])
        name, old.name = old.name, f"{old.name}.slice"
        new.name, new.type, new.shape = name, old.type, old.shape
        old.replace_all_uses_with(new, replace_graph_outputs=True)
    condition_out = inside.add("Identity", [condition])
    kept, made = list(body.inputs)[:states], list(body.outputs)
    body.inputs.clear()
    body.inputs.extend([round_, condition, *kept])
    body.outputs.clear()
    body.outputs.extend([condition_out, *made])
    loop = ir.node("Loop", [count, None, *list(node.inputs)[:states]], {"body": body}, num_outputs=len(node.outputs))
    loop.name = node.name
    graph.insert_before(node, loop)
    after = _Nodes(graph, node)
    for k, old in enumerate(list(node.outputs)):
        new = loop.outputs[k]
        new.name, place_of = f"{old.name}.loop", k - states
        if place_of < 0 or not (to[place_of] or reversed_[place_of]):
            name, old.name = old.name, new.name
            new.name, new.type, new.shape = name, old.type, old.shape
        else:
            if reversed_[place_of]:
                bounds = [after.numbers(it) for it in (-1, -(1 << 63), 0, -1)]
                new = after.add("Slice", [new, *bounds])
            rank = ranks[place_of]
            if to[place_of] and rank is not None:
                axis = to[place_of] % (rank + 1)
                new = after.add("Transpose", [new], perm=[*range(1, axis + 1), 0, *range(axis + 1, rank + 1)])
            name, old.name = old.name, f"{old.name}.scan"
            new.name, new.type, new.shape = name, old.type, old.shape
        old.replace_all_uses_with(new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    return True


class _Nodes:
    """Inserts nodes into a graph before another one, or at its end without one."""

    def __init__(self, graph: ir.Graph, before: ir.Node | None) -> None:
        self._graph, self._before = graph, before

    def add(self, op_type: str, inputs: Sequence[ir.Value | None], **attributes: object) -> ir.Value:
        """Adds a node and returns its result."""
        node = ir.node(op_type, inputs, attributes)  # type: ignore[arg-type]
        if self._before is None:
            self._graph.append(node)
        else:
            self._graph.insert_before(self._before, node)
        (result,) = node.outputs
        result.name = f"{op_type}.{id(node):x}"
        return result

    def number(self, value: int) -> ir.Value:
        return self.add("Constant", [], value_int=value)

    def numbers(self, value: int) -> ir.Value:
        return self.add("Constant", [], value_ints=[value])


def _rank(value: ir.Value, known: Mapping[str, ValueInfo]) -> int | None:
    shape = merged(of_value(value), known.get(value.name or "", ValueInfo())).shape
    return None if shape is None else len(shape)
