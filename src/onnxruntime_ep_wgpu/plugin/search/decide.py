"""Which nodes that generate text run here, and why the others do not.

In: a graph with such nodes. Out: per node the reason against it, or None, and its bodies for the report. Invariants: a node runs
here with all that is in its bodies, or stays elsewhere with all of them; the bodies of a node that is claimed compile, because they
were lowered to decide on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...compiler.graph.facts import facts_of
from ...errors import UnsupportedError
from ..assign.decision import FORCED, Claim
from ..assign.enclosing import refusal_within
from ..assign.outcome import Alone, Elsewhere, Fused
from ..assign.shown import ShownGraph, ShownNode, key_of
from .compile import graphs_of, lowered_bodies
from .operators import is_search

if TYPE_CHECKING:
    from ...program.settings import CompileSettings
    from ...program.target import Target
    from ..abi import Ort
    from ..assign.lowerings import Lowerings

SEARCH = Alone("search")
_CAPTURED = "the tokens of a captured run would be those of the run that was captured"


@dataclass(frozen=True)
class Decided:
    """What was decided on a node, and its bodies as ONNX Runtime shows them."""

    node: ShownNode
    outcome: Alone | Elsewhere
    bodies: Mapping[str, ShownGraph]

    def claim_of(self, body: ShownGraph) -> Claim:
        """The same for the nodes of a body."""
        here = isinstance(self.outcome, Alone)
        return Claim((Fused(0) if here else Elsewhere(refusal_within(self.node) or ""),) * len(body))


class Searches:
    """Decides for one session. `forced` are the names of the nodes of a graph that the user keeps away."""

    def __init__(
        self,
        ort: Ort,
        target: Target,
        settings: CompileSettings,
        lowerings: Lowerings,
        forced: Callable[[ShownGraph], Collection[str]],
        captures: bool,
    ) -> None:
        self._ort, self._target, self._settings, self._lowerings = ort, target, settings, lowerings
        self._forced, self._captures = forced, captures
        self._known: dict[str, str | None] = {}  # what was decided, by what the answer depends on

    def decide(self, graph: ShownGraph, assigned: Sequence[str], refusal: str | None) -> dict[int, Decided]:
        """The nodes of a graph that no provider holds, by place. `refusal` is a reason against all of the graph."""
        found = {}
        for place, node in enumerate(graph):
            if is_search(node) and not assigned[place]:
                bodies = graphs_of(self._ort, node)
                reason = refusal or self._reason(graph, node, bodies)
                found[place] = Decided(node, Elsewhere(reason) if reason else SEARCH, bodies)
        return found

    def _reason(self, graph: ShownGraph, node: ShownNode, bodies: Mapping[str, ShownGraph]) -> str | None:
        if node.name in self._forced(graph):
            return FORCED
        for name, body in bodies.items():
            if kept := sorted(self._forced(body)):
                return f"its {name} runs here whole or not at all: {kept[0]} is {FORCED}"
        if self._captures:
            return _CAPTURED
        # Constants in the same memory are the same.
        graphs = (graph, *bodies.values())
        places = [it.constant.raw.ctypes.data for each in graphs for it in each.initializers.values() if it.constant]
        key = repr((node.name, sorted(bodies), places, *map(key_of, graphs)))
        if key not in self._known:
            self._known[key] = self._lower(node)
        return self._known[key]

    def _lower(self, node: ShownNode) -> str | None:
        try:
            for graph, lowered in lowered_bodies(self._ort, node, self._target, self._settings):
                self._lowerings.keep(graph, lowered, facts_of(graph))
        except UnsupportedError as error:
            return str(error)
        return None
