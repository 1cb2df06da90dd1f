"""Reduces a decoder's logits to the last row, the only one that text generation needs.

In: an ONNX model with an output (batch, rows, vocabulary). Out: the same model with this output as (batch, 1, vocabulary). All
nodes that only this output needs are calculated for one row (`compiler/lower/last_row.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from ...compiler.lower import ops
from ...compiler.lower.last_row import sink_rows

ops.load()
_NAME = "last row"
_BOUNDS = {"from": -1, "to": int(np.iinfo(np.int64).max), "axis": -2}


def of_last_row(model: onnx.ModelProto, output: str) -> None:
    """Changes the model, which needs opset 11 or later."""
    proto = model.graph
    rows = next(it for it in proto.output if it.name == output).type.tensor_type.shape.dim[-2]
    if rows.dim_value == 1:
        return
    graph = ir.from_proto(model).graph
    place, logits = next((place, it) for place, it in enumerate(graph.outputs) if it.name == output)
    row = ir.Value(name=f"{output}/row", type=logits.type)
    bounds = [ir.Value(name=f"{_NAME}/{name}") for name in _BOUNDS]
    cut = ir.Node("", "Slice", [logits, *bounds], outputs=[row], name=_NAME)
    graph.append(cut)
    graph.outputs[place] = row
    changed = {it.name for node in sink_rows(graph, cut) for it in node.outputs}
    if not changed:
        logits.name, row.name = f"{output}/every row", output
    kept = [it for it in proto.value_info if it.name not in changed]
    del proto.node[:], proto.value_info[:]
    proto.node.extend(ir.to_proto(it) for it in graph)
    proto.value_info.extend(kept)
    for name, value in _BOUNDS.items():
        proto.initializer.append(numpy_helper.from_array(np.array([value], np.int64), f"{_NAME}/{name}"))
    rows.Clear()
    rows.dim_value = 1


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g


def readers_of(model: onnx.ModelProto) -> Mapping[str, list[onnx.NodeProto]]:
    """Returns the nodes of the main graph that read each name, also in their bodies."""
    found: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in model.graph.node:
        for name in set(names_read(node)):
            found[name].append(node)
    return found


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """Yields the names that a node reads, including in its bodies."""
    yield from (it for it in node.input if it)
    for body in _bodies(node):
        for inner in body.node:
            yield from names_read(inner)
        yield from (it.name for it in body.output)
