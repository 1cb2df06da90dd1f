"""onnx_ir.Graph to lowered graph: each node's operator is looked up and asked for views, maps and calls.

Lowering is also the shape inference and the answer to "can this node run here": it computes every shape as an exact
expression of the input dims, and raises UnsupportedError with the reason when a node has no kernel. It generates no WGSL,
so it is cheap enough to be the capability check.
"""

from __future__ import annotations

import itertools
import math
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from ..errors import Fault, InternalError, ModelError, UnsupportedError, WgpuEpError
from ..program.dtypes import DType
from ..program.program import NO_EXTENT
from ..program.target import Target
from . import expand, ops
from .builder import Builder
from .channels import channels_last_in
from .dims import Dim, symbol
from .fold import Folded, fold_constants
from .ir import LoweredGraph, Storage, Tensor, View
from .limits import Limits, within_limits
from .malformed import malformation
from .messages import unknown_rank
from .operand import LARGEST_HOST_VALUE, Operand
from .ops import host, registry
from .settings import DEFAULT, CompileSettings
from .tied import ties_of
from .tune import channels_last

ops.load()


class Lowering:
    """Lowers the nodes of one graph in order; values that no node produced are inputs."""

    def __init__(
        self,
        opsets: Mapping[str, int],
        target: Target,
        settings: CompileSettings = DEFAULT,
        fixed: Mapping[str, int] | None = None,
        limits: Limits | None = None,
    ) -> None:
        """`fixed` gives values to symbols, by label: dims of inputs and elements of small integer inputs."""
        self.opsets, self.fixed = opsets, fixed or {}
        self.builder = Builder(target, settings, limits)
        self.constants: Mapping[ir.Value, ir.TensorProtocol] = {}  # of values that nodes make, folded
        self.tied: Mapping[ir.Value, tuple[ir.Value, tuple[int, ...]]] = {}  # constants, seen through another one
        self.values: dict[ir.Value, Operand] = {}
        self.inputs: list[Tensor] = []
        self.symbols: dict[str, tuple[str, int, int, bool]] = {}
        self.operators: dict[str, str] = {}  # by the name of the node
        self.channels_last: frozenset[ir.Node] = frozenset()

    def begin(self, graph: ir.Graph, folded: Folded) -> None:
        """What is known of a graph before its nodes are lowered."""
        self.constants, self.tied = folded.constants, _tied(graph)
        if which := channels_last(self.builder.target):
            self.channels_last = channels_last_in(graph, every=which > 1)

    # ---- values

    def operand(self, value: ir.Value | None) -> Operand | None:
        if value is None or (not value.name and value.producer() is None):
            return None
        known = self.values.get(value)
        if known is None:
            constant = self.constants.get(value, value.const_value)
            if value in self.tied:
                other, order = self.tied[value]
                whole = self.operand(other)
                assert whole is not None
                known = self.values[value] = self.builder.permute(whole, order)
                return known
            known = self.values[value] = (
                self.builder.constant(constant, value.name or "") if constant is not None else self.input(value)
            )
        return known

    def input(self, value: ir.Value) -> Operand:
        """An input of the graph, or a value that a node on another provider produces."""
        if value.dtype is None:
            raise UnsupportedError(f"the type of {value.name!r} is unknown")
        if not isinstance(value.type, ir.TensorType):
            raise UnsupportedError(f"{value.name!r} is not a tensor")
        if value.shape is None:
            raise UnsupportedError(unknown_rank(value))
        dtype, name, index = _dtype(value.dtype), value.name or "", len(self.inputs)
        shape = tuple(self._dim(name, index, axis, d) for axis, d in enumerate(value.shape))
        tensor = Tensor(dtype, shape, Storage.INPUT, name)
        self.builder.check_size(tensor, f"the input {name!r} of shape {list(shape)}")
        self.inputs.append(tensor)
        # An extent of 0 beside one that the run decides is a size of 0, and no shape.
        known = [dim for dim in shape if isinstance(dim, int)]
        if (
            dtype.is_integer
            and dtype.bits >= 8
            and len(known) == len(shape)
            and math.prod(known) <= LARGEST_HOST_VALUE // 2
        ):
            return Operand(dtype, shape, View.of(tensor), host=lambda: self._elements(name, index, shape, dtype))
        return Operand(dtype, shape, View.of(tensor))

    def _dim(self, name: str, index: int, axis: int, dim: Any) -> Dim:
        if isinstance(dim, int) and dim >= 0:
            return dim
        label = extent_label(name, axis, dim)
        if label in self.fixed:
            return self.fixed[label]
        self.symbols.setdefault(label, (label, index, axis, False))
        return symbol(label)

    def _elements(self, name: str, index: int, shape: tuple[Dim, ...], dtype: DType) -> Any:
        array: Any = np.empty(tuple(map(int, shape)), object)  # type: ignore[arg-type]
        for k in range(array.size):
            label = f"{NO_EXTENT}{name}[{k}]"
            if label in self.fixed:
                array.reshape(-1)[k] = self.fixed[label]
                continue
            self.symbols.setdefault(label, (label, index, k, True))
            array.reshape(-1)[k] = symbol(label, dtype.limits)
        return array

    # ---- nodes

    def node(self, node: ir.Node, name: str = "") -> None:
        """Lowers one node; raises UnsupportedError, leaving no trace of it, when that cannot be done."""
        mark = self.builder.mark()
        self.builder.origin = (name or node.name or f"{node.op_type}({node.outputs[0].name})",)
        self.operators.setdefault(self.builder.origin[0], node.op_type)
        try:
            results = self._results(node)
            for value, result in zip(node.outputs, results, strict=False):
                if result is not None:
                    _check_declared(value, result)
                elif value.name and (value.uses() or value.is_graph_output()):
                    raise UnsupportedError(f"no kernel calculates the result {value.name!r}")
        except Exception as error:
            self.builder.undo(mark)
            if isinstance(error, (WgpuEpError, OSError, MemoryError)):
                raise
            known = [self.values.get(value) if value is not None else None for value in node.inputs]
            wrong = malformation(node, self.opsets, known)
            if wrong is not None:
                raise UnsupportedError(f"{node.op_type} is malformed: {wrong}") from error
            raise _internal(node, error) from error
        for value, result in zip(node.outputs, results, strict=False):
            if result is not None:
                self.values[value] = result
                self.builder.name(result, value.name or "")

    def _results(self, node: ir.Node) -> Sequence[Operand | None]:
        domain, opset = registry.version_of(node.domain, self.opsets)
        operands = [self.operand(v) for v in node.inputs]
        attributes = {name: _attribute(a) for name, a in node.attributes.items()}
        small = host.evaluate(node.op_type, domain, operands, attributes)
        if small is not None and small[0].known:
            return small
        registry.check_version(node.op_type, domain, opset)
        entry = registry.find(node.op_type, domain, opset)
        if entry is None:
            body = expand.function_body(node, domain, opset, [o.dtype.code if o else 0 for o in operands])
            if body is None:
                raise UnsupportedError(f"no kernel for {domain + '.' if domain else ''}{node.op_type}")
            return self._function(node, body, operands)
        for operand in operands:
            if operand is not None:
                operand.asked = False
        try:
            while operands and operands[-1] is None:
                operands.pop()
            registry.check_types(entry, [o.dtype if o else None for o in operands])
            named = [bool(value.name) for value in node.outputs]
            keywords = registry.arguments(entry, opset, attributes, named, node in self.channels_last)
            result = entry.lower(self.builder, *operands, **keywords)
        except UnsupportedError:
            if small is None:
                raise
            return small  # known on the host alone, which suffices when only shapes depend on it
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        self._require_asked(node, operands)
        return [_with_host(result, it) for result, it in itertools.zip_longest(results, small or ())]

    def _require_asked(self, node: ir.Node, operands: Sequence[Operand | None]) -> None:
        """Requires what host values depend on that a node used."""
        for operand in operands:
            if operand is not None and operand.asked:
                for condition, what in operand.conditions.items():
                    message = f"{node.op_type} relies on a number that is not there in this run: {what}"
                    self.builder.require(condition, message)

    def _function(
        self, node: ir.Node, body: expand.FunctionBody, operands: list[Operand | None]
    ) -> list[Operand | None]:
        inner = Lowering(body.opsets, self.builder.target)
        inner.builder = self.builder
        for formal, operand in zip(body.inputs, operands, strict=False):
            if operand is not None:
                inner.values[formal] = operand
        for step in body.nodes:
            inner.node(step, self.builder.origin[0])
        if inner.inputs:
            raise UnsupportedError(
                f"the function body of {node.op_type} reads {inner.inputs[0].name!r}, which is not given"
            )
        return [inner.values.get(v) if v is not None else None for v in body.outputs]


