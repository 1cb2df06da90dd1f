"""Decides which nodes of one session run where, for every graph.

In: a session's graphs from ONNX Runtime. Out: which nodes to group, and which run with kernels of this package. An
`AssignmentReport` shows the same to users. Invariants: a decision needs the graph and the adapter's limits, and no device.
Equal graphs get equal decisions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import Fault, InternalError
from ..options import Options
from ..runtime.product_types import matrix_types
from . import watch
from .abi import WARNING, Logger, Ort, address, file_text, text
from .assign import graph as ort_graph
from .assign.crossings import Crossings
from .assign.decision import Claim
from .assign.enclosing import control_outcome, is_control, refusal_within
from .assign.forced import Forced
from .assign.ort_format import CopyGuard
from .assign.outcome import Alone, Elsewhere, Fused, Outcome, OwnKernel
from .assign.report import AssignmentReport
from .cached_compiler import CachedCompiler
from .context.ep_contexts import EPContexts
from .loops.decide import LOOP
from .search.operators import is_search

if TYPE_CHECKING:
    from .assign.shown import ShownGraph, ShownNode
    from .loops.decide import Loops
    from .search.decide import SearchDecision, Searches


class SessionModel:
    """The model of a session.

    `path`: its file name from ONNX Runtime; "" if it is no file. `kept`: the compiled model from the cache that ONNX Runtime
    gets instead.
    """

    path = ""

    def __init__(self) -> None:
        self.kept = watch.opened()
        self.matrices_found: frozenset[str] | None = None  # None until `matrices` is called

    def source(self) -> str | bytes:
        """Returns the path or the content that the caller passed, or `path` if that is unknown."""
        return watch.source() or self.path

    def content(self) -> bytes | None:
        """Returns the bytes that the caller passed instead of a file; None for a file."""
        source = watch.source()
        return source if isinstance(source, bytes) else None

    def matrices(self) -> frozenset[str]:
        """Returns the operand types of the model's products that matrix units may multiply."""
        if self.matrices_found is None:
            ahead = watch.preparation()
            known = None if ahead is None else ahead.matrices_found
            self.matrices_found = matrix_types(watch.source()) if known is None else known
        return self.matrices_found


