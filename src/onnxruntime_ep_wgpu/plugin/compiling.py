"""Decides about the graphs of one session and compiles their groups, if the cache lacks the results. Loads the compiler.

In: graphs from ONNX Runtime, and the conditions of each decision. Out: claims; Programs, each with a `Specialiser`; and which
constants were read. Invariant: equal graphs get equal results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from ..compiler.compile import compile_graph, compile_lowered
from ..compiler.graph.facts import constants_read
from ..compiler.graph.tied import pass_ties
from ..compiler.lower.lower import attempt
from ..program.program import Program
from ..program.settings import CompileSettings
from ..program.target import Target
from ..program.ties import Ties
from ..records import dataclass
from ..runtime.weight_sources import WeightSource
from .assign.claim import claim
from .assign.converted import converted, converted_node
from .assign.decision import Claim
from .assign.inferred import GraphPlace, InferredTypes
from .assign.lowerings import Lowerings, order_as
from .assign.outcome import Alone, Elsewhere, Fused, OwnKernel
from .assign.shown import STRING, Constant, ShownGraph, ShownNode, digests, key_of
from .assign.types import Types
from .prepared import Prepare
from .specialise import Specialiser, lazy_tensor

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(frozen=True)
class DecidedGraph:
    """A claim, the names of the constants that were read for it, and the inferred types."""

    claim: Claim
    constants_read: frozenset[str]
    inferred: InferredTypes


@dataclass(frozen=True)
class Compiled:
    """A group's Program.

    `inputs` and `outputs`: the names of its graph's values, in its order. `names`: those of constants by the identity of their
    tensors.
    """

    program: Program
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    specialise: Specialiser
    names: Mapping[int, str]
    constants_read: frozenset[str]


@dataclass(frozen=True)
class _Known:
    """A claim, and what it depends on in addition to its key."""

    claim: Claim
    facts: Mapping[str, str]
    ties: Ties


class Compiling:
    """Lowers and compiles for one session. `source` returns the file name or the bytes of the model."""

    def __init__(self, target: Target, settings: CompileSettings, source: Callable[[], str | bytes | None]) -> None:
        self._target, self._settings = target, settings
        self._claims: dict[str, list[_Known]] = {}
        self._types = Types(target, settings, source)
        self.lowerings = Lowerings()

    def decide(
        self,
        graph: ShownGraph,
        ties: Ties,
        parent: ShownNode | None,
        assigned: Sequence[str],
        forced: frozenset[str],
        refusal: str | None,
        single: Mapping[int, Alone | OwnKernel | Elsewhere],
    ) -> DecidedGraph:
        """Decides about a graph, which is a body of `parent`; see `claim` for the other parameters."""
        shown = converted(graph)
        pass_ties(ties, shown)
        where = GraphPlace.of(graph, parent)
        filled = self._types.before(shown, where, None if parent is None else converted_node(parent))
        key = key_of(
            graph,
            sorted((name, str(it)) for name, it in filled.items()),
            assigned,
            sorted(forced),
            refusal,
            sorted(map(str, single.items())),
        )
        decision = self._known(key, graph, ties)
        if decision is None:
            decision, groups = claim(
                shown, self._target, assigned, forced, self._settings, self._types.control, refusal, single
            )
            facts = digests(graph, constants_read(shown))
            self._claims.setdefault(key, []).append(_Known(decision, facts, ties))
            for group in groups:
                self.lowerings.keep(group.graph, group.lowered, facts)
        return DecidedGraph(decision, constants_read(shown), self._types.after(shown, where, decision.found))

    def decide_whole(self, graph: ShownGraph, ties: Ties, prepare: Prepare) -> DecidedGraph:
        """Decides about a graph that runs here as a whole or not at all."""
        shown = converted(graph)
        pass_ties(ties, shown)
        nodes = list(shown)
        prepare(shown)
        tried = attempt(shown, shown.opset_imports, self._target, self._settings)
        reasons = dict(zip(shown, tried.reasons, strict=True))
        if tried.lowered is None and not any(reasons.values()):
            reasons = dict.fromkeys(shown, "the graph cannot be compiled as one group")
        if tried.lowered is not None:
            self.lowerings.keep(shown, tried.lowered, digests(graph, constants_read(shown)))
        here = tuple(Elsewhere(reason) if (reason := reasons[it]) else Fused(0) for it in nodes)
        return DecidedGraph(Claim(here), constants_read(shown), InferredTypes({}, []))

    def remember(self, where: GraphPlace, inferred: InferredTypes) -> None:
        """Stores the types that were inferred for a graph when it was decided on elsewhere."""
        self._types.remember(where, inferred)

    def _known(self, key: str, graph: ShownGraph, ties: Ties) -> Claim | None:
        """Returns the claim of an equal graph, if the constants that were read for it are equal too."""
        for it in self._claims.get(key, ()):
            if it.ties == ties and digests(graph, it.facts) == it.facts:
                return it.claim
        return None

    def compile(
        self, graph: ShownGraph, name: str, declared: Collection[str], ties: Ties | None, prepare: Prepare
    ) -> Compiled:
        """Compiles a group. `declared`: the inputs of the model. `ties`: the tied constants in the group; None if unknown."""
        shown = converted(graph)
        if ties is not None:
            pass_ties(ties, shown)
        prepare(shown)
        lowered = self.lowerings.take(shown)
        if lowered is not None:
            order_as(shown, lowered)
            program = compile_lowered(lowered, self._target, name)
        else:
            program = compile_graph(shown, shown.opset_imports, self._target, name, self._settings)
        specialise = Specialiser(shown, shown.opset_imports, self._target, name, self._settings, frozenset(declared))
        names = {id(value.const_value): name for name, value in shown.initializers.items()}
        inputs, outputs = (tuple(it.name or "" for it in them) for them in (shown.inputs, shown.outputs))
        return Compiled(program, inputs, outputs, specialise, names, constants_read(shown))

    def clear(self) -> None:
        """Releases what was kept for compiling, because all groups of a graph are compiled."""
        self.lowerings.clear()


def specialiser_of(
    graph: ShownGraph,
    sources: Mapping[str, WeightSource],
    ties: Ties,
    target: Target,
    name: str,
    settings: CompileSettings,
    declared: Collection[str],
    prepare: Prepare,
) -> Specialiser:
    """Returns the `Specialiser` of a group. Its constants are read from `sources`."""
    import onnx_ir as ir  # imported after the compiler

    def tensor(name: str, it: Constant) -> ir.TensorProtocol:
        if it.code == STRING:
            return ir.StringTensor([], shape=ir.Shape(it.shape), name=name)
        return lazy_tensor(sources[name], ir.DataType(it.code), it.shape)

    shown = converted(graph, tensor)
    pass_ties(ties, shown)
    prepare(shown)
    return Specialiser(shown, shown.opset_imports, target, name, settings, declared)
