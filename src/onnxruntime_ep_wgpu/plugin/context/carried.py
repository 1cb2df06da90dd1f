"""What a compiled model carries for the bodies of its control flow: claims and Programs as the cache has them.

In: entries that a session keeps while it decides on bodies and compiles them. Out: the same, from the context of a group of the
main graph, where ONNX Runtime can have one: it takes contexts of nodes in bodies, and writes the bodies without them. Invariant: an
entry is found by a key that has all it depends on, as in the cache; in place of this machine's code stands what the context was
made for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ...records import dataclass
from ..assign.inferred import InferredTypes, made_by
from .one_order import OneOrder

if TYPE_CHECKING:
    from ...program.ties import Ties
    from ..assign.decision import Claim
    from ..assign.shown import ShownGraph, ShownNode
    from ..store.claims import Single
    from ..store.stored import Stored


class CarriedEntries:
    """Entries in memory, with what a folder of the cache offers. `missed` says whether something could not be kept."""

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
class Carried:
    """What a compiled model has for its bodies, or gets where it is `written`. Programs are `usable` where kernels may run: they
    are `foreign` where this user did not make them."""

    stored: Stored
    entries: CarriedEntries
    written: bool
    foreign: bool
    usable: bool
    claims: dict[frozenset[str], set[str]] = field(default_factory=dict)
    """Of the bodies of nodes, by what these make; "" for one that is not carried."""

    def in_order(self, group: ShownGraph) -> ShownGraph:
        """A group as its Program is kept."""
        return OneOrder(group, with_outputs=True).graph


class CarriedClaim:
    """What is decided of one body. `asked` begins with the providers of its nodes and ends with outcomes by place."""

    def __init__(self, of: Carried, graph: ShownGraph, ties: Ties, asked: tuple[Any, ...], single: Single) -> None:
        self._of, self._ties, self._order = of, ties, OneOrder(graph)
        self.stored, self.written = of.stored, of.written
        self._assigned, self._single = self._order.of(asked[0]), self._order.at(single)
        self._asked = self._assigned, *asked[1:-1], sorted(map(str, self._single.items()))
        found = sorted({claim for node in graph for claim in of.claims.get(made_by([node]), ())})
        # Whatever order ONNX Runtime asks in, these are what the decision depends on.
        self.stored.after(None if "" in found else found)

    def claim(self) -> tuple[Claim, InferredTypes] | None:
        """The decision, where it is carried."""
        known = self.stored.claim(self._order.graph, self._ties, self._asked, self._assigned, self._single)
        return None if known is None else (self._order.back(known[0]), known[1])

    def keep(self, claim: Claim, inferred: InferredTypes, constants_read: Iterable[str]) -> None:
        """Keeps a decision; not one with types for which the model's file was read, which is another one when it is compiled."""
        made = self._order.claim(claim)
        if inferred.of_model:
            self.stored.after(None)
        if not self.stored.keep_claim(self._order.graph, self._asked, made, inferred, constants_read):
            self._of.entries.missed = True

    def note(self, parent: ShownNode, here: bool) -> None:
        """The body of `parent` was decided on, `here` or elsewhere."""
        self._of.claims.setdefault(made_by([parent]), set()).add(self.stored.place.claim if here else "")
