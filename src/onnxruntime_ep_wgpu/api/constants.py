"""Constant folding for export. Natively, ONNX Runtime folds constants before it asks the provider for kernels.

In: a model. Out: the same model, with small results of constant nodes as initializers. Invariant: values that the compiler folds
itself or reads as views stay, and so do quantised weights. ONNX Runtime's CPU provider calculates; nodes that it refuses stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import onnx_ir as ir

from ..compiler.graph.fold import FOLDED
from ..program.drawing import DRAWING
from .model_file import plain_settings

MOST_BYTES = 1 << 20  # per result, which becomes a weight of the export
MOST_BYTES_TOGETHER = 4 << 20
MOST_BYTES_READ = 4 << 20  # read by one node
# Excluded: random generators, and dequantisation, which would make large weights of small ones.
_LEFT = DRAWING | {"DequantizeLinear"}


def calculate_constants(model: ir.Model) -> None:
    """Replaces constant results by initializers."""
    graph = model.graph
    constant: set[ir.Node] = set()
    for node in graph:  # in topological order
        if _calculates(node) and all(it is None or _is_constant(it, constant) for it in node.inputs):
            constant.add(node)
    wanted = [value for node in constant for value in node.outputs if _is_read_elsewhere(value, constant, graph)]
    wanted = [it for it in wanted if any(node.op_type not in FOLDED for node in _made_by([it], constant))]
    left = MOST_BYTES_TOGETHER
    for value, array in zip(wanted, _values(model, wanted, constant), strict=False):
        if array.dtype.kind not in "biuf" or not 0 < array.nbytes <= min(MOST_BYTES, left):
            continue
        left -= array.nbytes
        tensor = ir.tensor(array)
        kind = ir.TensorType(tensor.dtype)
        known = ir.Value(name=f"{value.name} calculated", shape=ir.Shape(array.shape), type=kind, const_value=tensor)
        graph.register_initializer(known)
        value.replace_all_uses_with(known)
    for node in reversed(list(graph)):
        if node in constant and not any(it.uses() or it in graph.outputs for it in node.outputs):
            graph.remove(node, safe=True)


def _calculates(node: ir.Node) -> bool:
    within = {ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS}
    if (
        node.domain not in ("", "ai.onnx")
        or node.op_type in _LEFT
        or any(it.type in within for it in node.attributes.values())
    ):
        return False
    read = (it.const_value for it in node.inputs if it is not None)
    return sum(it.nbytes for it in read if it is not None) <= MOST_BYTES_READ


def _is_constant(value: ir.Value, constant: set[ir.Node]) -> bool:
    producer = value.producer()
    return producer in constant if producer is not None else value.const_value is not None


def _is_read_elsewhere(value: ir.Value, constant: set[ir.Node], graph: ir.Graph) -> bool:
    return value not in graph.outputs and any(use.node not in constant for use in value.uses())


def _made_by(values: Iterable[ir.Value], constant: set[ir.Node]) -> set[ir.Node]:
    """Returns the constant nodes that the values depend on."""
    found: set[ir.Node] = set()
    pending = [it.producer() for it in values]
    while pending:
        node = pending.pop()
        if node in constant and node not in found:
            found.add(node)
            pending += [it.producer() for it in node.inputs if it is not None]
    return found


def _values(model: ir.Model, wanted: list[ir.Value], constant: set[ir.Node]) -> Iterator[Any]:
    """Yields the arrays of the values; none if ONNX Runtime cannot calculate them."""
    import onnx
    import onnxruntime as ort
    from onnx import helper

    nodes = _made_by(wanted, constant)
    if not nodes:
        return
    read = {it for node in nodes for it in node.inputs if it is not None and it.producer() is None}
    tensors = []
    for it in read:
        assert it.const_value is not None
        tensors.append(ir.to_proto(it.const_value))
        tensors[-1].name = it.name or ""
    graph = helper.make_graph(
        [ir.to_proto(it) for it in model.graph if it in nodes],
        "constants",
        [],
        [onnx.ValueInfoProto(name=it.name) for it in wanted],
        tensors,
    )
    opsets = [helper.make_opsetid(*it) for it in model.opset_imports.items()]
    settings = plain_settings()
    settings.log_severity_level = 4  # a refusal is no error of the model
    with suppress(Exception):  # of any kind; these nodes then run in the page, or the export refuses them by name
        whole = helper.make_model(graph, opset_imports=opsets, ir_version=model.ir_version).SerializeToString()
        yield from ort.InferenceSession(whole, settings, providers=["CPUExecutionProvider"]).run(None, {})