class Deciding:
    """The decisions of one session. `copy_guard` and `assignment` receive all of them.

    `inputs` and `outputs`: those of the main graph. It comes after the bodies of its control flow, and then `decided` is set.
    `searches` and `loops`: the decisions about nodes that run here with their bodies; None without such nodes. `in_a_body`:
    whether the last graph was a body.
    """

    def __init__(
        self,
        ort: Ort,
        name: str,
        options: Options,
        logger: Logger,
        model: SessionModel,
        compiler: CachedCompiler,
        ep_contexts: EPContexts,
        assignment: AssignmentReport,
        copy_guard: CopyGuard,
    ) -> None:
        self._ort, self._name, self._logger, self._model = ort, name, logger, model
        self._compiler, self._ep_contexts = compiler, ep_contexts
        self._assignment, self._copy_guard = assignment, copy_guard
        self._captures = bool(options["enableGraphCapture"])
        self._forced = Forced(options["forceCpuNodeNames"])
        self.decided = self.in_a_body = False
        self.inputs: tuple[str, ...] = ()
        self.outputs: tuple[str, ...] = ()
        self.searches: Searches | None = None
        self.loops: Loops | None = None
        self._crossings: Crossings | None = None
        self._other_providers = False  # whether other providers took nodes before
        self._completed = self._uses_body_entries = False
        self._warned: set[str] = set()  # faults of this package that were logged

    def decide(
        self, graph: ShownGraph, handle: Any, has_kernel: Callable[[Any], bool]
    ) -> tuple[list[list[Any]], list[Any]]:
        """Returns the groups of OrtNodes to compile in an OrtGraph, and the nodes that run with kernels of this package.

        `graph`: the OrtGraph as data. `has_kernel`: whether there is a kernel for an OrtNode.

        Raises ModelError if a node of the main graph can run nowhere. A body may never run, so there is no error for its nodes.
        """
        nodes = [node.handle for node in graph]
        assigned = [text(self._ort.get(self._ort.api.Node_GetEpName, node, "const char *")) for node in nodes]
        path = file_text(self._ort.get(self._ort.api.Graph_GetModelPath, handle, "const ORTCHAR_T *"))
        self._model.path = path if self._model.kept is None else self._model.kept.path
        parent = ort_graph.read_parent(self._ort, handle)
        if parent is not None:
            self._ep_contexts.check_body(graph, parent, self._model.source())
            self._use_body_entries()
        self._check_empty_bodies(graph)
        self.in_a_body = parent is not None
        if parent is not None and is_search(parent):
            self._forced.among(graph)  # marks these names as found
            return [], []  # the body is decided on with its node
        self._other_providers |= not {*assigned} <= {"", self._name, "CPUExecutionProvider"}
        searches = self._search_decisions(graph, parent, assigned)
        single: dict[int, Alone | OwnKernel | Elsewhere] = {place: it.outcome for place, it in searches.items()}
        single |= self._ep_contexts.outcomes(graph, assigned, self._model.path)
        single |= self._control_flow_outcomes(graph, parent, assigned, has_kernel)
        unrolled = self._unrolled(handle, graph, parent, assigned, single)
        decision = unrolled or self._decision(graph, parent, assigned, single)
        if parent is not None and self._runs_in_loop_node(parent, graph, handle, decision, assigned):
            self._assignment.decided(parent.name, graph, Claim((Fused(0),) * len(graph)), assigned)
            return [], []
        self._raise_faults(decision, parent is None)
        if self._model.kept is None:
            self._assignment.decided("" if parent is None else parent.name, graph, decision, assigned)
        for it in searches.values():
            for body in it.bodies.values():
                self._assignment.decided(it.node.name, body, it.claim_of(body), [""] * len(body))
        self._copy_guard.decided(parent is None, graph, decision.groups, assigned, decision.kernels)
        if parent is None:
            self._decided_on_model(graph, decision, assigned)
        return [[nodes[place] for place in group] for group in decision.groups], [nodes[it] for it in decision.kernels]

    def _check_empty_bodies(self, graph: ShownGraph) -> None:
        """Checks bodies without nodes, which ONNX Runtime does not show. Its optimiser makes them from constant branches."""
        if not self._ep_contexts.enabled:
            return
        for node in (it for it in graph if it.has_body):
            for body in ort_graph.read_bodies(self._ort, node).values():
                if not len(body):
                    self._ep_contexts.check_body(body, node, self._model.source())

    def _control_flow_outcomes(
        self, graph: ShownGraph, parent: ShownNode | None, assigned: Sequence[str], has_kernel: Callable[[Any], bool]
    ) -> dict[int, Alone | OwnKernel | Elsewhere]:
        """Returns the outcomes of control-flow nodes that no provider holds, by index."""
        if parent is not None and refusal_within(parent) is not None:
            return {}
        free = [place for place, node in enumerate(graph) if is_control(node) and not assigned[place]]
        found: dict[int, Alone | OwnKernel | Elsewhere] = {}
        for place, node in ((it, graph.nodes[it]) for it in free):
            found[place] = control_outcome(self._ort, node, self._name, has_kernel, self._captures)
            if self.loops is not None and not self._captures:
                found[place] = self.loops.outcome(node) or found[place]
        return found

    def _raise_faults(self, decision: Claim, is_model: bool) -> None:
        """Raises the faults of a model.

        For faults of this package, logs a warning that requests a report, and the CPU runs the nodes. With WGPU_EP_STRICT=1 in
        the environment, as in tests, faults of this package are errors too.
        """
        faults = [reason.error for reason in decision.reasons if isinstance(reason, Fault)]
        internal = [it for it in faults if isinstance(it, InternalError)]
        if internal and os.environ.get("WGPU_EP_STRICT") == "1":
            raise internal[0]
        for line in map(str, internal):
            if line not in self._warned:
                self._warned.add(line)
                self._logger.log(WARNING, line)
        self.decided |= is_model
        for it in faults:
            if is_model and not isinstance(it, InternalError):
                raise it

    def _decided_on_model(self, graph: ShownGraph, decision: Claim, assigned: Sequence[str]) -> None:
        """Records the decision about the main graph."""
        self.inputs = tuple(value.name for value in graph.inputs)
        self.outputs = tuple(value.name for value in graph.outputs)
        held = [place for place, name in enumerate(assigned) if name == self._name]
        if line := self._ep_contexts.decided(graph, decision, assigned):
            self._logger.log(WARNING, line)
        whole = any(len(group) == len(graph) for group in decision.groups)
        self._crossings = None if whole else Crossings(graph, decision.parts, held)

    def _unrolled(
        self,
        handle: Any,
        graph: ShownGraph,
        parent: ShownNode | None,
        assigned: Sequence[str],
        single: Mapping[int, Alone | OwnKernel | Elsewhere],
    ) -> Claim | None:
        """Returns the decision about a graph with iterations in place of Loops; None if no group contains any."""
        if self.loops is None or not any(it == LOOP for it in single.values()):
            return None
        apart = ort_graph.read(self._ort, handle)
        places = self.loops.unroll(apart)
        if len(places) == len(graph) and all(a.op_type == b.op_type for a, b in zip(apart, graph, strict=True)):
            return None
        ours = {place for place, outcome in single.items() if outcome == LOOP}
        opened = {place for place, node in zip(places, apart, strict=True) if place in ours and node.op_type != "Loop"}
        kept = {k: single[place] for k, place in enumerate(places) if place in single and place not in opened}
        claim = self._decision(apart, parent, [assigned[place] for place in places], kept)
        outcomes: dict[int, set[Outcome]] = {}
        for place, outcome in zip(places, claim.outcomes, strict=True):
            outcomes.setdefault(place, set()).add(outcome)
        if any(len(outcomes[place]) > 1 or not isinstance(next(iter(outcomes[place])), Fused) for place in opened):
            nodes = list(graph)
            self.loops.exclude_from_unrolling(nodes[place] for place in opened)
            return None
        return Claim(tuple(next(iter(outcomes[place])) for place in range(len(graph))), claim.found)

    def _runs_in_loop_node(
        self, parent: ShownNode, graph: ShownGraph, handle: Any, decision: Claim, assigned: Sequence[str]
    ) -> bool:
        """Returns whether a body runs here with all iterations of its Loop. `decision` is about the body alone.

        Never in compiled models, which have Programs for the body.
        """
        compiled = self._ep_contexts.enabled or self._ep_contexts.opened
        if compiled or self._captures or any(assigned) or self._forced.has(parent.name):
            return False
        if self.loops is None:
            from .loops.decide import Loops

            self.loops = Loops(self._ort, self._compiler, self._forced.among)
        return self.loops.claims(parent, graph, ort_graph.read(self._ort, handle), decision)

    def _decision(
        self,
        graph: ShownGraph,
        parent: ShownNode | None,
        assigned: Sequence[str],
        single: Mapping[int, Alone | OwnKernel | Elsewhere],
    ) -> Claim:
        """Returns the decision about a graph. `single`: known outcomes of nodes, by index."""
        held = {place: Elsewhere(f"held by {it}") for place, it in enumerate(assigned) if it}
        known, forced = {**single, **held}, self._forced.among(graph)
        if parent is None and len(known) == len(graph) and self._ep_contexts.opened and not forced:
            return Claim(tuple(known[place] for place in range(len(graph))))
        return self._compiler.claim(graph, parent, assigned, forced, single)

    def _use_body_entries(self) -> None:
        """Uses the entries of a compiled model for its bodies, or starts to collect them if one is written."""
        written = self._ep_contexts.enabled and not self._uses_body_entries
        if written or self._ep_contexts.open_main_graph(self._model.source(), self._model.path):
            self._uses_body_entries = True
            it = self._ep_contexts
            self._compiler.use_entries_of_bodies(
                it.body_entries, it.build_key, written=written, foreign=it.foreign, checks=it.checking
            )

    def drops_constants(self, group: Sequence[Any]) -> bool:
        """Returns whether ONNX Runtime may drop the constants of a group of OrtNodes in the last graph."""
        if self._ep_contexts.enabled and self.in_a_body:
            return False
        return len(group) != 1 or address(group[0]) not in self._ep_contexts.nodes

    def _search_decisions(
        self, graph: ShownGraph, parent: ShownNode | None, assigned: Sequence[str]
    ) -> dict[int, SearchDecision]:
        """Returns the decisions about nodes that generate text, by index."""
        if not any(map(is_search, graph)) or self._ep_contexts.enabled:
            return {}
        if self.searches is None:
            from .search.decide import Searches

            self.searches = Searches(self._ort, self._compiler, self._forced.among, self._captures)
        return self.searches.decide(graph, assigned, None if parent is None else refusal_within(parent))

    def crossings(self) -> frozenset[tuple[str, str]]:
        """Returns pairs of an output and an input of the model: the output must not be in the input's memory."""
        return frozenset() if self._crossings is None else self._crossings.pairs

    def complete(self) -> None:
        """Call this when all graphs are decided. Raises OptionError if an option names a node that the model does not have."""
        if not self._completed and (line := self._assignment.describe_cpu_nodes()):
            self._logger.log(WARNING, line)
        self._completed = True
        for severity, line in self._forced.check_found(self._model.source(), self._other_providers):
            self._logger.log(severity, line)
