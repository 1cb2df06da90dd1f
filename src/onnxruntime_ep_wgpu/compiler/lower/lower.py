"""Lowers an onnx_ir.Graph node by node (`lower_node`): the whole graph, or the nodes that can be lowered, with reasons for
the rest.

Lowering is also the shape inference and the capability check. It generates no WGSL, so it is cheap enough for that. For nodes
that cannot run here, `inference/` infers types and shapes of the results, so that their readers can be lowered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import onnx_ir as ir

from ...errors import Fault, FreeSize, FreeSizeError, InternalError, ModelError, UnsupportedError, with_message
from ...program.settings import DEFAULT, CompileSettings
from ...program.target import Target
from ...records import dataclass
from ..graph.fold import Folded, fold_constants
from ..graph.inference import nodes as inference
from ..graph.inference.bodies import Control
from ..graph.inference.value_info import UNKNOWN, ValueInfo
from ..ir import LoweredGraph, Storage, Tensor
from .builder import Builder
from .limits import Limits, within_limits
from .lower_node import Lowering
from .operand import Operand
from .ops import registry
from .structures import LEAVES, MADE_ELSEWHERE


def lower(
    graph: ir.Graph,
    opsets: Mapping[str, int],
    target: Target,
    settings: CompileSettings = DEFAULT,
    fixed: Mapping[str, int] | None = None,
) -> LoweredGraph:
    """Lowers a graph of nodes that can all run. Otherwise raises UnsupportedError or ModelError, which names the node.

    `fixed` maps labels of symbols to values.
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
            raise with_message(error, f"node {node.name!r} ({node.op_type}): {error}") from error
        except ModelError as error:
            raise _fault(node, error) from error
    return _lowered(lowering, graph.outputs)


@dataclass(frozen=True)
class Attempt:
    """The result of lowering a graph.

    * `reasons`: one entry per node in graph order: None, or the reason why the node cannot run. It is a Fault if the node is
      invalid for every provider, or if this package is at fault.
    * `lowered`: the lowered graph, if all nodes can run.
    * `found`: by name, what is known of values without type or rank in the graph.
    * `moves`: the positions of nodes that compute nothing: they create views, or convert their operand.
    * `waits`: pairs of positions. The second node needs sizes or elements of the first one's results, so no group contains
      both.
    * `taken`: the branch that runs in every run, for each If with a known condition.
    * `hosted`: the names of results with elements that a host can compute.
    """

    reasons: list[str | None]
    lowered: LoweredGraph | None = None
    found: Mapping[str, ValueInfo] = field(default_factory=dict)
    moves: frozenset[int] = frozenset()
    waits: frozenset[tuple[int, int]] = frozenset()
    taken: Mapping[ir.Node, ir.Graph] = field(default_factory=dict)
    hosted: frozenset[str] = frozenset()


def attempt(
    graph: ir.Graph,
    opsets: Mapping[str, int],
    target: Target,
    settings: CompileSettings = DEFAULT,
    around: Mapping[str, ValueInfo] | None = None,
    control: Control | None = None,
    unread: frozenset[str] = frozenset(),
    on_host: frozenset[str] = frozenset(),
) -> Attempt:
    """Lowers the nodes that can be lowered, as if the graph were cut out of a larger one. A node reads every input, and a
    node produces every output. Results of nodes that cannot run count as inputs.

    `around` contains what is known of the graph's inputs and of values around it, by name. `control` infers the results of
    nodes with bodies. Elements of the inputs named in `unread` are no symbols. No kernel stores the results named in
    `on_host`.
    """
    folded = fold_constants(graph, opsets)

    def lowered(limits: Limits) -> tuple[Attempt, LoweredGraph | None]:
        lowering = Lowering(opsets, target, settings, limits=limits, around=around, unread=unread)
        found = _attempt(graph, folded, lowering, control, on_host)
        return found, found.lowered

    return within_limits(lowered, target)


def _attempt(
    graph: ir.Graph, folded: Folded, lowering: Lowering, control: Control | None, on_host: frozenset[str]
) -> Attempt:
    lowering.begin(graph, folded)
    lowering.may_wait = frozenset(graph)
    reasons: list[str | None] = []
    moves: set[int] = set()
    for value in graph.inputs:
        if value.const_value is None and value.uses() and lowering.known(value).complete:
            try:
                lowering.values[value] = lowering.operand_of_input(value)
            except UnsupportedError:
                continue  # raised again with the node's name, where the value is used
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
        if reason is not None and not isinstance(reason, Fault):
            _infer(node, lowering, control)
        reasons.append(reason)
        known = registry.declared(node.op_type, node.domain)
        if len(lowering.builder.nodes) == made or (known is not None and known.converts):
            moves.add(place)
    _refuse_escaping_structures(graph, lowering, reasons)
    found = lowering.found()
    places = {node: place for place, node in enumerate(graph)}
    waits = frozenset(
        (places[maker], places[node])
        for node, values in lowering.waits.items()
        for value in values
        if (maker := value.producer()) is not None and reasons[places[node]] is None
    )
    results = [it for it in graph.outputs if it.producer() is not None]
    hosted = frozenset(it.name or "" for it in results if it in lowering.values and lowering.values[it].has_host)
    attempted = Attempt(reasons, None, found, frozenset(moves), waits, lowering.taken, hosted)
    if waits or any(reason is not None for reason in reasons):
        return attempted
    try:
        return replace(attempted, lowered=_lowered(lowering, results, on_host))
    except UnsupportedError:
        return attempted  # compilation reports the reason


