"""Decides which nodes of a graph run here, in which groups, and why the others do not.

In: a graph, the compiler's result for its nodes, the user's options. Out: a `Claim`.
Invariants: a second call gives the same claim (inferred shapes are stored in the graph). A claimed group compiles: it was
lowered after it was cut out of the graph, in the form that will be compiled. Every node that is not claimed has a reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import onnx_ir as ir

from ...compiler.graph.inference.bodies import Control
from ...compiler.graph.inference.value_info import fill
from ...compiler.ir import LoweredGraph
from ...compiler.lower.lower import attempt
from ...compiler.lower.ops.host import makes_shapes, reads_shape_alone
from ...program.settings import DEFAULT, CompileSettings
from ...records import dataclass
from . import partition, subgraph
from .decision import FORCED, SHAPE_ARITHMETIC, VIEWS_AND_CASTS, Claim
from .outcome import Alone, Elsewhere, Fused, OwnKernel
from .shown import predecessors

if TYPE_CHECKING:
    from ...program.target import Target

SHORT = 64  # elements
# For values of these types, the CPU provider has kernels of all operators that compute shapes. It has Shape and Size for
# tensors of `_TENSORS`. `_NOT_ON_CPU` are the exceptions. It lacks kernels for other types in the ONNX specification, and ONNX
# Runtime rejects a node without a kernel of any provider.
_SHAPES = frozenset({ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL})
_INTEGERS = frozenset(ir.DataType[f"{sign}INT{bits}"] for sign in ("", "U") for bits in (8, 16, 32, 64))
_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
_TENSORS = _SHAPES | _INTEGERS | _FLOATS
# Operators with the type of their last operand. For float16, ONNX Runtime would convert the tensor only to count its elements.
_NOT_ON_CPU = frozenset({("Where", ir.DataType.BOOL), ("Size", ir.DataType.FLOAT16), ("Size", ir.DataType.BFLOAT16)})


@dataclass(frozen=True)
class Lowered:
    """A lowered group: its own graph, and the result of lowering."""

    graph: ir.Graph
    lowered: LoweredGraph


def claim(
    graph: ir.Graph,
    target: Target,
    assigned: Sequence[str],
    forced: frozenset[str],
    settings: CompileSettings = DEFAULT,
    control: Control | None = None,
    refusal: str | None = None,
    single: Mapping[int, Alone | OwnKernel | Elsewhere] | None = None,
) -> tuple[Claim, list[Lowered]]:
    """Returns the claim of a graph, and its lowered groups.

    `assigned`: per node the name of the provider that holds it, "" for none. `control`: infers the results of nodes with
    bodies. `refusal`: a reason against the whole graph. `single`: outcomes, by position, of nodes that share no group with
    others; these are not lowered here.

    A graph that is one group is lowered once. If a graph is divided, each group is lowered once more, in the form that will be
    compiled.
    """
    nodes = list(graph)
    if refusal is not None:
        return Claim(tuple(Elsewhere(f"held by {holder}" if holder else refusal) for holder in assigned)), []
    opsets: Mapping[str, int] = graph.opset_imports
    whole = attempt(graph, opsets, target, settings, control=control)
    reasons = list(whole.reasons)  # why a node shares no group with others
    kernels: dict[int, Alone | OwnKernel] = {}
    for place, node in enumerate(nodes):
        if assigned[place]:  # a node of another provider, or one of our groups
            reasons[place] = f"held by {assigned[place]}"
        elif node.name in forced:
            reasons[place] = FORCED
        elif single and place in single:
            outcome = single[place]
            reasons[place] = outcome.reason if isinstance(outcome, Elsewhere) else outcome.name
            if not isinstance(outcome, Elsewhere):
                kernels[place] = outcome
    held = [name or (kernels[place].name if place in kernels else "") for place, name in enumerate(assigned)]
    fill(graph, whole.found)
    before = predecessors(graph)
    passed: dict[tuple[int, ...], tuple[ir.Graph, LoweredGraph | None]] = {
        tuple(range(len(nodes))): (graph, whole.lowered)
    }
    waits = set(whole.waits)
    if waits:
        passed.clear()
    while True:
        _drop_shape_arithmetic(nodes, before, reasons, waits)
        _drop_views_and_casts(nodes, before, reasons, held, whole.moves)
        groups = [tuple(group) for group in partition.groups(before, [reason is None for reason in reasons], waits)]
        refused = False
        for group in groups:
            if group in passed:
                continue
            alone = subgraph.extract(graph, [nodes[place] for place in group])
            tried = attempt(alone, opsets, target, settings)
            for place, answer in zip(group, tried.reasons, strict=True):
                if answer is not None:
                    reasons[place] = answer
                    refused = True
            if tried.waits:
                waits |= {(group[maker], group[node]) for maker, node in tried.waits}
                refused = True
            passed[group] = alone, tried.lowered
        if not refused:
            kept = [
                Lowered(alone, lowered) for alone, lowered in map(passed.__getitem__, groups) if lowered is not None
            ]
            fused = {place: Fused(number) for number, group in enumerate(groups) for place in group}
            outcomes = (
                fused.get(place) or kernels.get(place) or Elsewhere(reason or "")
                for place, reason in enumerate(reasons)
            )
            return Claim(tuple(outcomes), whole.found), kept


def _drop_shape_arithmetic(
    nodes: list[ir.Node], before: list[list[int]], reasons: list[str | None], waits: partition.Waits
) -> None:
    """Leaves shape arithmetic on the CPU if no node connected to it in its group computes with tensors.

    A graph of only shape arithmetic stays here, because the user requested this provider for it.
    """
    can_run = [reason is None for reason in reasons]
    islands = [
        place
        for part in partition.components(before, partition.levels(before, can_run, waits))
        if all(_is_shape_arithmetic(nodes[place], before[place], can_run) for place in part)
        for place in part
    ]
    if len(islands) < len(nodes):
        for place in islands:
            reasons[place] = SHAPE_ARITHMETIC


def _drop_views_and_casts(
    nodes: list[ir.Node],
    before: list[list[int]],
    reasons: list[str | None],
    assigned: Sequence[str],
    moves: frozenset[int],
) -> None:
    """Leaves views and casts on the CPU if all producers of their inputs and all readers of their outputs run there.

    Here, the tensors would be uploaded and downloaded without any computation.
    """
    can_run = [reason is None for reason in reasons]
    for part in partition.components(before, partition.levels(before, can_run)):
        own = frozenset(part)
        makers = {place for it in part for place in before[it]} - own
        users = {place for place, made in enumerate(before) if not own.isdisjoint(made)} - own
        read, made = ([value for it in part for value in getattr(nodes[it], kind)] for kind in ("inputs", "outputs"))
        if (
            makers
            and moves.issuperset(part)
            and all(_is_cheap_on_cpu(nodes[place]) for place in part)
            and not any(can_run[place] or assigned[place] for place in makers | users)
            and not any(nodes[place].meta.get("implicit_inputs") for place in users)  # a body may read it here
            and not any(value is not None and value.is_graph_input() for value in read)
            and not any(value.is_graph_output() for value in made)
        ):
            for place in part:
                reasons[place] = VIEWS_AND_CASTS


def _is_cheap_on_cpu(node: ir.Node) -> bool:
    """Whether the CPU provider certainly has a kernel for a node that moves or converts elements."""
    if node.domain not in ("", "ai.onnx"):
        return False
    types = {value.dtype for value in (*node.inputs, *node.outputs) if value is not None and value.name}
    if node.op_type in ("Cast", "CastLike"):
        return types <= _TENSORS
    integers = _SHAPES if makes_shapes(node.op_type, node.domain) else frozenset()
    return types <= {ir.DataType.FLOAT} | integers


def _is_shape_arithmetic(node: ir.Node, before: list[int], can_run: list[bool]) -> bool:
    """Whether a node makes only scalars and short vectors of integers, reads no tensor on the device, and has a kernel of the
    CPU provider."""
    last = node.inputs[-1] if node.inputs else None
    if last is None or (node.op_type, last.dtype) in _NOT_ON_CPU:
        return False
    if reads_shape_alone(node.op_type, node.domain):
        # If the tensor is made here, the node on the CPU would need a download of all of it.
        makers = [place for place in before if can_run[place]]
        return not makers and last.dtype in _TENSORS
    if not makes_shapes(node.op_type, node.domain):
        return False
    values = [value for value in (*node.inputs, *node.outputs) if value is not None and value.name]
    return all(_is_small_integer(value) for value in values)


def _is_small_integer(value: ir.Value) -> bool:
    """Whether a value is a scalar, or a vector of at most SHORT elements, as vectors of dimensions are.

    A vector of unknown length is not small.
    """
    if value.dtype not in _SHAPES:
        return False
    if value.shape is None or len(value.shape) > 1:
        return False
    return all(isinstance(extent, int) and extent <= SHORT for extent in value.shape)