def label_of(dim: Any) -> str | None:
    """The name of an extent that the run decides. Names that say nothing ("?", a number) must not make two extents equal."""
    label = dim.value if isinstance(dim, ir.SymbolicDim) else None
    return label if isinstance(label, str) and label.isidentifier() else None


def extent_label(name: str, axis: int, dim: Any) -> str:
    """What an extent of the input `name` that the run decides is called, alone or with others that the model calls the same."""
    return label_of(dim) or f"{name}.shape[{axis}]"


def _with_host(result: Operand | None, small: Operand | None) -> Operand | None:
    """A result that is calculated on the device, with the value that shapes may take from the host."""
    if small is None or result is None:
        return result
    return Operand(result.dtype, result.shape, result.view, host=lambda: small.host, conditions=small.conditions)


def _internal(node: ir.Node, error: Exception) -> InternalError:
    """What was not to be raised by lowering a node that is well formed."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    file = "/".join(Path(place.filename).parts[-2:])
    return InternalError(
        f"internal fault at {node.op_type} {node.name!r}: {type(error).__name__}: {error} ({file}:{place.lineno});"
        " please report it, with these words and if you can the model"
    )


def _fault(node: ir.Node, error: ModelError) -> ModelError:
    return type(error)(f"node {node.name!r} ({node.op_type}): {error}")


def _dim_text(dim: int | ir.SymbolicDim) -> str:
    return str(dim if isinstance(dim, int) else dim.value or "?")


def _check_declared(value: ir.Value, result: Operand) -> None:
    """What the model, or ONNX Runtime's inference, says of a shape is what was lowered, as far as both are known."""
    if value.shape is None:
        return
    declared = [d if isinstance(d, int) else None for d in value.shape]
    known = [d if isinstance(d, int) else None for d in result.shape]
    if len(declared) != len(known) or any(None not in (a, b) and a != b for a, b in zip(declared, known, strict=True)):
        raise UnsupportedError(
            f"{value.name!r} is declared as [{', '.join(map(_dim_text, value.shape))}] and would be calculated as {result}, and"
            " what reads it may rely on either, so it is left to the CPU; with the right declaration in the model, or none, it"
            " runs here"
        )


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
            lowering.values[value] = lowering.input(value)
    for node in graph:
        if node in folded.nodes:
            continue
        try:
            lowering.node(node)
        except UnsupportedError as error:
            raise UnsupportedError(f"node {node.name!r} ({node.op_type}): {error}") from error
        except ModelError as error:
            raise _fault(node, error) from error
    return _lowered(lowering, graph.outputs)