def _refuse_escaping_structures(graph: ir.Graph, lowering: Lowering, reasons: list[str | None]) -> None:
    """Refuses nodes that produce a sequence or an optional value if it is a graph output or a node elsewhere reads it. Nodes
    that read results of refused nodes are refused too."""
    if not lowering.structures:
        return
    read = [{*node.inputs, *node.meta.get("implicit_inputs", ())} for node in graph]
    results = set(graph.outputs)
    refused: set[ir.Value] = set()  # structures of nodes that do not run here
    while True:
        before = len(refused)
        for place, node in enumerate(graph):
            made = [it for it in node.outputs if it in lowering.structures]
            leaving = [
                it
                for it in made
                if it in results or any(why and it in some for why, some in zip(reasons, read, strict=True))
            ]
            if reasons[place] is None and leaving:
                reasons[place] = f"{leaving[0].name!r} {LEAVES}"
            elif reasons[place] is None and (missing := refused.intersection(node.inputs)):
                reasons[place] = f"{missing.pop().name!r} {MADE_ELSEWHERE}"
            if reasons[place] is not None:
                refused.update(made)
        if len(refused) == before:
            return


def _infer(node: ir.Node, lowering: Lowering, control: Control | None) -> None:
    """Infers the results of a node that cannot run here, if the graph does not state them. Bodies may need more than this."""
    operands = [UNKNOWN if value is None else lowering.known(value) for value in node.inputs]
    try:
        branch = lowering.decided.get(node)
        made = control(node, operands, lowering.known, branch) if control is not None else None
        if all(lowering.known(value).complete for value in node.outputs):
            return
        if made is None:
            made = inference.results(node, lowering.opsets, operands)
    except (TypeError, ValueError, LookupError):
        return  # nothing follows from an attribute that is missing or has another kind
    lowering.info.update(zip(node.outputs, made, strict=False))


def _lowered(lowering: Lowering, results: Sequence[ir.Value], on_host: frozenset[str] = frozenset()) -> LoweredGraph:
    outputs: list[Tensor] = []
    shapes: dict[Tensor, Operand] = {}
    for value in results:
        if value in lowering.structures:
            raise UnsupportedError(f"the result {value.name!r} {LEAVES}")
        operand = lowering.operand(value)
        assert operand is not None
        made_by = operand.view.tensor.producer
        lowering.builder.origin = made_by.origin if made_by is not None else (f"output {value.name}",)
        if value.name in on_host and operand.has_host:
            outputs.append(_on_host(lowering.builder, operand, value.name or ""))
        elif operand.sized is None:
            outputs.append(_output(lowering.builder, operand, value.name or "", outputs))
        else:
            most = Operand(operand.dtype, operand.view.shape, operand.view)
            outputs.append(_output(lowering.builder, most, value.name or "", outputs))
            shapes[outputs[-1]] = operand.sized
    made = list(outputs)
    sized = [
        (output, _output(lowering.builder, shape, f"the shape of {output.name}", made))
        for output, shape in shapes.items()
    ]
    outputs += [shape for _, shape in sized]
    return LoweredGraph(
        tuple(lowering.inputs.symbols.values()),
        lowering.inputs.tensors,
        outputs,
        lowering.builder.nodes,
        lowering.builder.conditions,
        lowering.operators,
        lowering.builder.assertions,
        sized=sized,
    )


def _on_host(builder: Builder, operand: Operand, name: str) -> Tensor:
    """Returns a result that a plan can compute. The host has it, and no kernel stores it."""
    elements = tuple(operand.host.reshape(-1).tolist())
    for condition, what in operand.conditions.items():
        builder.require(condition, f"{name!r} depends on a host value that is invalid in this run: {what}")
    return Tensor(operand.dtype, operand.shape, Storage.HOST, name, elements=elements)


def _output(builder: Builder, operand: Operand, name: str, taken: list[Tensor]) -> Tensor:
    """Returns a tensor that this graph writes, with the operand's content. A view, a weight, an input or the second use of a
    tensor is copied."""
    view = operand.view
    tensor = view.tensor
    if not view.is_whole or tensor.storage is not Storage.TEMP or tensor in taken or tensor.shape != operand.shape:
        tensor = builder.stored(operand).view.tensor
    tensor.storage, tensor.name = Storage.OUTPUT, name
    return tensor


def _fault(node: ir.Node, error: ModelError) -> ModelError:
    return with_message(error, f"node {node.name!r} ({node.op_type}): {error}")
