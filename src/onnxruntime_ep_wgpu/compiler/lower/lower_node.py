"""Lowers one node of an onnx_ir.Graph: looks its operator up, and calls it to append views, maps and calls.

In: a node with lowered operands. Out: its results, as operands. Every shape is an exact expression of the input dims. Raises
UnsupportedError with the reason if no kernel supports the node. Then everything appended for it is removed.
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir

from ...errors import InternalError, UnsupportedError, WgpuEpError, with_message
from ...program.dtypes import DType
from ...program.settings import DEFAULT, CompileSettings
from ...program.target import Target
from ...program.weights import Permuted
from ..graph import expand
from ..graph.fold import Folded, fold_constants
from ..graph.inference.value_info import UNKNOWN, ValueInfo, merged, of_value
from ..graph.schemas import version_of
from ..graph.tied import ties_of
from ..tune import channels_last
from . import ops
from .builder import Builder
from .channels import channels_last_in
from .graph_inputs import GraphInputs
from .limits import Limits
from .malformed import malformation
from .messages import unknown_rank
from .operand import OnDeviceError, Operand, decided_in_a_run
from .ops import host, registry
from .structures import MADE_ELSEWHERE, Structure, Value

CONTROL_FLOW = "control flow runs on the CPU"

ops.load()


class Lowering:
    """Lowers the nodes of one graph in order. Values that no node produced are inputs."""

    def __init__(
        self,
        opsets: Mapping[str, int],
        target: Target,
        settings: CompileSettings = DEFAULT,
        fixed: Mapping[str, int] | None = None,
        limits: Limits | None = None,
        around: Mapping[str, ValueInfo] | None = None,
        unread: frozenset[str] = frozenset(),
    ) -> None:
        """`fixed` maps labels of symbols to values: dims of inputs and elements of small integer inputs. `around` contains
        what is known, by name, of values that the graph does not fully state. The elements of inputs named in `unread` are no
        symbols."""
        self.opsets = opsets
        self.builder = Builder(target, settings, limits)
        self.inputs = GraphInputs(self.builder, fixed or {})
        self._for_fixed_sizes = bool(fixed)
        self.constants: Mapping[ir.Value, ir.TensorProtocol] = {}  # of values that nodes produce, folded
        # a constant: another one, and the permutation of that which is equal
        self.tied: Mapping[ir.Value, tuple[ir.Value, Permuted]] = {}
        self.values: dict[ir.Value, Operand] = {}
        self.structures: dict[ir.Value, Structure] = {}  # of values that are no tensors
        self.info: dict[ir.Value, ValueInfo] = {}  # of results of nodes that are not lowered
        self._around, self._unread = around or {}, unread
        self.operators: dict[str, str] = {}  # by the name of the node
        self.decided: dict[ir.Node, str] = {}  # for an If: the attribute with the branch that runs in every run
        self.taken: dict[ir.Node, ir.Graph] = {}  # the same as a graph, if its nodes were lowered
        self.channels_last: frozenset[ir.Node] = frozenset()
        # Nodes that may be in a later group than the producers of their operands.
        self.may_wait: frozenset[ir.Node] = frozenset()
        # The values that a node waits for: their size or elements must be known before it runs.
        self.waits: dict[ir.Node, set[ir.Value]] = {}
        self._waited_inputs: dict[ir.Value, Operand] = {}  # these values as inputs

    def begin(self, graph: ir.Graph, folded: Folded) -> None:
        """Collects facts about a graph before its nodes are lowered."""
        self.constants, self.tied = folded.constants, _tied(graph)
        if which := channels_last(self.builder.target):
            self.channels_last = channels_last_in(graph, every=which > 1)

    # ---- values

    def known(self, value: ir.Value) -> ValueInfo:
        """Returns what is known of a value before a run."""
        info = of_value(value)
        if info.complete:
            return info
        if value in self.values:
            operand = self.values[value]
            names, sure = self.inputs.names, not self.builder.assumes  # with assumptions, only the rank is certain
            shape = tuple((dim if sure else None) if isinstance(dim, int) else names.get(dim) for dim in operand.shape)
            return merged(info, ValueInfo(ir.DataType(operand.dtype.code), shape))
        around = self._around.get(value.name or "", UNKNOWN)
        return merged(info, merged(self.info.get(value, UNKNOWN), around))

    def found(self) -> dict[str, ValueInfo]:
        """Returns what is known, by name, of values without type or rank in the graph."""
        values = (it for it in {**self.values, **self.info} if it.name and not of_value(it).complete)
        return {value.name or "": info for value in values if (info := self.known(value)) != UNKNOWN}

    def operand_of_input(self, value: ir.Value) -> Operand:
        """Returns the operand for an input of the graph, or for a value that a node on another provider produces."""
        info = self.known(value)
        if info.dtype is not None and info.shape is None:
            raise unknown_rank(value, self._has_rank)
        found = self.inputs.operand(value, info)
        return Operand(found.dtype, found.shape, found.view) if value.name in self._unread else found

    def _has_rank(self, value: ir.Value) -> bool:
        return value.const_value is not None or value in self.constants or self.known(value).shape is not None

    def operand(self, value: ir.Value | None) -> Operand | None:
        if value is None or (not value.name and value.producer() is None):
            return None
        if value not in self.values:
            self.values[value] = self._constant_or_input(value)
        return self.values[value]

    def _constant_or_input(self, value: ir.Value) -> Operand:
        """Returns a value that no node produces: a constant, which may be a view of another one, or an input."""
        if value in self.tied:
            other, tie = self.tied[value]
            whole = self.operand(other)
            assert whole is not None
            return self.builder.permute(whole, tie.permutation)
        constant = self.constants.get(value, value.const_value)
        return (
            self.builder.constant(constant, value.name or "") if constant is not None else self.operand_of_input(value)
        )

    # ---- values known after a group has run

    def _operands(self, node: ir.Node, entry: registry.Operator | None) -> list[Value | None]:
        """Returns the operands of a node. Raises UnsupportedError for a sequence or an optional value that is produced
        elsewhere."""
        names = entry.operands if entry is not None and entry.structures else ()
        found: list[Value | None] = []
        for k, value in enumerate(node.inputs):
            if value is not None and value in self.structures:
                found.append(self.structures[value])
                continue
            structured = entry is not None and k < len(names) and names[k] in entry.structures
            unknown = value is not None and value.const_value is None and self.known(value).dtype is None
            if structured and value is not None and value.name and unknown:
                raise UnsupportedError(f"{value.name!r} {MADE_ELSEWHERE}")
            found.append(self._read(node, value))
        return found

    def _read(self, node: ir.Node, value: ir.Value | None) -> Operand | None:
        """Returns an operand of a node; an input if the node waits for it. Raises UnsupportedError if the node would have to
        wait and cannot."""
        operand = self.operand(value)
        if operand is None or value is None:
            return operand
        if operand.sized is not None and value not in self.waits.get(node, ()) and not self._wait(node, value):
            raise UnsupportedError(
                f"the size of {value.name!r} is known only from the data, so the shape depends on data"
            )
        return self._waited_inputs[value] if value in self.waits.get(node, ()) else operand

    def _wait(self, node: ir.Node, value: ir.Value, for_elements: bool = False) -> bool:
        """Makes a node wait for a value from another node: for its elements if `for_elements`, else for its size. Returns
        whether that helps."""
        maker = value.producer()
        if node not in self.may_wait or maker not in self.may_wait or value in self.waits.get(node, ()):
            return False
        known = self._waited_inputs.get(value) or self.inputs.operand(value, self.known(value))
        if for_elements and not known.may_be_known:
            return False
        self._waited_inputs[value] = known
        self.waits.setdefault(node, set()).add(value)
        return True

    def _results_after_waits(self, node: ir.Node) -> Sequence[Value | None]:
        """Returns the results of a node. Makes the node wait for operands if their elements decide sizes or kernels."""
        mark = self.builder.mark()
        try:
            return self._results(node)
        except OnDeviceError as error:
            self.builder.undo(mark)
            wanted = [it for it in node.inputs if it is not None and self.values.get(it) is error.operand]
            if not wanted or not self._wait(node, wanted[0], for_elements=True):
                raise
        try:
            return self._results_after_waits(node)
        except UnsupportedError:
            self.waits[node].discard(wanted[0])
            raise

    # ---- nodes

    def node(self, node: ir.Node, name: str = "") -> None:
        """Lowers one node. If it raises UnsupportedError, everything appended for the node is removed."""
        mark = self.builder.mark()
        self.builder.begin((name or node.name or f"{node.op_type}({node.outputs[0].name})",))
        self.operators.setdefault(self.builder.origin[0], node.op_type)
        try:
            results = self._results_after_waits(node)
            for value, result in zip(node.outputs, results, strict=False):
                if isinstance(result, Operand):
                    _check_declared(value, result, sure=not (self.builder.assumes or self._for_fixed_sizes))
                elif result is None and value.name and (value.uses() or value.is_graph_output()):
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
            if isinstance(result, Operand):
                self.values[value] = result
                self.builder.name(result, value.name or "")
            elif result is not None:
                self.structures[value] = result

    def _results(self, node: ir.Node) -> Sequence[Value | None]:
        domain, opset = version_of(node.domain, self.opsets)
        if node.op_type == "If" and not domain:
            return self._branch_results(node, self._read(node, node.inputs[0]))
        entry = registry.find(node.op_type, domain, opset)
        attributes = {name: _attribute(a) for name, a in node.attributes.items()}
        operands = self._operands(node, entry)
        tensors = [it for it in operands if not isinstance(it, Structure)]
        small = host.evaluate(node.op_type, domain, tensors, attributes) if len(tensors) == len(operands) else None
        if small is not None and small[0].known:
            return small
        registry.check_version(node.op_type, domain, opset)
        if entry is None and len(tensors) < len(operands):
            raise UnsupportedError(f"no kernel for {domain + '.' if domain else ''}{node.op_type} of sequences")
        if entry is None:
            body = expand.function_body(node, domain, opset, [o.dtype.code if o else 0 for o in tensors])
            if body is None:
                raise UnsupportedError(f"no kernel for {domain + '.' if domain else ''}{node.op_type}")
            return self._function_results(node, body, tensors)
        for operand in tensors:
            if operand is not None:
                operand.host_value_used = False
        try:
            while operands and operands[-1] is None:
                operands.pop()
            registry.check_operands(entry, [_type_and_rank(it) for it in operands])
            operands += [None] * (entry.positional - len(operands))
            named = [bool(value.name) for value in node.outputs]
            shapes = [_known_shape(value) for value in node.outputs]
            keywords = registry.arguments(entry, opset, attributes, named, node in self.channels_last, shapes)
            result = entry.lower(self.builder, *operands, **keywords)
            results = list(result) if isinstance(result, (tuple, list)) else [result]
            self._check_sized(entry, results)
        except UnsupportedError:
            if small is None:
                raise
            return small  # known on the host alone, which is enough if only shapes depend on it
        self._require_conditions(node, tensors)
        return [_with_host(result, it) for result, it in itertools.zip_longest(results, small or ())]

    def _check_sized(self, entry: registry.Operator, results: Sequence[Value | None]) -> None:
        """Raises UnsupportedError if a result has a data-dependent size and the host does not read sizes back."""
        if self.builder.settings.reads_sizes:
            return
        if any(isinstance(it, Operand) and it.sized is not None for it in results):
            raise UnsupportedError(
                f"{entry.sized or 'the size of a result'} is known only from the data, so the shape of the result depends on data,"
                " which a single Program does not support"
            )

    def _require_conditions(self, node: ir.Node, operands: Sequence[Operand | None]) -> None:
        """Requires the conditions of the host values that a node used."""
        for operand in operands:
            if operand is not None and operand.host_value_used:
                for condition, what in operand.conditions.items():
                    message = f"{node.op_type} depends on a host value that is invalid in this run: {what}"
                    self.builder.require(condition, message)

    def _branch_results(self, node: ir.Node, condition: Operand | None) -> Sequence[Operand | None]:
        """Returns the results of an If with a known condition: those of the branch that runs in every run. Refuses every
        other If. That includes every If in ONNX Runtime's graph, where bodies are separate graphs."""
        if condition is None or not condition.has_host or condition.host.size != 1:
            raise UnsupportedError(CONTROL_FLOW)
        (which,) = condition.host.reshape(-1).tolist()
        reason = decided_in_a_run("which branch is taken", [which, *condition.conditions])
        if reason is not None:
            raise type(reason)(f"{CONTROL_FLOW}: {reason}")
        name = self.decided[node] = "then_branch" if which else "else_branch"
        branch = node.attributes[name].as_graph() if name in node.attributes else None
        if branch is None or len(branch.outputs) != len(node.outputs):
            raise UnsupportedError(CONTROL_FLOW)
        self.taken[node] = branch
        origin = self.builder.origin
        folded = fold_constants(branch, self.opsets)
        self.constants = {**self.constants, **folded.constants}
        for step in branch:
            if step not in folded.nodes:
                try:
                    self.node(step)
                except UnsupportedError as error:
                    raise with_message(
                        error, f"its {name} runs, and in it {step.op_type} {step.name!r}: {error}"
                    ) from error
        self.builder.origin = origin
        return [self.operand(value) for value in branch.outputs]

    def _function_results(
        self, node: ir.Node, body: expand.FunctionBody, operands: list[Operand | None]
    ) -> list[Operand | None]:
        # A domain that the body does not import has the version of the graph.
        inner = Lowering({**self.opsets, **body.opsets}, self.builder.target)
        inner.builder = self.builder
        for formal, operand in zip(body.inputs, operands, strict=False):
            if operand is not None:
                inner.values[formal] = operand
        for step in body.nodes:
            inner.node(step, self.builder.origin[0])
        if unknown := inner.inputs.tensors:
            raise UnsupportedError(
                f"the function body of {node.op_type} reads {unknown[0].name!r}, which the node does not provide"
            )
        return [inner.values.get(v) if v is not None else None for v in body.outputs]


