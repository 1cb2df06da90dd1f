"""Decides which nodes that generate text run here, and why the others do not.

In: a graph with such nodes. Out: for each node the decision with its reason, and its bodies for the report; later where the
Programs of its bodies are kept.

Invariants: a node runs here with all nodes of its bodies, or elsewhere with all of them. The bodies of a claimed node compile,
because they were lowered for the decision. That was done in this session or in the one that stored the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from ...errors import UnsupportedError
from ...records import dataclass
from ..assign import graph as ort_graph
from ..assign.decision import FORCED, Claim
from ..assign.enclosing import refusal_within
from ..assign.outcome import Alone, Elsewhere, Fused
from ..assign.shown import ShownGraph, ShownNode, key_of
from .bodies import bodies_of, cut_rows
from .operators import is_search, search_of

if TYPE_CHECKING:
    from ..abi import Ort
    from ..cached_compiler import CachedCompiler
    from ..store.stored import ProgramKey

SEARCH = Alone("search")
_CAPTURED = "a captured run would repeat the tokens of the run that was captured"


@dataclass(frozen=True)
class SearchDecision:
    """The decision on a node, and its bodies as ONNX Runtime shows them."""

    node: ShownNode
    outcome: Alone | Elsewhere
    bodies: Mapping[str, ShownGraph]

    def claim_of(self, body: ShownGraph) -> Claim:
        """Returns the same decision for the nodes of a body."""
        here = isinstance(self.outcome, Alone)
        return Claim((Fused(0) if here else Elsewhere(refusal_within(self.node) or ""),) * len(body))


class Searches:
    """Decides for one session. `forced` returns the names of a graph's nodes that the user excludes from this provider."""

    def __init__(
        self, ort: Ort, compiler: CachedCompiler, forced: Callable[[ShownGraph], Collection[str]], captures: bool
    ) -> None:
        self._ort, self._compiler, self._forced, self._captures = ort, compiler, forced, captures
        # Decisions, by a key of everything that they depend on.
        self._known: dict[str, tuple[str | None, dict[str, ProgramKey]]] = {}
        self._places: dict[str, dict[str, ProgramKey]] = {}

    def places_of(self, node: ShownNode) -> Mapping[str, ProgramKey]:
        """Returns where the Programs of a node's bodies are kept, by attribute. Call it after `decide`."""
        return self._places[node.outputs[0].name]

    def decide(self, graph: ShownGraph, assigned: Sequence[str], refusal: str | None) -> dict[int, SearchDecision]:
        """Decides on the nodes of a graph that have no provider. Returns the decisions by index.

        `refusal` is a reason against the whole graph.
        """
        found = {}
        for place, node in enumerate(graph):
            if is_search(node) and not assigned[place]:
                bodies = ort_graph.read_bodies(self._ort, node)
                reason = refusal or self._reason(graph, node, bodies)
                found[place] = SearchDecision(node, Elsewhere(reason) if reason else SEARCH, bodies)
        return found

    def _reason(self, graph: ShownGraph, node: ShownNode, bodies: Mapping[str, ShownGraph]) -> str | None:
        if node.name in self._forced(graph):
            return FORCED
        for name, body in bodies.items():
            if kept := sorted(self._forced(body)):
                return f"its {name} must run here completely, but {kept[0]} is {FORCED}"
        if self._captures:
            return _CAPTURED
        # Constants at the same address are equal.
        graphs = (graph, *bodies.values())
        places = [it.constant.raw.ctypes.data for each in graphs for it in each.initializers.values() if it.constant]
        key = repr((node.name, sorted(bodies), places, *map(key_of, graphs)))
        if key not in self._known:
            at: dict[str, ProgramKey] = {}
            self._known[key] = self._refusal_of_bodies(node, at), at
        reason, self._places[node.outputs[0].name] = self._known[key]
        return reason

    def _refusal_of_bodies(self, node: ShownNode, places: dict[str, ProgramKey]) -> str | None:
        graphs = ort_graph.read_bodies(self._ort, node)
        try:
            bodies = bodies_of(search_of(node), graphs, {it.name for it in node.implicit_inputs})
        except UnsupportedError as error:
            return str(error)
        for name in bodies:
            claim, places[name] = self._compiler.whole(graphs[name], cut_rows)
            for inner, reason in zip(graphs[name], claim.reasons, strict=True):
                if reason is not None:
                    return f"its {name} must run here completely, but {inner.op_type} ({inner.name}): {reason}"
        return None
