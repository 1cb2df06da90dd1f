"""onnx_ir.Graph to lowered graph, node by node (`lower_node`): all of it, or what can be lowered and why the rest cannot.

Lowering is also the shape inference and the answer to "can this node run here". It generates no WGSL, so it is cheap enough
to be the capability check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from ..errors import Fault, FreeSize, FreeSizeError, InternalError, ModelError, UnsupportedError
from ..program.target import Target
from .builder import Builder
from .fold import Folded, fold_constants
from .ir import LoweredGraph, Storage, Tensor
from .limits import Limits, within_limits
from .lower_node import Lowering
from .operand import Operand
from .ops import registry
from .settings import DEFAULT, CompileSettings


def lower(
    graph: ir.Graph,
    opsets: Mapping[str, int],
    target: Target,
    settings: CompileSettings = DEFAULT,
    fixed: Mapping[str, int] | None = None,
) -> LoweredGraph:
    """Lowers a graph all of whose nodes can run; raises UnsupportedError or ModelError naming the node otherwise.

    `fixed` gives values to symbols, by label.
    """
    folded = fold_constants(graph, opsets)

    def lowered(limits: Limits) -> tuple[LoweredGraph, LoweredGraph]:
        found = _lower(graph, folded, Lowering(opsets, target, settings, fixed, limits))
        return found, found

    return within_limits(lowered, target)


def _lower(graph: ir.Graph, folded: Folded, lowering: Lowering) -> LoweredGraph:
    lowering.begin(graph, folded)
    for value in graph.inputs:
        if value.const_value is None:
            lowering.values[value] = lowering.inputs.operand(value)
    for node in graph:
        if node in folded.nodes:
            continue
        try:
            lowering.node(node)
        except UnsupportedError as error:
            raise type(error)(f"node {node.name!r} ({node.op_type}): {error}") from error
        except ModelError as error:
            raise _fault(node, error) from error
    return _lowered(lowering, graph.outputs)


@dataclass(frozen=True)
class Attempt:
    """What came of lowering a graph: per node in its order None, or the reason why it cannot run; `lowered` when all can.

    A reason is a Fault where the node is wrong in itself, so that no provider could run it, or where this package is. `shapes`
    are those found of values whose rank the graph does not tell, by name; None for an extent that the run decides. `moves` are
    the places of nodes that calculate nothing: they make views, or convert their operand.
    """

    reasons: list[str | None]
    lowered: LoweredGraph | None = None
    shapes: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    moves: frozenset[int] = frozenset()


def attempt(graph: ir.Graph, opsets: Mapping[str, int], target: Target, settings: CompileSettings = DEFAULT) -> Attempt:
    """Lowers what can be lowered of a graph, as it is when it is cut out of a larger one: with inputs that a node reads and
    outputs that a node makes. What a node makes that cannot run counts as an input.
    """
    folded = fold_constants(graph, opsets)

    def lowered(limits: Limits) -> tuple[Attempt, LoweredGraph | None]:
        found = _attempt(graph, folded, Lowering(opsets, target, settings, limits=limits))
        return found, found.lowered

    return within_limits(lowered, target)


def _attempt(graph: ir.Graph, folded: Folded, lowering: Lowering) -> Attempt:
    lowering.begin(graph, folded)
    reasons: list[str | None] = []
    moves: set[int] = set()
    for value in graph.inputs:
        if value.const_value is None and value.dtype is not None and value.shape is not None and value.uses():
            try:
                lowering.values[value] = lowering.inputs.operand(value)
            except UnsupportedError:
                continue  # said again, with the node's name, where the value is used
    for place, node in enumerate(graph):
        reason, made = None, len(lowering.builder.nodes)
        try:
            if node not in folded.nodes:
                lowering.node(node)
        except UnsupportedError as error:
            reason = FreeSize(error) if isinstance(error, FreeSizeError) else str(error)
        except ModelError as error:
            reason = Fault(_fault(node, error))
        except InternalError as error:
            reason = Fault(error)
        reasons.append(reason)
        known = registry.declared(node.op_type, node.domain)
        if len(lowering.builder.nodes) == made or (known is not None and known.converts):
            moves.add(place)
    sure = not lowering.builder.assumes  # else only ranks are
    shapes = {
        value.name: tuple(dim if sure and isinstance(dim, int) else None for dim in operand.shape)
        for value, operand in lowering.values.items()
        if value.shape is None and value.name
    }
    if any(reason is not None for reason in reasons):
        return Attempt(reasons, None, shapes, frozenset(moves))
    try:
        results = [it for it in graph.outputs if it.producer() is not None]
        return Attempt(reasons, _lowered(lowering, results), shapes, frozenset(moves))
    except UnsupportedError:
        return Attempt(reasons, None, shapes, frozenset(moves))  # compiling says why


def _lowered(lowering: Lowering, results: Sequence[ir.Value]) -> LoweredGraph:
    outputs: list[Tensor] = []
    for value in results:
        operand = lowering.operand(value)
        assert operand is not None
        made_by = operand.view.tensor.producer
        lowering.builder.origin = made_by.origin if made_by is not None else (f"output {value.name}",)
        outputs.append(_output(lowering.builder, operand, value.name or "", outputs))
    return LoweredGraph(
        tuple(lowering.inputs.symbols.values()),
        lowering.inputs.tensors,
        outputs,
        lowering.builder.nodes,
        lowering.builder.conditions,
        lowering.operators,
        lowering.builder.assertions,
    )


def _output(builder: Builder, operand: Operand, name: str, taken: list[Tensor]) -> Tensor:
    """A tensor that this graph writes, holding the operand; a view, weight, input or second use of a tensor is copied."""
    view = operand.view
    tensor = view.tensor
    if not view.is_whole or tensor.storage is not Storage.TEMP or tensor in taken or tensor.shape != operand.shape:
        tensor = builder.stored(operand).view.tensor
    tensor.storage, tensor.name = Storage.OUTPUT, name
    return tensor


def _fault(node: ir.Node, error: ModelError) -> ModelError:
    return type(error)(f"node {node.name!r} ({node.op_type}): {error}")
