"""Claims and Programs for the bodies of control flow, which a compiled model contains as cache entries.

In: entries that a session stores while it decides on bodies and compiles them. Out: the same entries, from the context of a
group of the main graph. ONNX Runtime accepts contexts of nodes in bodies, but writes the bodies without them.
Invariant: the key of an entry includes all its dependencies, as in the cache, but with the context's `BuildKey` in place of
this machine's code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ...records import dataclass
from ..assign.inferred import InferredTypes, made_by
from .canonical_order import CanonicalOrder

if TYPE_CHECKING:
    from ...program.ties import Ties
    from ..assign.decision import Claim
    from ..assign.shown import ShownGraph, ShownNode
    from ..store.claims import Single
    from ..store.stored import Stored


class BodyEntries:
    """Entries in memory, with the interface of a cache folder. `missed`: an entry could not be stored."""

    def __init__(self, entries: Mapping[str, bytes] | None = None) -> None:
        self.entries = dict(entries or {})
        self.missed = False
        self.problem = ""

    def read(self, name: str) -> bytes | None:
        return self.entries.get(name)

    def write(self, name: str, data: bytes) -> bool:
        self.entries[name] = data
        return True

    def remove(self, name: str) -> bool:
        return self.entries.pop(name, None) is not None


@dataclass(frozen=True)
class BodyStore:
    """The entries for bodies of a compiled model.

    * `written`: the session writes the compiled model, otherwise it opens it.
    * `foreign`: there is no record that this user made the Programs.
    * `usable`: the kernels of the Programs may run.
    """

    stored: Stored
    entries: BodyEntries
    written: bool
    foreign: bool
    usable: bool
    claims: dict[frozenset[str], set[str]] = field(default_factory=dict)
    """The claims of the bodies of nodes, by the outputs of the nodes; "" for a claim that is not stored."""

    def in_order(self, group: ShownGraph) -> ShownGraph:
        """Returns a group in the order of its stored Program."""
        return CanonicalOrder(group, with_outputs=True).graph


class BodyClaim:
    """The decision on one body. `dependencies` begins with the providers of its nodes, and ends with outcomes by position."""

    def __init__(
        self, of: BodyStore, graph: ShownGraph, ties: Ties, dependencies: tuple[Any, ...], single: Single
    ) -> None:
        self._of, self._ties, self._order = of, ties, CanonicalOrder(graph)
        self.stored, self.written = of.stored, of.written
        self._assigned, self._single = self._order.of(dependencies[0]), self._order.at(single)
        self._dependencies = self._assigned, *dependencies[1:-1], sorted(map(str, self._single.items()))
        found = sorted({claim for node in graph for claim in of.claims.get(made_by([node]), ())})
        # The decision depends on these alone, in whichever order ONNX Runtime presents bodies.
        self.stored.depend_only_on(None if "" in found else found)

    def claim(self) -> tuple[Claim, InferredTypes] | None:
        """Returns the decision, or None if it is not stored."""
        known = self.stored.claim(self._order.graph, self._ties, self._dependencies, self._assigned, self._single)
        return None if known is None else (self._order.restore(known[0]), known[1])

    def keep(self, claim: Claim, inferred: InferredTypes, constants_read: Iterable[str]) -> None:
        """Stores a decision, unless its types come from the model's file. A compiled model is another file."""
        made = self._order.claim(claim)
        if inferred.of_model:
            self.stored.depend_only_on(None)
        if not self.stored.keep_claim(self._order.graph, self._dependencies, made, inferred, constants_read):
            self._of.entries.missed = True

    def record(self, parent: ShownNode, here: bool) -> None:
        """Records a decision on the body of `parent`; `here`: it is one of the entries."""
        self._of.claims.setdefault(made_by([parent]), set()).add(self.stored.place.claim if here else "")
