"""A node of an onnx_ir.Graph to the lowered graph: its operator is looked up and asked for views, maps and calls.

In: a node whose operands are lowered. Out: its results, as operands. It computes every shape as an exact expression of the
input dims, and raises UnsupportedError with the reason when a node has no kernel: then nothing of it is left behind.
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
    """Lowers the nodes of one graph in order; values that no node produced are inputs."""

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
        """`fixed` gives values to symbols, by label: dims of inputs and elements of small integer inputs. `around` is what is
        known of values, by name, of which the graph does not state all. `unread` are inputs, by name, no element of which is a
        symbol."""
        self.opsets = opsets
        self.builder = Builder(target, settings, limits)
        self.inputs = GraphInputs(self.builder, fixed or {})
        self._of_a_run = bool(fixed)
        self.constants: Mapping[ir.Value, ir.TensorProtocol] = {}  # of values that nodes make, folded
        self.tied: Mapping[ir.Value, tuple[ir.Value, Permuted]] = {}  # constants, and the one that each is seen through
        self.values: dict[ir.Value, Operand] = {}
        self.structures: dict[ir.Value, Structure] = {}  # of values that are no tensors
        self.info: dict[ir.Value, ValueInfo] = {}  # of what nodes make that are not lowered
        self._around, self._unread = around or {}, unread
        self.operators: dict[str, str] = {}  # by the name of the node
        self.decided: dict[ir.Node, str] = {}  # of an If the attribute with the branch that runs in every run
        self.taken: dict[ir.Node, ir.Graph] = {}  # the same as a graph, where its nodes were lowered
        self.channels_last: frozenset[ir.Node] = frozenset()
        self.may_wait: frozenset[ir.Node] = frozenset()  # nodes that may be in a later group than what they read
        # The values whose size or elements a node has to know before it runs.
        self.waits: dict[ir.Node, set[ir.Value]] = {}
        self._again: dict[ir.Value, Operand] = {}  # such values, as inputs

    def begin(self, graph: ir.Graph, folded: Folded) -> None:
        """What is known of a graph before its nodes are lowered."""
        self.constants, self.tied = folded.constants, _tied(graph)
        if which := channels_last(self.builder.target):
            self.channels_last = channels_last_in(graph, every=which > 1)

    # ---- values

    def known(self, value: ir.Value) -> ValueInfo:
        """What is known of a value before a run."""
        info = of_value(value)
        if info.complete:
            return info
        if value in self.values:
            operand = self.values[value]
            names, sure = self.inputs.names, not self.builder.assumes  # else only the rank is
            shape = tuple((dim if sure else None) if isinstance(dim, int) else names.get(dim) for dim in operand.shape)
            return merged(info, ValueInfo(ir.DataType(operand.dtype.code), shape))
        around = self._around.get(value.name or "", UNKNOWN)
        return merged(info, merged(self.info.get(value, UNKNOWN), around))

    def found(self) -> dict[str, ValueInfo]:
        """What is known of values of which the graph does not state type or rank, by name."""
        values = (it for it in {**self.values, **self.info} if it.name and not of_value(it).complete)
        return {value.name or "": info for value in values if (info := self.known(value)) != UNKNOWN}

    def operand_of_input(self, value: ir.Value) -> Operand:
        """An input of the graph, or a value that a node on another provider produces."""
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
            self.values[value] = self._not_made(value)
        return self.values[value]

    def _not_made(self, value: ir.Value) -> Operand:
        """What no node makes: a constant, which may be seen through another one, or an input."""
        if value in self.tied:
            other, tie = self.tied[value]
            whole = self.operand(other)
            assert whole is not None
            return self.builder.permute(whole, tie.permutation)
        constant = self.constants.get(value, value.const_value)
        return (
            self.builder.constant(constant, value.name or "") if constant is not None else self.operand_of_input(value)
        )

    # ---- what is known when a group has run

    def _operands(self, node: ir.Node, entry: registry.Operator | None) -> list[Value | None]:
        """What a node reads. Raises UnsupportedError where a sequence or an optional value is not known here."""
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
        """An operand of a node, as an input where the node waits for it. Raises UnsupportedError for one that it would have to
        wait for."""
        operand = self.operand(value)
        if operand is None or value is None:
            return operand
        if operand.sized is not None and value not in self.waits.get(node, ()) and not self._wait(node, value):
            raise UnsupportedError(
                f"the size of {value.name!r} is known only from the data, so the shape depends on data"
            )
        return self._again[value] if value in self.waits.get(node, ()) else operand

    def _wait(self, node: ir.Node, value: ir.Value, for_elements: bool = False) -> bool:
        """Has a node wait for what another one makes, `for_elements` or for its size; whether that helps."""
        maker = value.producer()
        if node not in self.may_wait or maker not in self.may_wait or value in self.waits.get(node, ()):
            return False
        known = self._again.get(value) or self.inputs.operand(value, self.known(value))
        if for_elements and not known.may_tell:
            return False
        self._again[value] = known
        self.waits.setdefault(node, set()).add(value)
        return True

    def _waiting(self, node: ir.Node) -> Sequence[Value | None]:
        """The results of a node, which waits for operands whose elements decide."""
        mark = self.builder.mark()
        try:
            return self._results(node)
        except OnDeviceError as error:
            self.builder.undo(mark)
            wanted = [it for it in node.inputs if it is not None and self.values.get(it) is error.operand]
            if not wanted or not self._wait(node, wanted[0], for_elements=True):
                raise
        try:
            return self._waiting(node)
        except UnsupportedError:
            self.waits[node].discard(wanted[0])
            raise

    # ---- nodes

    def node(self, node: ir.Node, name: str = "") -> None:
        """Lowers one node; raises UnsupportedError, leaving no trace of it, when that cannot be done."""
        mark = self.builder.mark()
        self.builder.begin((name or node.name or f"{node.op_type}({node.outputs[0].name})",))
        self.operators.setdefault(self.builder.origin[0], node.op_type)
        try:
            results = self._waiting(node)
            for value, result in zip(node.outputs, results, strict=False):
                if isinstance(result, Operand):
                    _check_declared(value, result, sure=not (self.builder.assumes or self._of_a_run))
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
            return self._branch(node, self._read(node, node.inputs[0]))
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
            return self._function(node, body, tensors)
        for operand in tensors:
            if operand is not None:
                operand.asked = False
        try:
            while operands and operands[-1] is None:
                operands.pop()
            registry.check_operands(entry, [_kind(it) for it in operands])
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
            return small  # known on the host alone, which suffices when only shapes depend on it
        self._require_asked(node, tensors)
        return [_with_host(result, it) for result, it in itertools.zip_longest(results, small or ())]

    def _check_sized(self, entry: registry.Operator, results: Sequence[Value | None]) -> None:
        """Raises UnsupportedError where data decides the size of a result, for hosts that read no sizes back."""
        if self.builder.settings.reads_sizes:
            return
        if any(isinstance(it, Operand) and it.sized is not None for it in results):
            raise UnsupportedError(
                f"{entry.sized} is known only from the data, so the shape of the result depends on data; it runs on the CPU"
            )

    def _require_asked(self, node: ir.Node, operands: Sequence[Operand | None]) -> None:
        """Requires what host values depend on that a node used."""
        for operand in operands:
            if operand is not None and operand.asked:
                for condition, what in operand.conditions.items():
                    message = f"{node.op_type} relies on a number that is not there in this run: {what}"
                    self.builder.require(condition, message)

    def _branch(self, node: ir.Node, condition: Operand | None) -> Sequence[Operand | None]:
        """The results of the branch that runs in every run, of an If whose condition is known here. Others are refused, and so
        is every If of ONNX Runtime's graph, which shows its bodies as graphs of their own."""
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

    def _function(
        self, node: ir.Node, body: expand.FunctionBody, operands: list[Operand | None]
    ) -> list[Operand | None]:
        # Of a domain that a body does not import it has the version of the graph.
        inner = Lowering({**self.opsets, **body.opsets}, self.builder.target)
        inner.builder = self.builder
        for formal, operand in zip(body.inputs, operands, strict=False):
            if operand is not None:
                inner.values[formal] = operand
        for step in body.nodes:
            inner.node(step, self.builder.origin[0])
        if unknown := inner.inputs.tensors:
            raise UnsupportedError(f"the function body of {node.op_type} reads {unknown[0].name!r}, which is not given")
        return [inner.values.get(v) if v is not None else None for v in body.outputs]


