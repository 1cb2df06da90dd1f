"""Keeps growing KV caches at a constant length, so that all steps have the same shapes and reuse their bindings.

In: an ONNX model with outputs (batch, heads, rows, size) that are an input's rows followed by new ones. Out: the same model
with one more input, `KEPT`, of which only the extent matters. The outputs have that many rows: the last of all rows, after rows
of zeros if there are too few. Masks must exclude the rows of zeros, like padding before a text.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

KEPT = "kept rows"


def keep_rows(model: onnx.ModelProto, caches: Mapping[str, str]) -> None:
    """Changes the model, which needs opset 11 or later. `caches` maps each cache input to its output."""
    graph = model.graph
    kinds = {it.name: it.type.tensor_type for it in graph.input}
    numbers = {"first": [0], "axis": [2], "end": [np.iinfo(np.int64).max]}
    for name, value in numbers.items():
        graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), f"{KEPT}/{name}"))
    graph.input.append(helper.make_tensor_value_info(KEPT, TensorProto.UINT8, [KEPT]))
    nodes = [
        helper.make_node("Shape", [KEPT], [f"{KEPT}/number"], name=f"{KEPT}/number"),
        helper.make_node("Neg", [f"{KEPT}/number"], [f"{KEPT}/from"], name=f"{KEPT}/from"),
    ]
    for past, present in caches.items():
        every = f"{present}/every row"
        for node in graph.node:
            for names in (node.input, node.output):
                names[:] = [every if it == present else it for it in names]
        kind = kinds[past]
        _, heads, _, size = (it.dim_value for it in kind.shape.dim)
        for name, value in (("heads", heads), ("size", size)):
            graph.initializer.append(numpy_helper.from_array(np.array([value], np.int64), f"{present}/{name}"))
        zero = helper.make_tensor("zero", kind.elem_type, [1], [0.0])
        extents = [f"{present}/batch", f"{present}/heads", f"{present}/missing", f"{present}/size"]
        for op, inputs, made, how in (
            ("Slice", [every, f"{KEPT}/from", f"{KEPT}/end", f"{KEPT}/axis"], f"{present}/last", {}),
            ("Shape", [f"{present}/last"], f"{present}/extents", {}),
            ("Gather", [f"{present}/extents", f"{KEPT}/first"], f"{present}/batch", {"axis": 0}),
            ("Gather", [f"{present}/extents", f"{KEPT}/axis"], f"{present}/there", {"axis": 0}),
            ("Sub", [f"{KEPT}/number", f"{present}/there"], f"{present}/missing", {}),
            ("Concat", extents, f"{present}/shape", {"axis": 0}),
            ("ConstantOfShape", [f"{present}/shape"], f"{present}/zeros", {"value": zero}),
            ("Concat", [f"{present}/zeros", f"{present}/last"], present, {"axis": 2}),
        ):
            nodes.append(helper.make_node(op, inputs, [made], name=made, **how))
    graph.node.extend(nodes)
    for output in graph.output:
        if output.name in caches.values() and output.type.tensor_type.HasField("shape"):
            output.type.tensor_type.shape.dim[2].Clear()
            output.type.tensor_type.shape.dim[2].dim_param = KEPT
