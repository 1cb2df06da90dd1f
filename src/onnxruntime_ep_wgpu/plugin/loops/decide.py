"""Decides which Loops run here with all of their iterations, and stores where the Programs of their bodies are kept.

In: first the body of a Loop, later its node. Out: whether the node runs its body itself. Invariants: a body that its node runs
is one group when it is lowered alone. The answer for a node is the earlier answer for its body.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from ...errors import UnsupportedError
from ...records import dataclass
from ..assign.enclosing import refusal_of_rows
from ..assign.graph import read_bodies
from ..assign.inferred import PlainInfo, fill_in
from ..assign.outcome import Alone, Fused
from ..assign.shown import ShownGraph, ShownNode
from ..prepared import unchanged
from .body import LoopBody, Shown, body_of
from .unrolled import trips_of, unroll

if TYPE_CHECKING:
    from ..abi import Ort
    from ..assign.decision import Claim
    from ..cached_compiler import CachedCompiler
    from ..store.stored import ProgramKey

LOOP = Alone("loop")


@dataclass(frozen=True)
class DecidedLoop:
    """Where the Program of a body is kept, and types and shapes that ONNX Runtime has not inferred, by value name."""

    place: ProgramKey
    found: Mapping[str, PlainInfo]


class Loops:
    """Decides for one session. `forced` returns the names of a graph's nodes that the user excludes from this provider."""

    def __init__(self, ort: Ort, compiler: CachedCompiler, forced: Callable[[ShownGraph], Collection[str]]) -> None:
        self._ort, self._compiler, self._forced = ort, compiler, forced
        self._known: dict[tuple[str, ...], DecidedLoop] = {}
        self._unrolled: set[tuple[str, ...]] = set()

    def claims(self, node: ShownNode, graph: ShownGraph, apart: ShownGraph, claim: Claim) -> bool:
        """Returns whether a Loop runs here with its body `graph`.

        `apart` is a copy of the body, which is changed. `claim` is the decision on the nodes of the body.
        """
        self._known.pop(_key(node), None)
        if node.op_type != "Loop" or refusal_of_rows(node) is not None or self._forced(graph):
            return False
        if not any(isinstance(it, Fused) for it in claim.outcomes):
            return False  # no kernel would run here
        found = self._compiler.found
        try:
            body = self._body_of(node, apart, found)
        except UnsupportedError:
            return False
        if not len(apart) or (body.condition and not _is_made_in_body(body.condition, graph, claim)):
            return False
        whole, place = self._compiler.whole(apart, unchanged)
        if any(reason is not None for reason in whole.reasons):
            return False
        self._known[_key(node)] = DecidedLoop(place, found)
        return True

    def outcome(self, node: ShownNode) -> Alone | None:
        """Returns the outcome for a Loop that runs its body itself; None for other nodes."""
        return LOOP if _key(node) in self._known else None

    def unroll(self, graph: ShownGraph, again: bool = False) -> list[int]:
        """Replaces small Loops with a constant trip count by their iterations.

        With `again`, replaces only those that were replaced before, without those passed to `exclude_from_unrolling`. Returns
        for each node of the changed graph the index of the node that it was in the original graph, or that it replaces.
        """
        places: list[int] = []
        for place, node in enumerate(list(graph)):
            key = _key(node)
            before = len(graph)
            if node.op_type == "Loop" and key in self._known and (not again or key in self._unrolled):
                body, inner, _ = self.body(node)
                trips = trips_of(node, body, inner)
                if isinstance(trips, int):
                    unroll(graph, node, body, inner, trips)
                    self._unrolled.add(key)
            places += [place] * (1 + len(graph) - before)
        return places

    def why_not_unrolled(self, node: ShownNode) -> str:
        """Returns why a Loop that runs here is not unrolled."""
        body, inner, _ = self.body(node)
        reason = trips_of(node, body, inner)
        return reason if isinstance(reason, str) else "its iterations are not in one group"

    def exclude_from_unrolling(self, nodes: Iterable[ShownNode]) -> None:
        """Excludes these Loops from being unrolled again."""
        self._unrolled.difference_update(map(_key, nodes))

    def body(self, node: ShownNode) -> tuple[LoopBody, ShownGraph, ProgramKey]:
        """Returns the body of a Loop that runs here, its graph to compile, and where the Program is kept."""
        known = self._known[_key(node)]
        graph = read_bodies(self._ort, node)["body"]
        return self._body_of(node, graph, known.found), graph, known.place

    def _body_of(self, node: ShownNode, graph: ShownGraph, found: Mapping[str, PlainInfo]) -> LoopBody:
        """Returns the body of a Loop, with the types and shapes in `found`.

        `graph` is the body as ONNX Runtime shows it, and is changed. Raises UnsupportedError.
        """
        shown = Shown.of(graph)
        fill(graph, found)
        self.unroll(graph, again=True)
        return body_of(node, graph, shown)


def fill(graph: ShownGraph, found: Mapping[str, PlainInfo]) -> None:
    """Gives all values of a graph their known types and shapes."""
    fill_in([*graph.inputs, *(it for node in graph for it in node.outputs)], found)


def _is_made_in_body(name: str, graph: ShownGraph, claim: Claim) -> bool:
    """Returns whether a kernel makes a value. A value calculated from sizes is available earlier on the CPU."""
    outcomes = zip(graph, claim.outcomes, strict=True)
    return any(isinstance(it, Fused) and any(made.name == name for made in node.outputs) for node, it in outcomes)


def _key(node: ShownNode) -> tuple[str, ...]:
    return tuple(it.name for it in node.outputs)
