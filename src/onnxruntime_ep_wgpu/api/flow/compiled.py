"""Compiles a model into one Flow per Target.

In: a model as in its file, and Targets with the same lowering. Out: Flows. A graph is compiled from its end to its beginning.
So before a node is compiled, it is known whether the host needs its result: as a condition, an iteration count, or elements
that determine sizes. A loop body may need the loop's states on the host, so it is compiled repeatedly until that set is stable.
Invariant: a body is a Flow with the inputs and outputs that `Part` specifies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from ...compiler.graph.inference.value_info import ValueInfo, merged, of_value
from ...compiler.lower.model_types import types_of
from ...program.flow import Flow
from ...program.target import Target
from ...records import dataclass
from .assembled import KnownValue, NamedPart, assembled
from .division import Control, Group, NotDivided, bodies_of, units_of
from .pieces import Pieces
from .rewritten import widen_stacked
from .scans import loops_for_scans


def flows_of(model: ir.Model, targets: Sequence[Target], name: str) -> list[Flow]:
    """Returns the Flow of a model for each Target. Changes the model, but not its meaning. Raises NotDivided."""
    known = dict(types_of(model, targets[0]))
    if loops_for_scans(model.graph, model.opset_imports.get("", 0), known):
        known = dict(types_of(model, targets[0]))
    widen_stacked(model.graph, known)
    return _Flows(model.opset_imports, targets, known).of(model.graph, name, (), frozenset(), inner=False).flows


@dataclass(frozen=True)
class _Made:
    """One Flow per Target, and the names of the inputs that are needed on the host."""

    flows: list[Flow]
    reads: frozenset[str]


class _Flows:
    """Compiles the Flows of one model."""

    def __init__(self, opsets: Mapping[str, int], targets: Sequence[Target], known: Mapping[str, ValueInfo]) -> None:
        self._targets, self._known = targets, known
        self._pieces = Pieces(opsets, targets, known)
        self._units: dict[ir.Graph, list[Group | Control]] = {}

    def of(
        self, graph: ir.Graph, name: str, captured: Sequence[ir.Value], wanted: frozenset[str], inner: bool = True
    ) -> _Made:
        """Compiles a graph with its inputs and captured values. `wanted` are the results that are needed on the host."""
        if graph not in self._units:
            self._units[graph] = units_of(graph, self._pieces.try_lower)
        given = [it for it in graph.inputs if it.const_value is None] + list(captured)
        of_model = frozenset() if inner else frozenset(it.name or "" for it in given)
        wants, steps = set(wanted), list[NamedPart]()
        for unit in reversed(self._units[graph]):
            if isinstance(unit, Group):
                made = self._group(unit.graph, name, frozenset(wants), of_model, wants)
            else:
                made = self._control(unit, name, frozenset(wants), wants)
            steps += reversed(made)
        steps += reversed(self._constants(graph, name, frozenset(wants), steps, wants))
        steps.reverse()
        flows = [
            assembled(
                target,
                number,
                name,
                [self._named(it) for it in given],
                [self._named(it) for it in graph.outputs],
                steps,
            )
            for number, target in enumerate(self._targets)
        ]
        return _Made(flows, frozenset(wants) & {it.name or "" for it in given})

    def _named(self, value: ir.Value) -> KnownValue:
        """Returns a value with its inferred type and shape."""
        return KnownValue(value.name or "", merged(of_value(value), self._known.get(value.name or "", ValueInfo())))

    # ---- units

    def _group(
        self, graph: ir.Graph, name: str, wanted: frozenset[str], given: frozenset[str], wants: set[str]
    ) -> list[NamedPart]:
        found = self._pieces.of(graph, name, wanted, given)
        for it in found:
            wants |= it.reads
        return [NamedPart("run", it.inputs, it.outputs, (it.programs,)) for it in found]

    def _control(self, unit: Control, name: str, wanted: frozenset[str], wants: set[str]) -> list[NamedPart]:
        node = unit.node
        results = [it.name or "" for it in node.outputs]
        bodies = bodies_of(node)
        if any(len(it.outputs) != len(results) + (node.op_type == "Loop") for it in bodies):
            raise NotDivided([(node, "one of its bodies has another number of results")])
        label = f"{name}: {node.name or node.op_type}" if name else node.name or node.op_type
        rest = tuple(it.name or "" for it in unit.captured)
        if node.op_type == "If":
            condition = node.inputs[0]
            if condition is None:
                raise NotDivided([(node, "it has no condition")])
            places = [k for k, it in enumerate(results) if it in wanted]
            made = []
            for body, which in zip(bodies, ("then", "else"), strict=True):
                asked = frozenset(body.outputs[k].name or "" for k in places)
                made.append(self.of(body, f"{label} ({which})", unit.captured, asked))
            wants |= {condition.name or ""}.union(*(it.reads for it in made))
            step = NamedPart("if", (condition.name or "", *rest), tuple(results), tuple(it.flows for it in made))
            return [step]
        (body,) = bodies
        args = ["" if it is None else it.name or "" for it in node.inputs]
        args += [""] * (2 - len(args))
        if len(body.inputs) != len(args) or len(results) < len(args) - 2:
            raise NotDivided([(node, f"its body takes {len(body.inputs)} values, and the loop has {len(args)}")])
        wants |= {it for it in args[:2] if it}
        places_wanted = {0, *(k + 1 for k, it in enumerate(results) if it in wanted)}
        while True:
            asked = frozenset(body.outputs[k].name or "" for k in places_wanted)
            found = self.of(body, label, unit.captured, asked)
            again = {k - 1 for k, it in enumerate(body.inputs) if k > 1 and it.name in found.reads}
            if again <= places_wanted:
                break
            places_wanted |= again
        wants |= {args[k + 1] for k in again} | (found.reads & set(rest))
        return [NamedPart("loop", (*args, *rest), tuple(results), (found.flows,), len(args) - 2)]

    def _constants(
        self, graph: ir.Graph, name: str, wanted: frozenset[str], steps: Sequence[NamedPart], wants: set[str]
    ) -> list[NamedPart]:
        """Makes Programs for constants that are arguments of parts or outputs of the graph."""
        made = {it for step in steps for it in step.results}
        taken = {it for step in steps if step.kind != "run" for it in step.args} | {
            it.name or "" for it in graph.outputs
        }
        scope: dict[str, ir.Value] = {}
        for it in _scope(graph):
            if it.const_value is not None and it.name in taken - made:
                scope.setdefault(it.name, it)
        if not scope:
            return []
        copies = []
        for key, it in scope.items():
            value = it.const_value
            assert value is not None
            kind = ir.TensorType(value.dtype)
            constant = ir.Value(
                name=f"{key}.constant", type=kind, shape=ir.Shape(value.numpy().shape), const_value=value
            )
            copies.append(ir.node("Identity", [constant]))
            copies[-1].outputs[0].name = key
        outputs = [node.outputs[0] for node in copies]
        alone = ir.Graph(
            [],
            outputs,
            nodes=copies,
            initializers=[node.inputs[0] for node in copies if node.inputs[0] is not None],
            opset_imports=dict(graph.opset_imports),
            name=graph.name,
        )
        return self._group(alone, name, wanted, frozenset(), wants)


def _scope(graph: ir.Graph) -> list[ir.Value]:
    """Returns the values that nodes of a graph read, and its outputs."""
    found = [value for node in graph for value in node.inputs if value is not None]
    return [*found, *graph.outputs]
