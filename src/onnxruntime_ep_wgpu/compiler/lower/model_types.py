"""Infers types and shapes of all values of a model, including those of bodies.

In: a model with its bodies, as in its file. Out: types and shapes by name, for values that the model does not annotate. ONNX
Runtime presents a body before the graph around it. Of that graph it shows only the node that the body belongs to. If a state
of a loop begins as a state of another loop, only the whole model determines its rank.

Invariants: if different values in different bodies share a name, the result holds for all of them. Work is bounded for every
model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from ...program.settings import DEFAULT, CompileSettings
from ...program.target import Target
from ..graph.inference import bodies
from ..graph.inference.value_info import ValueInfo, joined, merged, of_value
from .lower import attempt

MOST_NODES = 100_000  # the limit for all bodies together; nodes count each time they are lowered
DEEPEST = 16  # nesting depth of bodies


def types_of(model: ir.Model, target: Target, settings: CompileSettings = DEFAULT) -> Mapping[str, ValueInfo]:
    """Returns types and shapes by name."""
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in graph:
            if node.op_type == "Constant" and len(node.outputs) == 1:
                # Bodies can read its value. ONNX Runtime does the same: it turns the constant into an initializer.
                node.outputs[0].const_value = ir.convenience.get_const_tensor(node.outputs[0])
    inference = _Inference(model.opset_imports, target, settings)
    inference.graph(model.graph, {}, 0)
    found: dict[str, ValueInfo] = {}
    for known in inference.found.values():
        for name, info in known.items():
            found[name] = joined(found[name], info) if name in found else info
    return found


class _Inference:
    """The inference for one model. `found` is by graph, from the last call for that graph."""

    def __init__(self, opsets: Mapping[str, int], target: Target, settings: CompileSettings) -> None:
        self._opsets, self._target, self._settings = opsets, target, settings
        self._left = MOST_NODES
        self.found: dict[ir.Graph, dict[str, ValueInfo]] = {}

    def graph(self, graph: ir.Graph, around: Mapping[str, ValueInfo], depth: int) -> list[ValueInfo] | None:
        """Infers the results of a graph from what is known around it and of its inputs."""
        self._left -= len(graph)
        if depth > DEEPEST or self._left < 0:
            return None

        def control(
            node: ir.Node, operands: Sequence[ValueInfo], known: bodies.InfoOf, branch: str | None
        ) -> Sequence[ValueInfo] | None:
            def run(name: str, inputs: Sequence[ValueInfo]) -> list[ValueInfo] | None:
                attribute = node.attributes.get(name)
                if attribute is None or attribute.type != ir.AttributeType.GRAPH:
                    return None
                body = attribute.as_graph()
                scope = {value.name or "": known(value) for value in _values_read(body)}
                given = {
                    value.name or "": merged(of_value(value), info)
                    for value, info in zip(body.inputs, inputs, strict=False)
                }
                return self.graph(body, {**around, **scope, **given}, depth + 1)

            found = bodies.solved(node, operands, run, branch)
            return None if found is None else found.results

        given = {value.name or "": around[value.name or ""] for value in graph.inputs if value.name in around}
        made = attempt(graph, self._opsets, self._target, self._settings, around, control)
        found = {**given, **made.found}
        self.found[graph] = found
        return [
            merged(of_value(it), found.get(it.name or "", around.get(it.name or "", ValueInfo())))
            for it in graph.outputs
        ]


def _values_read(graph: ir.Graph) -> Iterator[ir.Value]:
    """The values that the nodes of a body and of nested bodies read, and their outputs."""
    for node in graph.all_nodes():
        yield from (value for value in node.inputs if value is not None)
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from attribute.as_graph().outputs
    yield from graph.outputs