def _tied(graph: ir.Graph) -> dict[ir.Value, tuple[ir.Value, tuple[int, ...]]]:
    constants = graph.initializers
    return {constants[name]: (constants[tie.name], tie.order) for name, tie in ties_of(graph).items()}


@dataclass(frozen=True)
class Attempt:
    """What came of lowering a graph: per node in its order None, or the reason why it cannot run; `lowered` when all can.

    A reason is a Fault where the node is wrong in itself, so that no provider could run it, or where this package is. `shapes`
    are those found of values whose rank the graph does not tell, by name; None for an extent that the run decides.
    """

    reasons: list[str | None]
    lowered: LoweredGraph | None = None
    shapes: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)


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
    for value in graph.inputs:
        if value.const_value is None and value.dtype is not None and value.shape is not None and value.uses():
            try:
                lowering.values[value] = lowering.input(value)
            except UnsupportedError:
                continue  # said again, with the node's name, where the value is used
    for node in graph:
        reason = None
        try:
            if node not in folded.nodes:
                lowering.node(node)
        except UnsupportedError as error:
            reason = str(error)
        except ModelError as error:
            reason = Fault(_fault(node, error))
        except InternalError as error:
            reason = Fault(error)
        reasons.append(reason)
    shapes = {
        value.name: tuple(dim if isinstance(dim, int) else None for dim in operand.shape)
        for value, operand in lowering.values.items()
        if value.shape is None and value.name
    }
    if any(reason is not None for reason in reasons):
        return Attempt(reasons, shapes=shapes)
    try:
        results = [it for it in graph.outputs if it.producer() is not None]
        return Attempt(reasons, _lowered(lowering, results), shapes)
    except UnsupportedError:
        return Attempt(reasons, shapes=shapes)  # compiling says why


def _lowered(lowering: Lowering, results: Sequence[ir.Value]) -> LoweredGraph:
    outputs: list[Tensor] = []
    for value in results:
        operand = lowering.operand(value)
        assert operand is not None
        made_by = operand.view.tensor.producer
        lowering.builder.origin = made_by.origin if made_by is not None else (f"output {value.name}",)
        outputs.append(_output(lowering.builder, operand, value.name or "", outputs))
    return LoweredGraph(
        tuple(lowering.symbols.values()),
        lowering.inputs,
        outputs,
        lowering.builder.nodes,
        list(lowering.builder.checks.items()),
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


def _dtype(dtype: Any) -> DType:
    try:
        return DType.of(int(dtype))
    except KeyError:
        raise UnsupportedError(f"tensors of type {dtype.name.lower()} are not supported") from None


def _attribute(attribute: Any) -> Any:
    if attribute.type == ir.AttributeType.TENSOR:
        return attribute.value.numpy()
    if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        raise UnsupportedError("control flow runs on the CPU")
    value = attribute.value
    return list(value) if isinstance(value, (tuple, list)) else value
