"""Infers types and shapes that ONNX Runtime does not have, in the graphs of one session.

In: each graph before its decision, its parent node if it is a body, and the model's file or bytes if they are known. Out: the
graph with the inferred types, and the results of nodes with bodies. ONNX Runtime presents bodies before the enclosing graphs,
so the results of a body are stored for its node. The initial state of a loop is an operand of the node. If this does not
suffice, as in nested loops, the whole model is read, once (`compiler/lower/model_types.py`). Invariant: inferred types hold in
every run to the same extent as ONNX Runtime's own types and ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx
import onnx_ir as ir

from ...compiler.graph.inference.bodies import InfoOf, has_body, solved
from ...compiler.graph.inference.value_info import ValueInfo, fill, joined, merged, of_value
from ...compiler.lower.lower import attempt
from ...compiler.lower.model_types import types_of
from ...program.settings import CompileSettings
from ...program.target import Target
from .inferred import GraphPlace, InferredTypes, PlainInfo

Source = Callable[[], str | bytes | None]


class Types:
    """The inferred types of one session. `source`: returns the file name or the bytes of the model."""

    def __init__(self, target: Target, settings: CompileSettings, source: Source) -> None:
        self._target, self._settings, self._source = target, settings, source
        self._model: Mapping[str, ValueInfo] | None = None
        self._graphs: dict[tuple[str, ...], dict[str, ValueInfo]] = {}
        self._filled: dict[str, ValueInfo] = {}  # in the current graph
        self._made: dict[tuple[str, ...], list[list[ValueInfo]]] = {}  # per node, the results of its bodies

    def before(self, graph: ir.Graph, where: GraphPlace, parent: ir.Node | None) -> Mapping[str, ValueInfo]:
        """Sets known types in a graph before its decision, and returns them. `parent`: its node, if it is a body."""
        # ONNX Runtime presents a graph again, with each of our groups replaced by one node without shapes.
        self._filled = fill(graph, self._graphs.get(_key(where), {}))
        if parent is not None and _incomplete(graph.inputs):
            self._enter(graph, parent)
        unsaid = (node for node in graph if has_body(node) and _incomplete(node.outputs))
        if (parent is not None and _incomplete(graph.inputs)) or not all(map(self._is_known, unsaid)):
            self._filled |= fill(graph, self._of_model())
        return self._filled

    def _enter(self, graph: ir.Graph, parent: ir.Node) -> None:
        """Sets the types of the inputs of a loop's body."""
        inputs = [value for value in graph.inputs if value.name not in _names(parent.meta["implicit_inputs"])]

        def run(_attribute: str, entering: Sequence[ValueInfo]) -> list[ValueInfo] | None:
            given = {it.name or "": merged(of_value(it), info) for it, info in zip(inputs, entering, strict=False)}
            made = attempt(graph, graph.opset_imports, self._target, self._settings, given, self.control)
            return [merged(of_value(it), made.found.get(it.name or "", ValueInfo())) for it in graph.outputs]

        found = solved(parent, _infos(parent.inputs), run)
        if found is not None:
            self._filled |= fill(graph, {it.name or "": info for it, info in zip(inputs, found.inputs, strict=False)})

    def control(
        self, node: ir.Node, operands: Sequence[ValueInfo], _known: InfoOf, branch: str | None = None
    ) -> Sequence[ValueInfo] | None:
        """Returns the results of a node with bodies, None before all of them have decisions.

        `branch`: the branch of an If that every run takes.
        """
        bodies = self._made.get(_names(node.outputs), [])
        if len(bodies) < (2 if node.op_type == "If" else 1):
            return None
        found = solved(node, operands, lambda name, _: bodies[name == "else_branch"], branch)
        return None if found is None else found.results

    def _is_known(self, node: ir.Node) -> bool:
        """Whether the results of bodies determine the types of all outputs."""
        results = self.control(node, _infos(node.inputs), of_value)
        return results is not None and all(it.complete for it in results)

    def after(self, graph: ir.Graph, where: GraphPlace, found: Mapping[str, ValueInfo]) -> InferredTypes:
        """Sets types that the decision on a graph inferred, and records them for the enclosing graph."""
        fill(graph, found)
        filled = {**self._filled, **found}
        inferred = InferredTypes(
            {name: _plain(info) for name, info in filled.items()},
            [_plain(of_value(it)) for it in graph.outputs],
            of_model=self._model is not None,
        )
        self.remember(where, inferred)
        return inferred

    def remember(self, where: GraphPlace, inferred: InferredTypes) -> None:
        """Records the types inferred in one graph, for later graphs."""
        known = self._graphs.setdefault(_key(where), {})
        for name, plain in inferred.values.items():
            info = _info_of(plain)
            known[name] = joined(known[name], info) if name in known else info
        if where.operator:
            bodies = self._made.setdefault(where.around, [])
            if where.operator != "If" or len(bodies) == 2:  # a repeated decision
                bodies.clear()
            bodies.append(list(map(_info_of, inferred.results)))

    def _of_model(self) -> Mapping[str, ValueInfo]:
        if self._model is None:
            try:
                model = _loaded(self._source())
                self._model = {} if model is None else types_of(model, self._target, self._settings)
            except Exception:
                # protobuf and onnx_ir raise exceptions of their own. ONNX Runtime read the model: it supports more formats.
                self._model = {}
        return self._model


def _loaded(source: str | bytes | None) -> ir.Model | None:
    """Returns the model. Weights in other files become values with types and shapes but without elements."""
    if not source:
        return None
    proto = onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(source, load_external_data=False)
    model = ir.from_proto(proto)
    for graph in (model.graph, *model.graph.subgraphs()):
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor):
                value.type, value.shape, value.const_value = ir.TensorType(tensor.dtype), tensor.shape, None
    return model


def _incomplete(values: Sequence[ir.Value]) -> bool:
    return any(value.name and not of_value(value).complete for value in values)


def _infos(values: Sequence[ir.Value | None]) -> list[ValueInfo]:
    return [ValueInfo() if value is None else of_value(value) for value in values]


def _names(values: Sequence[ir.Value | None]) -> tuple[str, ...]:
    return tuple("" if value is None else value.name or "" for value in values)


def _key(where: GraphPlace) -> tuple[str, ...]:
    return *where.around, "", *where.outputs


def _plain(info: ValueInfo) -> PlainInfo:
    return None if info.dtype is None else int(info.dtype), info.shape


def _info_of(plain: PlainInfo) -> ValueInfo:
    code, shape = plain
    return ValueInfo(None if code is None else ir.DataType(code), shape)
