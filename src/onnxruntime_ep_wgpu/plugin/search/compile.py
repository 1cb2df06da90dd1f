"""A node that generates text, from ONNX Runtime's graph: whether its bodies can run here, and compiled.

In: a node as ONNX Runtime shows it, with its bodies. Out: a lowering per body, or a reason against the node; later a `SearchNode`.
Invariant: what was claimed compiles, because its bodies were lowered to decide on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import onnx_ir as ir

from ..._ort import ffi
from ...compiler.compile import compile_graph, compile_lowered
from ...compiler.lower.lower import attempt
from ...errors import UnsupportedError
from ...program.dtypes import DType
from ...program.weights import weight_array
from ..abi import Ort, text
from ..assign import graph as ort_graph
from ..assign.converted import converted, converted_node
from ..assign.lowerings import Lowerings, order_as
from ..assign.shown import ShownGraph, ShownNode
from ..group import CompiledGroup
from ..known import FusedNode
from ..specialise import Specialiser
from .bodies import SearchBody, bodies_of
from .node import SearchNode
from .operators import search_of
from .steps import SearchStep

if TYPE_CHECKING:
    from ...compiler.ir import LoweredGraph
    from ...device import Buffer, Device
    from ...program.program import Program
    from ...program.settings import CompileSettings
    from ...program.target import Target

# Weights by name that a device has.
Shared = Callable[["Device"], "Mapping[str, Buffer]"]
# From a body and its Program to what runs it.
MakeGroup = Callable[[SearchBody, "Program", Specialiser, Shared], CompiledGroup]


def graphs_of(ort: Ort, node: ShownNode | ir.Node) -> dict[str, ShownGraph]:
    """The bodies of a node as ONNX Runtime shows them, by attribute."""
    handle = node.meta["ort_node"]
    count = ort.get(ort.api.Node_GetNumSubgraphs, handle, "size_t")
    graphs, names = ffi.new("const OrtGraph *[]", max(1, count)), ffi.new("const char *[]", max(1, count))
    ort.check_status(ort.api.Node_GetSubgraphs(handle, graphs, count, names))
    return {text(names[k]): ort_graph.read(ort, graphs[k]) for k in range(count)}


def _bodies(ort: Ort, node: ir.Node) -> dict[str, SearchBody]:
    outside = {value.name or "" for value in node.meta["implicit_inputs"]}
    graphs = {name: converted(graph) for name, graph in graphs_of(ort, node).items()}
    return bodies_of(search_of(node), graphs, outside)


def lowered_bodies(
    ort: Ort, node: ShownNode, target: Target, settings: CompileSettings
) -> list[tuple[ir.Graph, LoweredGraph]]:
    """The graphs that a node is compiled to, lowered. Raises UnsupportedError that names what cannot run."""
    found = []
    for name, body in _bodies(ort, converted_node(node)).items():
        tried = attempt(body.graph, body.graph.opset_imports, target, settings)
        for inner, reason in zip(body.graph, tried.reasons, strict=True):
            if reason is not None:
                raise UnsupportedError(
                    f"its {name} runs here whole or not at all: {inner.op_type} ({inner.name}): {reason}"
                )
        if tried.lowered is None:
            raise UnsupportedError(f"its {name} cannot be compiled")
        found.append((body.graph, tried.lowered))
    return found


def compiled_search(
    ort: Ort,
    graph: ir.Graph,
    fused: FusedNode,
    target: Target,
    settings: CompileSettings,
    lowerings: Lowerings,
    make: MakeGroup,
) -> SearchNode:
    """The only node of a graph, compiled. `fused` has its inputs and outputs as ONNX Runtime calls it."""
    node = graph[0]
    search = search_of(node)
    search = replace(search, outputs={role: it for role, it in search.outputs.items() if it in fused.output_names})
    outside = frozenset(value.name or "" for value in node.meta["implicit_inputs"])
    steps: dict[str, SearchStep] = {}
    for name, body in _bodies(ort, node).items():
        inner = body.graph
        lowered = lowerings.take(inner)
        label = f"{node.name}.{name}"
        if lowered is None:
            program = compile_graph(inner, inner.opset_imports, target, label, settings)
        else:
            order_as(inner, lowered)
            program = compile_lowered(lowered, target, label)
        specialise = Specialiser(inner, inner.opset_imports, target, label, settings, frozenset())
        inputs = [it.name or "" for it in inner.inputs]
        steps[name] = SearchStep(body, make(body, program, specialise, _shared(list(steps.values()), outside)), inputs)
    values = {it.name: it for it in (*node.inputs, *node.outputs) if it is not None}
    constants = {
        role: weight_array(tensor).copy()
        for role, name in search.inputs.items()
        if (tensor := values[name].const_value) is not None
    }
    types = {role: _type(role, values[name]) for role, name in search.outputs.items()}
    return SearchNode(ort, search, steps, fused, constants, types)


def _shared(others: Sequence[SearchStep], outside: frozenset[str]) -> Shared:
    """The weights of the graph around that other bodies have read: one copy on the device serves all."""

    def found(device: Device) -> dict[str, Buffer]:
        live = [it.group.on_device().executable for it in others]
        return {name: it for each in live if each.device is device for name, it in each.weights_of(outside).items()}

    return found


def _type(role: str, value: ir.Value) -> DType:
    if value.dtype is None:
        return DType.INT32 if role == "sequences" else DType.FLOAT32
    return DType.of(int(value.dtype))
