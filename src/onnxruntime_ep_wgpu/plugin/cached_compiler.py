"""Claims and Programs for a session, from the store if it has them. Otherwise the compiler makes them, and they are stored.

In: graphs from ONNX Runtime. Out: claims; Programs of groups, each with an object that compiles it again. Invariants: equal
graphs get equal results from any source. If all results come from the store, no part of the compiler is loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import ModelError, UnsupportedError, cut, with_message
from ..program.settings import CompileSettings
from ..program.target import Target, lack
from ..records import dataclass
from ..runtime.weight_sources import WeightSource
from ..trace import span
from .assign.enclosing import refusal_within
from .assign.inferred import GraphPlace, InferredTypes, PlainInfo, fill_in, made_by
from .assign.shown import ShownGraph, ShownNode, ShownValue, described_node, ties_in
from .context.body_entries import BodyClaim, BodyStore
from .prepared import Prepare, unchanged
from .recompiling import LazyRecompiler, Make, Recompiler
from .store.programs import StoredProgram
from .store.stored import ProgramKey, ReportProblem, Source, Stored, on_disk

if TYPE_CHECKING:
    import onnx_ir as ir

    from ..program.ties import Ties
    from .assign.decision import Claim
    from .assign.outcome import Alone, Elsewhere, OwnKernel
    from .compiling import Compiling
    from .context.body_entries import BodyEntries
    from .context.build_key import BuildKey
    from .context.content import GroupContext


@dataclass(frozen=True)
class CompiledProgram:
    """A Program, and an object that compiles it again.

    `names`: the names of the graph's constants by the identity of their tensors; empty for a Program from a store.
    """

    stored: StoredProgram
    specialise: Recompiler
    names: Mapping[int, str]
    ties: Ties | None = None
    """The tied constants of the graph, if known."""
    foreign: bool = False
    """Whether the kernels are from a context that another user made. Then they must check every index."""


class CachedCompiler:
    """The claims and Programs of one session.

    `source` returns the file name or the bytes of the model. `report` reports problems with the store.
    """

    def __init__(
        self, target: Target, settings: CompileSettings, source: Source, report: ReportProblem, stored: bool = True
    ) -> None:
        """Without `stored`, nothing is read from the store and nothing is written to it."""
        self._target, self._settings, self._source, self._report = target, settings, source, report
        self._stored = self._store_in_use = on_disk(target, settings, source, report, stored)
        self._body_store: BodyStore | None = None
        self._compiling: Compiling | None = None
        # Graphs with claims from the store; the compiler needs them later.
        self._found: list[tuple[GraphPlace, InferredTypes]] = []
        # Types of values that ONNX Runtime does not have, by the outputs of a group, until the group is compiled.
        self._inferred: dict[frozenset[str], Mapping[str, PlainInfo]] = {}
        self.found: Mapping[str, PlainInfo] = {}  # the same for the graph of the last decision
        self.compiled: list[str] = []  # results that were not in the store: "" for a claim, otherwise a group's name

    def claim(
        self,
        graph: ShownGraph,
        parent: ShownNode | None,
        assigned: Sequence[str],
        forced: frozenset[str],
        single: Mapping[int, Alone | OwnKernel | Elsewhere] | None = None,
    ) -> Claim:
        """Returns the decision about a graph, which is a body of `parent`.

        `assigned`: the provider that holds each node. `single`: outcomes, by index, of nodes that are in no group with others.
        """
        refusal = None if parent is None else refusal_within(parent)
        single, ties = single or {}, ties_in(graph)
        around = None if parent is None else described_node(parent)
        dependencies = list(assigned), sorted(forced), refusal, around, sorted(map(str, single.items()))
        body = (
            None
            if self._body_store is None or parent is None
            else BodyClaim(self._body_store, graph, ties, dependencies, single)
        )
        known = None if body is None else body.claim()
        self._store_in_use = self._stored if body is None or (known is None and not body.written) else body.stored
        if self._store_in_use is self._stored:
            known = self._stored.claim(graph, ties, dependencies, assigned, single)
        elif known is not None:
            self._stored.continue_from(self._store_in_use.place)
        if known is not None:
            claim, inferred = known
            self._found.append((GraphPlace.of(graph, parent), inferred))
        else:
            self.compiled.append("")
            found = self._compile().decide(graph, ties, parent, assigned, forced, refusal, single)
            claim, inferred = found.claim, found.inferred
            if body is not None and self._store_in_use is body.stored:
                body.keep(claim, inferred, found.constants_read)
            else:
                self._stored.keep_claim(graph, dependencies, claim, inferred, found.constants_read)
        if body is not None and parent is not None:
            body.record(parent, self._store_in_use is body.stored)
        self.found = inferred.values
        for places in claim.groups if inferred.values else ():
            self._inferred[made_by(graph.nodes[place] for place in places)] = inferred.values
        return claim

    def whole(self, graph: ShownGraph, prepare: Prepare) -> tuple[Claim, ProgramKey]:
        """Decides about a graph that runs here as a whole or not at all: all of its nodes are in one group, or some cannot be.

        The graph is prepared for the compiler. Also returns the place of its Program in the store.
        """
        ties, assigned = ties_in(graph), [""] * len(graph)
        known = self._stored.claim(graph, ties, ["whole"], assigned, {})
        if known is not None:
            return known[0], self._stored.place
        self.compiled.append("")
        found = self._compile().decide_whole(graph, ties, prepare)
        self._stored.keep_claim(graph, ["whole"], found.claim, found.inferred, found.constants_read)
        return found.claim, self._stored.place

    def program_within(
        self, place: ProgramKey, graph: ShownGraph, name: str, declared: frozenset[str], prepare: Prepare
    ) -> CompiledProgram:
        """Returns the Program of a group. `place`: where the Programs of its graph are stored."""
        self._store_in_use = self._stored
        with self._stored.using_key(place):
            return self.program(graph, name, declared, prepare)

    def program(
        self, graph: ShownGraph, name: str, declared: frozenset[str], prepare: Prepare = unchanged
    ) -> CompiledProgram:
        """Returns the Program of a group. `declared`: the inputs of the model. `prepare` changes the graph for the compiler."""
        # Only the inputs: a run may give an input another rank than the inferred one. Lowering infers what the nodes make.
        fill_in(graph.inputs, self._inferred.get(made_by(graph), {}))
        ties = self._store_in_use.ties(graph)
        body = (
            self._body_store if self._body_store is not None and self._store_in_use is self._body_store.stored else None
        )
        usable = ties is not None and (body is None or body.usable)
        in_order = graph if body is None else body.in_order(graph)
        known = self._store_in_use.program(in_order, name) if usable else None
        if known is not None and ties is not None:
            _reorder(graph.inputs, known.inputs)
            _reorder(graph.outputs, known.outputs)
            foreign = body is not None and body.foreign
            return CompiledProgram(known, self._later(graph, ties, name, declared, prepare), {}, ties, foreign)
        self.compiled.append(name)
        with span("compile", name, nodes=len(graph)):
            found = self._compile().compile(graph, name, declared, ties, prepare)
        made = StoredProgram(found.program, found.inputs, found.outputs)
        if body is None or body.written:
            kept = self._store_in_use.keep_program(in_order, made, found.names, found.constants_read)
            if body is not None and not kept:
                body.entries.missed = True
        return CompiledProgram(made, found.specialise, found.names, ties)

    def use_entries_of_bodies(
        self, entries: BodyEntries, build_key: BuildKey, *, written: bool, foreign: bool, checks: bool
    ) -> None:
        """Uses entries of a compiled model for claims and Programs of bodies from now on; with `written`, writes them there.

        `foreign`: another user made them. `checks`: kernels can then check every index.
        """
        identity = build_key.text()
        stored = Stored(self._target.name, self._source, self._report, entries, lambda: identity)
        self._body_store = BodyStore(stored, entries, written, foreign, written or checks or not foreign)

    def of_context(
        self,
        context: GroupContext,
        build_key: BuildKey,
        name: str,
        foreign: bool,
        checks: bool,
        unread: Collection[str],
    ) -> tuple[CompiledProgram, ShownGraph]:
        """Returns the Program of a context, and its graph.

        The graph is compiled again if the Program was made for another adapter, other options or another version, or if some
        outputs are `unread`. The same holds for a `foreign` Program if the session cannot make its kernels check every index
        (`checks`). Raises EntryError, ModelError if weights have changed, UnsupportedError if the graph cannot be compiled
        here.
        """
        try:
            graph, ties = context.graph(name)
        except ModelError as error:
            raise with_message(error, f"{error}. The model was compiled for {context.build_key}") from error
        declared = frozenset(context.declared)
        differs = context.build_key.differs(build_key)
        if unread:
            graph.outputs[:] = [it for it in graph.outputs if it.name not in unread]
            differs = differs or f"a model that also reads the outputs {cut(sorted(unread))}"
        if not differs and foreign and not checks:
            differs = (
                "another user, and this WebGPU library cannot check the kernels of one group (enableRobustness=0 trusts the"
                " context)"
            )
        if not differs:
            known = context.program(graph)
            lacking = lack(known.program.target, self._target)
            if lacking is None:
                _reorder(graph.inputs, known.inputs)
                _reorder(graph.outputs, known.outputs)
                return CompiledProgram(known, self._later(graph, ties, name, declared), {}, ties, foreign), graph
            differs = f"another adapter: it {lacking}"
        message = f"the context of {name!r} was made for {differs}"
        self._report(f"{message}: this session compiles it again; compile the model again for faster starts", True)
        try:
            self._store_in_use = self._stored
            with self._stored.using_key(self._stored.key_of_context(context.digest, ties)):
                return self.program(graph, name, declared), graph
        except UnsupportedError as error:
            full = f"{message}, and cannot be compiled for this session: {error}. It was made for {context.build_key}"
            raise with_message(error, full) from error

    def _later(
        self, graph: ShownGraph, ties: Ties, name: str, declared: frozenset[str], prepare: Prepare = unchanged
    ) -> LazyRecompiler:
        return LazyRecompiler(graph, ties, declared, self._specialiser(ties, name, declared, prepare))

    def converted(self, graph: ShownGraph) -> ir.Graph:
        """Returns a graph in the compiler's form."""
        self._compile()
        from .assign.converted import converted

        return converted(graph)

    def end(self) -> None:
        """Releases what was kept for compiling, because all groups of a graph have their Programs."""
        self._inferred.clear()
        if self._compiling is not None:
            self._compiling.clear()

    def _compile(self) -> Compiling:
        if self._compiling is None:
            from .compiling import Compiling

            self._compiling = Compiling(self._target, self._settings, self._source)
        for where, inferred in self._found:
            self._compiling.remember(where, inferred)
        self._found.clear()
        return self._compiling

    def _specialiser(self, ties: Ties, name: str, declared: frozenset[str], prepare: Prepare) -> Make:
        """Returns a function that makes the `Specialiser` of a stored group. It keeps no reference to the session."""
        target, settings = self._target, self._settings

        def make(graph: ShownGraph, sources: Mapping[str, WeightSource]) -> Recompiler:
            from .compiling import specialiser_of

            return specialiser_of(graph, sources, ties, target, name, settings, declared, prepare)

        return make


def _reorder(values: list[ShownValue], names: Sequence[str]) -> None:
    by_name = {it.name: it for it in values}
    values[:] = [by_name[name] for name in names]
