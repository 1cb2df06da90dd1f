"""Models as ONNX Runtime shows them, and the compiler that a session on some adapter would get: no adapter is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from onnxruntime_ep_wgpu.errors import WgpuEpError
from onnxruntime_ep_wgpu.plugin.assign import subgraph
from onnxruntime_ep_wgpu.plugin.assign.converted import converted
from onnxruntime_ep_wgpu.plugin.assign.outcome import OwnKernel
from onnxruntime_ep_wgpu.plugin.assign.shown import Constant, ShownAttribute, ShownGraph, ShownNode, ShownValue
from onnxruntime_ep_wgpu.plugin.cached_compiler import CachedCompiler
from onnxruntime_ep_wgpu.program.file import header
from onnxruntime_ep_wgpu.program.settings import DEFAULT, CompileSettings
from onnxruntime_ep_wgpu.program.target import Target
from onnxruntime_ep_wgpu.program.weights import weight_array

KINDS = {
    ir.AttributeType.INT: "int",
    ir.AttributeType.FLOAT: "float",
    ir.AttributeType.STRING: "string",
    ir.AttributeType.INTS: "ints",
    ir.AttributeType.FLOATS: "floats",
    ir.AttributeType.STRINGS: "strings",
}
NUMBERS: dict[str, type[np.generic]] = {"ints": np.int64, "floats": np.float32}


def graph_of(model: onnx.ModelProto) -> ir.Graph:
    """The graph of a model, with what onnx infers of types."""
    with contextlib.suppress(Exception):  # what is no model for ONNX Runtime is decided on nevertheless
        model = onnx.shape_inference.infer_shapes(model, data_prop=True)
    graph = ir.from_proto(model).graph
    for value in list(graph.inputs):
        if value.is_initializer():
            graph.inputs.remove(value)
    return graph


def shown(model: onnx.ModelProto) -> ShownGraph:
    return shown_of(graph_of(model))


def bodies_of(node: ir.Node) -> list[ir.Graph]:
    return [it.as_graph() for it in node.attributes.values() if it.type == ir.AttributeType.GRAPH]


def from_outside(graph: ir.Graph) -> list[ir.Value]:
    """What the nodes of a graph, and of bodies in it, take from the graphs around."""
    own = {*graph.inputs, *graph.initializers.values(), *(it for node in graph for it in node.outputs)}
    read = [it for node in graph for it in (*node.inputs, *(v for body in bodies_of(node) for v in from_outside(body)))]
    return [it for it in dict.fromkeys((*read, *graph.outputs)) if it is not None and it not in own]


def shown_of(graph: ir.Graph, opsets: Mapping[str, int] | None = None) -> ShownGraph:
    """`opsets` are those of the model, of which a body has none."""
    opsets = dict(opsets or graph.opset_imports)
    values: dict[int, ShownValue] = {}

    def value_of(it: ir.Value | None) -> ShownValue | None:
        if it is None:
            return None
        if id(it) not in values:
            code = None if it.dtype is None else int(it.dtype)
            shape = None if it.shape is None else tuple(d if isinstance(d, int) else d.value for d in it.shape)
            values[id(it)] = ShownValue(it.name or "", code, shape)
            if it.const_value is not None:
                values[id(it)].constant = constant_of(it.const_value)
        return values[id(it)]

    def attribute_of(it: Any) -> ShownAttribute:
        if it.type == ir.AttributeType.TENSOR:
            return ShownAttribute(it.name, "tensor", constant_of(it.as_tensor()))
        if it.type == ir.AttributeType.GRAPH:
            return ShownAttribute(it.name, "graph")
        kind, value = KINDS[it.type], it.value
        if kind in NUMBERS:
            return ShownAttribute(it.name, kind, np.array(value, NUMBERS[kind]))
        return ShownAttribute(it.name, kind, list(value) if isinstance(value, (list, tuple)) else value)

    nodes = []
    for number, it in enumerate(graph):
        node = ShownNode(
            it.domain,
            it.op_type,
            it.version or opsets.get(it.domain, 1),
            it.name or f"{it.op_type}_{number}",
            [value_of(value) for value in it.inputs],
            [value for value in map(value_of, it.outputs) if value is not None],
            [attribute_of(a) for a in it.attributes.values()],
            [value for body in bodies_of(it) for value in map(value_of, from_outside(body)) if value is not None],
        )
        for value in node.outputs:
            value.maker = node
        nodes.append(node)
    outside = from_outside(graph)
    given = (*graph.inputs, *(it for it in outside if it.const_value is None))
    inputs = [value for value in map(value_of, given) if value is not None]
    outputs = [value for value in map(value_of, graph.outputs) if value is not None]
    among = {**graph.initializers, **{it.name or "": it for it in outside if it.const_value is not None}}
    constants = {name: value_of(it) for name, it in sorted(among.items())}
    known = {name: it for name, it in constants.items() if it is not None}
    return ShownGraph(graph.name or "", inputs, outputs, nodes, known, dict(opsets))


def constant_of(tensor: ir.TensorProtocol) -> Constant:
    shape = tuple(map(int, tensor.shape.numpy()))
    if tensor.dtype == ir.DataType.STRING:
        return Constant(8, 0, shape, np.empty(0, np.uint8))
    raw = np.frombuffer(tensor.tobytes(), np.uint8)
    return Constant(int(tensor.dtype), int(tensor.dtype.bitwidth), shape, raw)


@dataclass
class Asked:
    """A model on an adapter, with the options of a session."""

    model: onnx.ModelProto
    target: Target
    settings: CompileSettings = DEFAULT
    forced: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()  # nodes of another provider


@dataclass
class Answer:
    """What a session would get, as plain data; `compiled` is what did not come from the store, `told` what it said."""

    claim: Any
    programs: list[Any]
    compiled: list[str] = field(default_factory=list)
    told: list[tuple[str, bool]] = field(default_factory=list)

    @property
    def plain(self) -> Any:
        return self.claim, self.programs


def answer(asked: Asked, apart: bool = False) -> Answer:
    """The compiler to a session, which looks into the store that the environment says. `apart`: each group is compiled by itself,
    and not as it was lowered for the claim."""
    told: list[tuple[str, bool]] = []
    source = asked.model.SerializeToString()
    compiler = CachedCompiler(
        asked.target, asked.settings, lambda: source, lambda line, aloud: told.append((line, aloud))
    )
    found = _Answering(asked, compiler, apart)
    graph = graph_of(asked.model)
    found.graph(graph, graph.opset_imports, None)
    compiler.end()
    return Answer(found.claims, found.programs, compiler.compiled, told)


class _Answering:
    """Asks about the graphs of a model, bodies first, as ONNX Runtime does."""

    def __init__(self, asked: Asked, compiler: CachedCompiler, apart: bool) -> None:
        self._asked, self._compiler, self._apart = asked, compiler, apart
        self.claims: list[Any] = []
        self.programs: list[Any] = []

    def graph(self, graph: ir.Graph, opsets: Mapping[str, int], parent: ShownNode | None) -> bool:
        """Whether something of it runs here."""
        seen = shown_of(graph, opsets)
        single = {}
        for place, node in enumerate(graph):
            within = [self.graph(body, opsets, seen.nodes[place]) for body in bodies_of(node)]
            if any(within) and seen.nodes[place].name not in self._asked.held:
                single[place] = OwnKernel(node.op_type)
        assigned = ["OtherExecutionProvider" if node.name in self._asked.held else "" for node in seen]
        claim = self._compiler.claim(seen, parent, assigned, self._asked.forced, single)
        if self._apart:
            self._compiler._compile().lowerings.clear()
        declared = frozenset(it.name for it in seen.inputs) if parent is None else frozenset[str]()
        whole = converted(seen)
        nodes = list(whole)
        for number, places in enumerate(claim.groups):
            # ONNX Runtime knows nothing of what the decision found out.
            group = shown_of(subgraph.extract(whole, [nodes[place] for place in places]))
            self._program(group, f"group {number}", declared)
        reasons = [(type(it).__name__, it) for it in claim.reasons]
        self.claims.append((claim.groups, claim.kernels, reasons))
        return bool(claim.parts)

    def _program(self, group: ShownGraph, name: str, declared: frozenset[str]) -> None:
        try:
            answered = self._compiler.program(group, name, declared)
            stored, again = answered.stored, answered.specialise
        except (AssertionError, WgpuEpError) as error:  # which sessions are refused with, every time
            self.programs.append(str(error))
            return
        arrays = [np.ascontiguousarray(weight_array(it)) for it in stored.program.weights]
        plain = header(stored.program), [(it.dtype.name, it.shape, it.tobytes()) for it in arrays]
        self.programs.append((stored.inputs, stored.outputs, plain, again.may_relax, sorted(again.constants)))
