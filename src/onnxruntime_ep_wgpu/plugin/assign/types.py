"""Types and shapes in the graphs of one session that ONNX Runtime does not know.

In: each graph as it is decided on, the node that it is a body of, and the model's file or bytes where they are known. Out: the
graph with all that is known filled in, and what nodes with bodies make. ONNX Runtime shows bodies before the graphs around them:
what a body makes is kept for its node, and a state of a loop begins with an operand of the node. Where that says too little, as
in a loop in a loop, the model is read as a whole, once (`compiler/lower/model_types.py`).
Invariant: what is filled in is true of every run as far as ONNX Runtime's own types and ranks are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx
import onnx_ir as ir

from ...compiler.graph.inference.bodies import Known, has_body, solved
from ...compiler.graph.inference.value_info import ValueInfo, fill, joined, merged, of_value
from ...compiler.lower.lower import attempt
from ...compiler.lower.model_types import types_of
from ...program.settings import CompileSettings
from ...program.target import Target
from .inferred import GraphPlace, InferredTypes, PlainInfo

Source = Callable[[], str | bytes | None]


class Types:
    """Those of one session. `source` gives the file name or the bytes of the model."""

    def __init__(self, target: Target, settings: CompileSettings, source: Source) -> None:
        self._target, self._settings, self._source = target, settings, source
        self._model: Mapping[str, ValueInfo] | None = None
        self._graphs: dict[tuple[str, ...], dict[str, ValueInfo]] = {}
        self._filled: dict[str, ValueInfo] = {}  # in the graph that is decided on
        self._made: dict[tuple[str, ...], list[list[ValueInfo]]] = {}  # by the bodies of a node, one after another

    def before(self, graph: ir.Graph, where: GraphPlace, parent: ir.Node | None) -> Mapping[str, ValueInfo]:
        """Fills in what is known of a graph before it is decided on, and gives that. `parent` is the node that it is a body of."""
        # ONNX Runtime asks again about what it has left of a graph, where a group of ours is one node without shapes.
        self._filled = fill(graph, self._graphs.get(_key(where), {}))
        if parent is not None and _incomplete(graph.inputs):
            self._enter(graph, parent)
        unsaid = (node for node in graph if has_body(node) and _incomplete(node.outputs))
        if (parent is not None and _incomplete(graph.inputs)) or not all(map(self._is_known, unsaid)):
            self._filled |= fill(graph, self._of_model())
        return self._filled

    def _enter(self, graph: ir.Graph, parent: ir.Node) -> None:
        """Fills in what enters the body of a loop."""
        inputs = [value for value in graph.inputs if value.name not in _names(parent.meta["implicit_inputs"])]

        def run(_attribute: str, entering: Sequence[ValueInfo]) -> list[ValueInfo] | None:
            given = {it.name or "": merged(of_value(it), info) for it, info in zip(inputs, entering, strict=False)}
            made = attempt(graph, graph.opset_imports, self._target, self._settings, given, self.control)
            return [merged(of_value(it), made.found.get(it.name or "", ValueInfo())) for it in graph.outputs]

        found = solved(parent, _infos(parent.inputs), run)
        if found is not None:
            self._filled |= fill(graph, {it.name or "": info for it, info in zip(inputs, found.inputs, strict=False)})

    def control(
        self, node: ir.Node, operands: Sequence[ValueInfo], _known: Known, branch: str | None = None
    ) -> Sequence[ValueInfo] | None:
        """What a node with bodies makes, all of which were decided on. `branch` is that of an If that runs in every run."""
        bodies = self._made.get(_names(node.outputs), [])
        if len(bodies) < (2 if node.op_type == "If" else 1):
            return None
        found = solved(node, operands, lambda name, _: bodies[name == "else_branch"], branch)
        return None if found is None else found.results

    def _is_known(self, node: ir.Node) -> bool:
        """Whether what bodies make says it all."""
        results = self.control(node, _infos(node.inputs), of_value)
        return results is not None and all(it.complete for it in results)

    def after(self, graph: ir.Graph, where: GraphPlace, found: Mapping[str, ValueInfo]) -> InferredTypes:
        """Fills in what was found while a graph was decided on, and notes it for the graph around it."""
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
        """Notes for later graphs what was found out of one."""
        known = self._graphs.setdefault(_key(where), {})
        for name, plain in inferred.values.items():
            info = _info_of(plain)
            known[name] = joined(known[name], info) if name in known else info
        if where.operator:
            bodies = self._made.setdefault(where.around, [])
            if where.operator != "If" or len(bodies) == 2:  # it is asked again
                bodies.clear()
            bodies.append(list(map(_info_of, inferred.results)))

    def _of_model(self) -> Mapping[str, ValueInfo]:
        if self._model is None:
            try:
                model = _loaded(self._source())
                self._model = {} if model is None else types_of(model, self._target, self._settings)
            except Exception:
                # Of protobuf and onnx_ir, each its own. ONNX Runtime has read the model, and knows more formats.
                self._model = {}
        return self._model


def _loaded(source: str | bytes | None) -> ir.Model | None:
    """A model, without the weights in other files: these are values whose shapes are known."""
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
