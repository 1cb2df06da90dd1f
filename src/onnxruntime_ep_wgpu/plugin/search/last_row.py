"""The last row of a decoder's logits: a search reads no other.

In: the graph of a decoder, with a Gather of the last row of its logits (rows, tokens, vocabulary). Out: the same, in which what
only the logits need is calculated for the last token alone, from the last product back to where tokens meet. Invariant: no other
value changes.

Which operators make an element of elements, and which a row of a row, these declare (`compiler/lower/ops/registry.py`).
"""

from __future__ import annotations

import onnx_ir as ir

from ...compiler.lower.ops import registry

_OF_CONSTANTS = frozenset({"Cast", "DequantizeLinear", "Identity", "Transpose"})


def sink_rows(graph: ir.Graph, name: str) -> None:
    """Puts the node of this name, which reads one row of a value, before all nodes that make a row of a row for it alone. An
    encoder may have no logits."""
    gather = next((node for node in graph if node.name == name), None)
    if gather is None:
        return
    made = gather.outputs[0]
    logits = gather.inputs[0]
    assert logits is not None
    value, behind = logits, list[tuple[ir.Node, int]]()
    while len(value.uses()) == 1 and not value.is_graph_output() and (place := _place_of_rows(value)) is not None:
        node = value.producer()
        assert node is not None
        behind.append((node, place))
        read = node.inputs[place]
        assert read is not None
        value = read
    if not behind:
        return
    made.replace_all_uses_with(logits)
    gather.replace_input_with(0, value)
    reader, place = behind[-1]
    reader.replace_input_with(place, made)
    for changed, _ in behind:
        changed.outputs[0].shape = None
    graph.remove(gather)
    producer = value.producer()
    if producer is None:
        graph.insert_before(graph[0], gather)
    else:
        graph.insert_after(producer, gather)


def _place_of_rows(value: ir.Value) -> int | None:
    """The only input of a value's maker that has a row for each of its rows; None where that is another kind of node."""
    node = value.producer()
    if node is None or len(node.outputs) != 1:
        return None
    if node.op_type == "MatMul" and node.domain == "":
        weight = node.inputs[1]
        return 0 if weight is not None and _is_constant(weight) and _rank(weight) == 2 else None
    operator = registry.declared(node.op_type, node.domain)
    if operator is None:
        return None
    moving = [place for place, it in enumerate(node.inputs) if it is not None and not _is_constant(it)]
    if len(moving) != 1 or _rank(node.inputs[moving[0]]) != 3:
        return None
    if operator.elementwise:
        others = (it for place, it in enumerate(node.inputs) if place != moving[0] and it is not None)
        return moving[0] if all((_rank(it) or 0) <= 1 and _rank(it) is not None for it in others) else None
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else -1
    rows = [operator.operands.index(name) for name in operator.rows]
    return moving[0] if moving == rows[:1] and axis in (-1, 2) else None


def _is_constant(value: ir.Value) -> bool:
    """Whether a value is a constant, or made of some."""
    if value.const_value is not None:
        return True
    node = value.producer()
    return (
        node is not None and node.op_type in _OF_CONSTANTS and all(it is None or _is_constant(it) for it in node.inputs)
    )


def _rank(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else len(value.shape)
