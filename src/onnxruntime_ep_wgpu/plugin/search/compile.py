"""Compiles a node that generates text: one Program per body, in a node that runs them.

In: a node as ONNX Runtime shows it, with its bodies, and functions that return Programs and groups. Out: a `SearchNode`.
Invariant: a claimed node compiles, because its bodies were lowered for the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ...program.dtypes import DType
from ..abi import Ort
from ..assign.graph import read_bodies
from ..assign.shown import ShownGraph, ShownNode, ShownValue
from ..group import CompiledGroup
from ..known_tensors import FusedNode
from ..store.programs import array_of
from .bodies import SearchBody, bodies_of
from .node import SearchNode
from .operators import search_of
from .steps import SearchStep

if TYPE_CHECKING:
    from ...device import Buffer, Device
    from ..cached_compiler import CompiledProgram
    from ..context.shared import Shared

# Returns the Program of a body, from its attribute, its graph and its name.
GiveProgram = Callable[[str, ShownGraph, str], "CompiledProgram"]
# Returns the group that runs a body, from the body, its graph, its Program and the shared weights.
MakeGroup = Callable[[SearchBody, ShownGraph, "CompiledProgram", "Shared"], CompiledGroup]


def compiled_search(ort: Ort, node: ShownNode, fused: FusedNode, program: GiveProgram, make: MakeGroup) -> SearchNode:
    """Compiles the only node of a graph. `fused` has its inputs and outputs as ONNX Runtime calls it."""
    search = search_of(node)
    search = replace(search, outputs={role: it for role, it in search.outputs.items() if it in fused.output_names})
    outside = frozenset(it.name for it in node.implicit_inputs)
    values = {it.name: it for it in (*node.inputs, *node.outputs) if it is not None}
    constants = {
        role: array_of(constant).copy()
        for role, name in search.inputs.items()
        if (constant := values[name].constant) is not None
    }
    graphs = read_bodies(ort, node)
    steps: dict[str, SearchStep] = {}
    for name, body in bodies_of(search, graphs, outside).items():
        answer = program(name, graphs[name], f"{node.name}.{name}")
        group = make(body, graphs[name], answer, _shared(list(steps.values()), outside))
        steps[name] = SearchStep(body, group, answer.stored.inputs)
    types = {role: _type(role, values[name]) for role, name in search.outputs.items()}
    return SearchNode(ort, search, steps, fused, constants, types)


def _shared(others: Sequence[SearchStep], outside: frozenset[str]) -> Shared:
    """Returns a function for the weights of the surrounding graph that other bodies have read.

    So one copy on the device serves all bodies.
    """

    def found(device: Device) -> dict[str, Buffer]:
        live = [it.group.on_device().executable for it in others]
        return {name: it for each in live if each.device is device for name, it in each.weights_of(outside).items()}

    return found


def _type(role: str, value: ShownValue) -> DType:
    if value.code is None:
        return DType.INT32 if role == "sequences" else DType.FLOAT32
    return DType.of(value.code)