def _kind(value: Value | None) -> tuple[DType | None, int] | None:
    """The type and rank of what a node reads; no type for what is no tensor."""
    if value is None:
        return None
    return (value.dtype, value.rank) if isinstance(value, Operand) else (None, 0)


def _with_host(result: Value | None, small: Operand | None) -> Value | None:
    """A result that is calculated on the device, with the value that shapes may take from the host."""
    if small is None or not isinstance(result, Operand):
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


def _known_shape(value: ir.Value) -> registry.KnownShape | None:
    return None if value.shape is None else tuple(dim if isinstance(dim, int) else None for dim in value.shape)


def _dim_text(dim: int | ir.SymbolicDim) -> str:
    return str(dim if isinstance(dim, int) else dim.value or "?")


def _check_declared(value: ir.Value, result: Operand, sure: bool) -> None:
    """What the model, or ONNX Runtime's inference, says of a shape is what was lowered, as far as both are known. Extents that may
    follow from an assumption are not. Neither are those of a run, which is compiled for where an assumption does not hold."""
    if value.shape is None:
        return
    declared = [d if isinstance(d, int) else None for d in value.shape]
    known = [d if sure and isinstance(d, int) else None for d in result.shape]
    if len(declared) != len(known) or any(None not in (a, b) and a != b for a, b in zip(declared, known, strict=True)):
        raise UnsupportedError(
            f"{value.name!r} is declared as [{', '.join(map(_dim_text, value.shape))}] and would be calculated as {result}, and"
            " what reads it may rely on either, so it is left to the CPU; with the right declaration in the model, or none, it"
            " runs here"
        )


def _tied(graph: ir.Graph) -> dict[ir.Value, tuple[ir.Value, Permuted]]:
    constants = graph.initializers
    return {constants[name]: (constants[tie.of], tie) for name, tie in ties_of(graph).items()}


def _attribute(attribute: Any) -> Any:
    if attribute.type == ir.AttributeType.TENSOR:
        if attribute.value.dtype == ir.DataType.STRING:
            raise UnsupportedError(f"attribute {attribute.name} holds texts, which have no memory on a device")
        return attribute.value.numpy()
    if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        raise UnsupportedError(CONTROL_FLOW)
    value = attribute.value
    return list(value) if isinstance(value, (tuple, list)) else value
