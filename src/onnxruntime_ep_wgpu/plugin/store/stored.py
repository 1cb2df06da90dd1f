"""Finds claims and Programs in the cache, and stores them there.

In: the graphs from ONNX Runtime, with all dependencies of the results. Out: claims, and the Programs of their groups; None if
they must be compiled. Invariant: a result equals that of a fresh compilation.

- The key of a claim includes the graph without the elements of large constants, their ties, and the parent node of a body. It
  also includes the Target, settings and code, and keys and facts of all earlier claims of the session, such as those of bodies.
- The facts of a claim are the large constants that were read, and the model, if it was read for types.
- The key of a Program includes key and facts of its claim, and the graph of its group.
  Its facts are the constants that were read since then.

After a claim that is not stored, nothing is stored.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from ...kept.entry import Entry, EntryError, FormatError, read, written
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

ReportProblem = Callable[[str, bool], None]
"""Receives one line about a problem. The second argument is True for a warning, False for a line of information."""
Source = Callable[[], "str | bytes | None"]
"""The file name or the bytes of a model; None where neither is known."""

MOST_FACTS = 16 << 20  # bytes of constants that each start of a session calculates digests of
MODEL = ""  # the name of the fact for the model's content; no constant has this name


class ProgramKey(NamedTuple):
    """The key of a graph's Programs: its claim, "" if it is not stored, and its ties."""

    claim: str
    ties: Ties


class Entries(Protocol):
    """The storage of entries: `Folder`, or memory for those of a compiled model."""

    problem: str

    def read(self, name: str) -> bytes | None: ...

    def write(self, name: str, data: bytes) -> bool: ...

    def remove(self, name: str) -> bool: ...


def on_disk(
    target: Target, settings: CompileSettings, source: Source, report: ReportProblem, used: bool = True
) -> Stored:
    """Returns the cache of this user; without `used`, a cache that finds and stores nothing."""
    path = folder_path() if used else None
    folder = None if path is None else Folder(path)
    return Stored(target.name, source, report, folder, partial(identity_of, target, settings))