def _type_and_rank(value: Value | None) -> tuple[DType | None, int] | None:
    """The type and rank of an operand; type None for a value that is no tensor."""
    if value is None:
        return None
    return (value.dtype, value.rank) if isinstance(value, Operand) else (None, 0)


def _with_host(result: Value | None, small: Operand | None) -> Value | None:
    """Returns a result computed on the device, together with its host value, which shapes may use."""
    if small is None or not isinstance(result, Operand):
        return result
    return Operand(result.dtype, result.shape, result.view, host=lambda: small.host, conditions=small.conditions)


def _internal(node: ir.Node, error: Exception) -> InternalError:
    """Returns the error for an unexpected exception from lowering a well-formed node."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    file = "/".join(Path(place.filename).parts[-2:])
    return InternalError(
        f"internal fault at {node.op_type} {node.name!r}: {type(error).__name__}: {error} ({file}:{place.lineno});"
        "please report this message, with the model if possible"
    )


def _known_shape(value: ir.Value) -> registry.KnownShape | None:
    return None if value.shape is None else tuple(dim if isinstance(dim, int) else None for dim in value.shape)


def _dim_text(dim: int | ir.SymbolicDim) -> str:
    return str(dim if isinstance(dim, int) else dim.value or "?")


def _check_declared(value: ir.Value, result: Operand, sure: bool) -> None:
    """Raises UnsupportedError if the shape that the model or ONNX Runtime's inference declares differs from the lowered one.
    Only extents known on both sides are compared. Extents that may follow from an assumption are not compared. Nor are those
    of a run for which the graph is compiled because an assumption does not hold."""
    if value.shape is None:
        return
    declared = [d if isinstance(d, int) else None for d in value.shape]
    known = [d if sure and isinstance(d, int) else None for d in result.shape]
    if len(declared) != len(known) or any(None not in (a, b) and a != b for a, b in zip(declared, known, strict=True)):
        raise UnsupportedError(
            f"{value.name!r} is declared as [{', '.join(map(_dim_text, value.shape))}] but would be calculated as {result};"
            " its readers may rely on either shape, so the node runs on the CPU; with the right declaration in the model, or"
            " none, it runs here"
        )


def _tied(graph: ir.Graph) -> dict[ir.Value, tuple[ir.Value, Permuted]]:
    constants = graph.initializers
    return {constants[name]: (constants[tie.of], tie) for name, tie in ties_of(graph).items()}


def _attribute(attribute: Any) -> Any:
    if attribute.type == ir.AttributeType.TENSOR:
        if attribute.value.dtype == ir.DataType.STRING:
            raise UnsupportedError(f"attribute {attribute.name} contains strings, which cannot be stored on a device")
        return attribute.value.numpy()
    if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        raise UnsupportedError(CONTROL_FLOW)
    value = attribute.value
    return list(value) if isinstance(value, (tuple, list)) else value
