"""What a session finds in the cache, and what it leaves there.

In: the graphs that ONNX Runtime shows, with all that the answers depend on. Out: claims, and the Programs of their groups; None
where they have to be made. Invariants: an answer is that of a fresh compilation. The key of a claim has the graph, whole but for
the elements of large constants; which of these are tied; the node that it is a body of; the Target, settings and code; and the keys
and facts of all claims of the session before it, as those of bodies before the graph around them. Its facts are the large constants
that were looked at, and the model, where that was read for types. The key of a Program has the key and facts of the claim that it
belongs to, and the graph of its group; its facts are what was looked at since. Behind a claim that is not kept nothing is.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from ...kept.entry import Entry, EntryError, read, written
from ...kept.folder import Folder, folder_path
from ...program.ties import Ties
from ...trace import span
from ..assign.shown import ShownGraph, digests, key_of
from . import claims, programs
from .identity import identity_of

if TYPE_CHECKING:
    from ...program.settings import CompileSettings
    from ...program.target import Target
    from ..assign.decision import Claim
    from ..assign.inferred import InferredTypes

Found = TypeVar("Found")

Tell = Callable[[str, bool], None]
"""One line about what went wrong, and whether the log should have it."""
Source = Callable[[], "str | bytes | None"]
"""The file name or the bytes of a model; None where neither is known."""

MOST_FACTS = 16 << 20  # bytes of constants whose digests are calculated in each start
MODEL = ""  # the name of a fact that is the model's file; constants have other names


class KeptUnder(NamedTuple):
    """What the Programs of a graph are kept under: its claim, "" where that is not kept, and what is tied in it."""

    claim: str
    ties: Ties


class Entries(Protocol):
    """Where entries lie: `Folder`, or the memory of a compiled model."""

    problem: str

    def read(self, name: str) -> bytes | None: ...

    def write(self, name: str, data: bytes) -> bool: ...

    def remove(self, name: str) -> bool: ...


def on_disk(target: Target, settings: CompileSettings, source: Source, tell: Tell, used: bool = True) -> Stored:
    """The cache of this user; one that is not `used` has nothing."""
    path = folder_path() if used else None
    folder = None if path is None else Folder(path)
    return Stored(target.name, source, tell, folder, partial(identity_of, target, settings))


class Stored:
    """The cache for one session."""

    def __init__(
        self, adapter: str, source: Source, tell: Tell, folder: Entries | None, identity: Callable[[], str | None]
    ) -> None:
        """One without a `folder` has nothing, and keeps nothing. `identity` gives what stands for code, Target and settings; None
        where that is not certain. `source` gives the file name or the bytes of the model."""
        self._adapter, self._source, self._tell, self._identity_now = adapter, source, tell, identity
        self._folder = folder
        self._identity = None if folder is None else identity()
        if self._folder is not None and self._identity is None:
            tell("nothing is cached: files of this package are newer than the process, or cannot be looked at", False)
        self.place = KeptUnder("", {})  # of the graph that was decided on last
        self._before: str | None = ""  # all claims so far; None where one is not kept
        self._described: Mapping[str, str] = {}

    # ---- claims

    def claim(
        self, graph: ShownGraph, ties: Ties, asked: Sequence[object], assigned: Sequence[str], single: claims.Single
    ) -> tuple[Claim, InferredTypes] | None:
        """What was decided of a graph, of which this is `asked`."""
        self.place = KeptUnder("", ties)
        if self._identity is None or self._before is None:
            return None
        key = self._key_of_claim(graph, asked)
        found = self._read(key, claims.KIND, graph, lambda it: claims.claim_of(it.content, assigned, single))
        if found is None:
            return None
        entry, claim = found
        self._begin(key, entry.facts)
        return claim

    def keep_claim(
        self,
        graph: ShownGraph,
        asked: Sequence[object],
        claim: Claim,
        inferred: InferredTypes,
        constants_read: Iterable[str],
    ) -> bool:
        """Stores the decisions on the graph that was looked up last. `constants_read` are the constants that they depend on.

        Returns whether they could be stored.
        """
        facts = None if self._before is None else self._facts(graph, constants_read, inferred.of_model)
        if facts is not None and claims.can_be_kept(claim, inferred):
            key = self._key_of_claim(graph, asked)
            self._described = {"graph": graph.name, "adapter": self._adapter}
            if self._write(key, Entry(claims.KIND, facts, claims.content_of(claim, inferred), self._described)):
                self._begin(key, facts)
                return True
        self._before = None
        return False

    def _key_of_claim(self, graph: ShownGraph, asked: Sequence[object]) -> str:
        ties = sorted((name, tie.of, tie.permutation) for name, tie in self.place.ties.items())
        return key_of(graph, claims.KIND, self._identity, self._before, ties, *asked)

    def _begin(self, key: str, facts: Mapping[str, str]) -> None:
        found = repr((key, sorted(facts.items()))).encode("utf-8", "backslashreplace")
        self._before = hashlib.sha256(found).hexdigest()
        self.place = self.place._replace(claim=self._before)

    def follow(self, place: KeptUnder) -> None:
        """A graph was decided on elsewhere, whose Programs are kept under this."""
        if self._before is not None:
            self._before = hashlib.sha256(f"{self._before} {place.claim}".encode()).hexdigest()
        self.place = place

    def after(self, claims: Sequence[str] | None) -> None:
        """The next graph depends on these claims alone; on some that are not kept where they are None."""
        self._before = None if claims is None else repr(claims)

    @contextmanager
    def within(self, place: KeptUnder) -> Iterator[None]:
        """Programs are meanwhile those of groups of another graph than the one that was decided on last."""
        before, self.place = self.place, place
        try:
            yield
        finally:
            self.place = before

    def adopted(self, digest: str, ties: Ties) -> KeptUnder:
        """That of groups that no claim of this session has: of a graph, and constants, that have this digest together."""
        known = self._identity is not None
        return KeptUnder(hashlib.sha256(f"{self._identity} {digest}".encode()).hexdigest() if known else "", ties)

    # ---- Programs

    def ties(self, graph: ShownGraph) -> Ties | None:
        """What is tied in a group, where its claim was kept or found: only then its Program may be."""
        if not self.place.claim:
            return None
        known = graph.initializers
        return {name: tie for name, tie in self.place.ties.items() if name in known and tie.of in known}

    def program(self, graph: ShownGraph, name: str) -> programs.StoredProgram | None:
        """The Program of a group."""
        if not self.place.claim or not programs.has_arrays(graph):
            return None
        key = self._key_of_program(graph)
        with span("compile", name, nodes=len(graph), reason="looked up in the cache"):
            found = self._read(
                key, programs.KIND, graph, lambda it: programs.program_of(it.content, it.data, graph, name)
            )
        return None if found is None else found[1]

    def keep_program(
        self, graph: ShownGraph, stored: programs.StoredProgram, names: Mapping[int, str], constants_read: Iterable[str]
    ) -> bool:
        """Keeps the Program of a group; `names` are those of its graph's constants, by the identity of their tensors. Whether it
        could be kept."""
        facts = self._facts(graph, constants_read) if self.place.claim else None
        content = None if facts is None or not programs.has_arrays(graph) else programs.content_of(stored, names)
        if facts is None or content is None:
            return False
        return self._write(
            self._key_of_program(graph), Entry(programs.KIND, facts, content[0], self._described, content[1])
        )

    def _key_of_program(self, graph: ShownGraph) -> str:
        return key_of(graph, programs.KIND, self.place.claim)

    # ---- entries

    def _facts(self, graph: ShownGraph, constants_read: Iterable[str], of_model: bool = False) -> dict[str, str] | None:
        """Digests of what was looked at; None where that is too much to look at in each start, or code was changed meanwhile."""
        if self._identity is None or self._identity_now() != self._identity:
            return None
        names = [name for name in constants_read if name in graph.initializers]
        constants = [graph.initializers[name].constant for name in names]
        if sum(it.raw.nbytes for it in constants if it is not None) > MOST_FACTS:
            return None
        if of_model and self._digest_of_model is None:
            return None
        return self._digests(graph, [*names, *([MODEL] if of_model else [])])

    def _digests(self, graph: ShownGraph, names: Sequence[str]) -> dict[str, str]:
        """Those of constants, and of the model where it is among the names."""
        found = digests(graph, names)
        if MODEL in names:
            found[MODEL] = self._digest_of_model or "unknown"
        return found

    @cached_property
    def _digest_of_model(self) -> str | None:
        """None for a model that is too large to look at in each start."""
        source = self._source()
        try:
            if isinstance(source, str) and source:
                if os.stat(source).st_size > MOST_FACTS:
                    return None
                with open(source, "rb") as file:
                    source = file.read(MOST_FACTS)
        except (OSError, ValueError):
            return None
        content = source if isinstance(source, bytes) else b""
        return None if len(content) > MOST_FACTS else hashlib.sha256(content).hexdigest()

    def _read(self, key: str, kind: str, graph: ShownGraph, of: Callable[[Entry], Found]) -> tuple[Entry, Found] | None:
        assert self._folder is not None
        data = self._folder.read(key)
        if data is None:
            self._tell_problem()
            return None
        try:
            entry = read(data, key, kind)
            if self._digests(graph, list(entry.facts)) != entry.facts:
                return None
            return entry, of(entry)
        except EntryError as error:
            self._tell(f"the cache's entry {key} is damaged ({error}): it is made again", True)
            self._folder.remove(key)
            return None

    def _write(self, key: str, entry: Entry) -> bool:
        assert self._folder is not None
        done = self._folder.write(key, written(key, entry))
        self._tell_problem()
        return done

    def _tell_problem(self) -> None:
        assert self._folder is not None
        if self._folder.problem:
            self._tell(f"nothing is cached: {self._folder.problem}", False)
            self._identity = None  # not again in this session