class Stored:
    """The cache for one session."""

    def __init__(
        self,
        adapter: str,
        source: Source,
        report: ReportProblem,
        folder: Entries | None,
        identity: Callable[[], str | None],
    ) -> None:
        """Without a `folder`, the cache finds and stores nothing.

        `identity`: returns the identity of code, Target and settings, None if it is uncertain. `source`: returns the file name
        or the bytes of the model.
        """
        self._adapter, self._source, self._report, self._identity_now = adapter, source, report, identity
        self._folder = folder
        self._identity = None if folder is None else identity()
        if self._folder is not None and self._identity is None:
            report("nothing is cached: files of this package are newer than the process, or cannot be examined", False)
        self.place = ProgramKey("", {})  # of the graph of the last decision
        self._before: str | None = ""  # identifies all claims so far; None if one is not stored
        self._described: Mapping[str, str] = {}

    # ---- claims

    def claim(
        self,
        graph: ShownGraph,
        ties: Ties,
        dependencies: Sequence[object],
        assigned: Sequence[str],
        single: claims.Single,
    ) -> tuple[Claim, InferredTypes] | None:
        """Returns the decision on a graph, or None. `dependencies`: its other dependencies."""
        self.place = ProgramKey("", ties)
        if self._identity is None or self._before is None:
            return None
        key = self._key_of_claim(graph, dependencies)
        found = self._read(key, claims.KIND, graph, lambda it: claims.claim_of(it.content, assigned, single))
        if found is None:
            return None
        entry, claim = found
        self._begin(key, entry.facts)
        return claim

    def keep_claim(
        self,
        graph: ShownGraph,
        dependencies: Sequence[object],
        claim: Claim,
        inferred: InferredTypes,
        constants_read: Iterable[str],
    ) -> bool:
        """Stores the decisions on the graph that was looked up last. `constants_read` are the constants that they depend on.

        Returns whether they could be stored.
        """
        facts = None if self._before is None else self._facts(graph, constants_read, inferred.of_model)
        if facts is not None and claims.can_be_kept(claim, inferred):
            key = self._key_of_claim(graph, dependencies)
            self._described = {"graph": graph.name, "adapter": self._adapter}
            if self._write(key, Entry(claims.KIND, facts, claims.content_of(claim, inferred), self._described)):
                self._begin(key, facts)
                return True
        self._before = None
        return False

    def _key_of_claim(self, graph: ShownGraph, dependencies: Sequence[object]) -> str:
        ties = sorted((name, tie.of, tie.permutation) for name, tie in self.place.ties.items())
        return key_of(graph, claims.KIND, self._identity, self._before, ties, *dependencies)

    def _begin(self, key: str, facts: Mapping[str, str]) -> None:
        found = repr((key, sorted(facts.items()))).encode("utf-8", "backslashreplace")
        self._before = hashlib.sha256(found).hexdigest()
        self.place = self.place._replace(claim=self._before)

    def continue_from(self, place: ProgramKey) -> None:
        """Continues after a decision that another `Stored` found or made. `place`: the key of that graph's Programs."""
        if self._before is not None:
            self._before = hashlib.sha256(f"{self._before} {place.claim}".encode()).hexdigest()
        self.place = place

    def depend_only_on(self, claims: Sequence[str] | None) -> None:
        """Sets the only claims that the next graph depends on; None if some of them are not stored."""
        self._before = None if claims is None else repr(claims)

    @contextmanager
    def using_key(self, place: ProgramKey) -> Iterator[None]:
        """Uses the key `place` for Programs inside the `with`, for groups of another graph than that of the last decision."""
        before, self.place = self.place, place
        try:
            yield
        finally:
            self.place = before

    def key_of_context(self, digest: str, ties: Ties) -> ProgramKey:
        """Returns the key for groups without a claim of this session. `digest`: that of their graph with its constants."""
        known = self._identity is not None
        return ProgramKey(hashlib.sha256(f"{self._identity} {digest}".encode()).hexdigest() if known else "", ties)

    # ---- Programs

    def ties(self, graph: ShownGraph) -> Ties | None:
        """Returns the ties in a group; None if its claim is not stored, because then its Program is not stored either."""
        if not self.place.claim:
            return None
        known = graph.initializers
        return {name: tie for name, tie in self.place.ties.items() if name in known and tie.of in known}

    def program(self, graph: ShownGraph, name: str) -> programs.StoredProgram | None:
        """Returns the Program of a group, or None."""
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
        """Stores the Program of a group. `names`: the names of its graph's constants, by the identity of their tensors.

        Returns whether it could be stored.
        """
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
        """Returns digests of data that were read; None if they are too large for digests in each start, or if code changed."""
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
        """Returns the digests of constants, and of the model if MODEL is among the names."""
        found = digests(graph, names)
        if MODEL in names:
            found[MODEL] = self._digest_of_model or "unknown"
        return found

    @cached_property
    def _digest_of_model(self) -> str | None:
        """The digest of the model; None if it is too large for a digest in each start, or not readable."""
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
            self._report_folder_problem()
            return None
        try:
            entry = read(data, key, kind)
            if self._digests(graph, list(entry.facts)) != entry.facts:
                return None
            return entry, of(entry)
        except EntryError as error:
            other = isinstance(error, FormatError)
            fault = "is from another version of this package" if other else "is damaged"
            self._report(f"the cache's entry {key} {fault} ({error}) and will be made again", not other)
            self._folder.remove(key)
            return None

    def _write(self, key: str, entry: Entry) -> bool:
        assert self._folder is not None
        done = self._folder.write(key, written(key, entry))
        self._report_folder_problem()
        return done

    def _report_folder_problem(self) -> None:
        assert self._folder is not None
        if self._folder.problem:
            self._report(f"nothing is cached: {self._folder.problem}", False)
            self._identity = None  # no further attempt in this session
