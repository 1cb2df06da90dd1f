"""Compiles a group of nodes into Programs: one for values that the host calculates, and one with kernels.

In: a graph, and the results that the host needs: conditions, iteration counts, elements that determine sizes. Out: Programs for
each Target. Invariant: such a result needs no kernel and no readback if the host can calculate it. Its operands are not symbols
of the Program with the kernels, so one plan of that Program serves all of their values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from ...compiler.compile import compile_for
from ...compiler.graph.inference.value_info import ValueInfo
from ...compiler.lower.lower import Attempt, attempt
from ...errors import UnsupportedError
from ...plugin.assign.subgraph import extract
from ...program.program import Program
from ...program.settings import CompileSettings
from ...program.target import Target
from ...records import dataclass

SETTINGS = CompileSettings(reads_sizes=True, reads_conditions=True)


@dataclass(frozen=True)
class Leaf:
    """A Program per Target, its input and output names, and the inputs with elements that it needs before it runs."""

    programs: tuple[Program, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reads: frozenset[str]


class Pieces:
    """Compiles the groups of one model. `known` are the inferred types and shapes of its values by name."""

    def __init__(self, opsets: Mapping[str, int], targets: Sequence[Target], known: Mapping[str, ValueInfo]) -> None:
        self.targets = targets
        self._opsets, self._known = opsets, known

    def try_lower(
        self, graph: ir.Graph, unread: frozenset[str] = frozenset(), on_host: frozenset[str] = frozenset()
    ) -> Attempt:
        """Asks the compiler whether and how it can lower a graph."""
        return attempt(
            graph, self._opsets, self.targets[0], SETTINGS, around=self._known, unread=unread, on_host=on_host
        )

    def of(self, graph: ir.Graph, name: str, wanted: frozenset[str], given: frozenset[str]) -> list[Leaf]:
        """Returns the Programs of a graph in execution order.

        `wanted` are results that the host needs. `given` are inputs of the model, which are usually in host memory. Elements of
        other inputs are not read if kernels can do without."""
        hosted = [it for it in graph.outputs if it.name in wanted & self.try_lower(graph).hosted]
        rest = [it for it in graph.outputs if it not in hosted]
        found = []
        if hosted:
            found.append(self._made(_with_outputs(graph, hosted), name, given, on_host=True))
        if rest:
            found.append(self._made(_with_outputs(graph, rest) if hosted else graph, name, given))
        return found

    def _made(self, graph: ir.Graph, name: str, given: frozenset[str], on_host: bool = False) -> Leaf:
        hosts = frozenset(it.name or "" for it in graph.outputs) if on_host else frozenset[str]()
        piece = self._piece(graph, self.try_lower(graph, on_host=hosts), name)
        avoidable = piece.reads - given
        if on_host or not avoidable:
            return piece
        unread = frozenset[str]()
        for names in (
            (avoidable, *(frozenset({it}) for it in sorted(avoidable))) if len(avoidable) > 1 else (avoidable,)
        ):
            tried = self.try_lower(graph, unread | names)
            if tried.lowered is not None:
                unread |= names
                piece = self._piece(graph, tried, name)
            if unread == avoidable:
                break
        return piece

    def _piece(self, graph: ir.Graph, tried: Attempt, name: str) -> Leaf:
        if tried.lowered is None:
            raise UnsupportedError(
                f"{name}: {next((it for it in tried.reasons if it is not None), 'it cannot be divided')}"
            )
        programs = compile_for(self.targets, tried.lowered, name)
        first = programs[0]
        names = [first.values[it].name for it in first.inputs]
        return Leaf(
            tuple(programs),
            tuple(names),
            tuple(it.name or "" for it in graph.outputs if it.producer() is not None),
            frozenset(names[it.input] for it in first.symbols if it.is_element),
        )


def _with_outputs(graph: ir.Graph, outputs: Sequence[ir.Value]) -> ir.Graph:
    """Returns the subgraph that makes these outputs."""
    makers = {it: node for node in graph for it in node.outputs}
    needed, pending = set[ir.Node](), [makers[it] for it in outputs if it in makers]
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending += [makers[it] for it in node.inputs if it in makers]
    found = extract(graph, [node for node in graph if node in needed])
    made = {it.name: it for node in found for it in node.outputs}
    found.outputs[:] = [made[it.name] for it in outputs]
    return found
