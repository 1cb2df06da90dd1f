"""What one session runs where: the decision about every graph, and the compiled groups.

In: a session's graphs as ONNX Runtime shows them, and later the groups that it cut out. Out: which nodes to group, and a
compiled node per group; `assignment` tells people about both. Invariants: deciding needs the graph and the adapter's
limits, and no device, except once per driver to probe matrix units; equal graphs get equal answers; the device of the
session is opened while ONNX Runtime optimises the model, and let go of where no group is compiled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..device import debugger, library_named
from ..errors import Fault, InternalError, OptionError, UnsupportedError
from ..fields import settings_from
from ..options import Options
from ..program.settings import CompileSettings
from ..runtime.making import Making
from ..runtime.product_types import matrix_types
from ..runtime.progress import CLAIMING, COMPILING
from ..runtime.read_ahead import ReadAhead
from ..runtime.settings import RunSettings
from ..runtime.weight_sources import FilePlace, FromModel
from ..telling import Telling
from . import watch
from .abi import INFO, WARNING, Logger, Ort, address, file_text, text
from .answers import Answers
from .assign import graph as ort_graph
from .assign.crossings import Crossings
from .assign.decision import Claim
from .assign.enclosing import control_outcome, is_control, refusal_within
from .assign.forced import Forced
from .assign.ort_format import CopyGuard
from .assign.outcome import Alone, Elsewhere, Fused, Outcome, OwnKernel
from .assign.report import AssignmentReport
from .captures import Captures, check_placements
from .context.contexts import Contexts
from .context.shared import nothing_shared
from .device_choice import context_for, library_for
from .fused import node_of
from .group import CompiledGroup
from .known import FusedNode
from .loops.decide import LOOP
from .memory import space as memory
from .node import ComputeInfo
from .prepared import as_it_is
from .search.operators import is_search
from .settings import asked, settings_of
from .wrap import tool_around, tool_waits

if TYPE_CHECKING:
    import onnx_ir as ir

    from ..device import Adapter, Device
    from ..program.program import Program
    from .again import CompiledAgain
    from .answers import Answer
    from .assign.shown import ShownGraph, ShownNode
    from .context.asked import ContextOptions
    from .context.shared import Shared, SharedWeights
    from .loops.decide import Loops
    from .search.bodies import SearchBody
    from .search.decide import Decided, Searches


class SessionState:
    """The plans of one session, on one adapter, for the provider that is called `name`.

    `copies` counts the kernels that ONNX Runtime made to copy tensors of this session between providers.
    """

    def __init__(
        self,
        ort: Ort,
        name: str,
        adapter: Adapter,
        options: Options,
        contexts: ContextOptions,
        logger: Logger,
        copies: Callable[[], int],
    ) -> None:
        self.ort, self.name, self.adapter, self.options, self.logger = ort, name, adapter, options, logger
        self.making = watch.making() or Making()
        # Who is told how far it is shows that.
        watched = self.making.is_watched
        self._telling = None if watched else Telling(self.making.line)
        self._first_run = None if watched else Telling(self.making.first_run_line)
        self._check_debugger()
        self._running = settings_from(RunSettings, options.values)
        if (ahead := watch.ahead()) is not None:
            ahead.wait_for_library()
        self.library = library_for(adapter, options, lambda: matrix_types(watch.source()))
        self.context = context_for(adapter, options, self.library.name, self._running.bounds_checks)
        self._member = self.context.join(
            settings_of(options, adapter.through("", self.library.name)),
            asked(options),
            preserve=options["preserveDevice"],
        )
        self.target = self.context.target
        self._opening = self.context.open_ahead()
        self._compiling = replace(settings_from(CompileSettings, options.values), compiled_again=True, reads_sizes=True)
        self._path = ""  # of the model, when it is a file
        self._read_ahead = ReadAhead()
        self._others = False  # whether other providers took nodes before
        self._completed = False
        self._has_groups = False
        self.decided = False  # the main graph, which comes after the bodies of its control flow
        self.inputs: tuple[str, ...] = ()
        self.outputs: tuple[str, ...] = ()
        self.assignment = AssignmentReport(name, logger)
        self._forced = Forced(options["forceCpuNodeNames"])
        self.captures = Captures(logger, ort.version >= 27) if options["enableGraphCapture"] else None
        self._told: set[str] = set()  # faults of this package
        self._carrying = False
        self._in_a_body = False  # whether the graph that was decided on last is one
        self.contexts = Contexts(
            ort,
            contexts,
            self.target,
            self._compiling,
            trusting="enableRobustness" in options.given and not options["enableRobustness"],
            checking=library_named(self.library.name).module_checks or self._running.bounds_checks,
        )
        self._answers = Answers(
            self.target, self._compiling, lambda: watch.source() or self._path, self._tell, not contexts.enabled
        )
        self._searches: Searches | None = None
        self._loops: Loops | None = None
        self._crossings: Crossings | None = None
        self.copy_guard = CopyGuard(
            name,
            copies,
            lambda: [
                it.state.copy_guard
                for it in watch.live()
                if it.state is not None and it.state.logger.owner == logger.owner
            ],
        )
        for line in options.warnings():
            logger.log(WARNING, line)

    def _check_debugger(self) -> None:
        if self.options["enablePIXCapture"] and not debugger.attached():
            raise OptionError(f"option 'enablePIXCapture': {debugger.MISSING}")

    @property
    def library_text(self) -> str:
        """The WebGPU library of the session with its version, why that one, and the matrix units that it does without."""
        name, why = self.library
        view = self.context.view
        wrong = view.refused_matrices if view.matrices else ""
        return f"{name} {library_named(name).version} ({why})" + (f"; without matrix units of {wrong}" if wrong else "")

    def device(self) -> Device:
        """The session's device, opened on first use."""
        return self.context.device()

    def close(self) -> None:
        """The session ends."""
        self.making.leave()
        self._read_ahead.stop()
        self._opening.end()
        if self.captures is not None:
            self.captures.clear()
        self._member.leave()
        if not self.context.sessions:
            memory.space().end_pooling(context=self.context)

    # Deciding

    def decide(self, handle: Any, has_kernel: Callable[[Any], bool]) -> tuple[list[list[Any]], list[Any]]:
        """The groups of OrtNodes to compile in an OrtGraph, and those that run with kernels of ours, where `has_kernel`.

        Raises ModelError when a node of the main graph can run nowhere. A body may never run: there it is left alone.
        """
        with self._working(), self.making.part(CLAIMING):
            return self._decide(handle, has_kernel)

    def _decide(self, handle: Any, has_kernel: Callable[[Any], bool]) -> tuple[list[list[Any]], list[Any]]:
        graph = ort_graph.read(self.ort, handle)
        self._read_ahead.begin(it.span for it in graph.in_files.values())
        nodes = [node.handle for node in graph]
        assigned = [text(self.ort.get(self.ort.api.Node_GetEpName, node, "const char *")) for node in nodes]
        self._path = file_text(self.ort.get(self.ort.api.Graph_GetModelPath, handle, "const ORTCHAR_T *"))
        parent = ort_graph.read_parent(self.ort, handle)
        if parent is not None:
            self.contexts.check_body(graph, parent, watch.source() or self._path)
            self._carry()
        self._in_a_body = parent is not None
        if parent is not None and is_search(parent):
            self._forced.among(graph)  # these names are met
            return [], []  # decided with the node
        self._others |= not {*assigned} <= {"", self.name, "CPUExecutionProvider"}
        searches = self._searched(graph, parent, assigned)
        single: dict[int, Alone | OwnKernel | Elsewhere] = {place: it.outcome for place, it in searches.items()}
        single |= self.contexts.outcomes(graph, assigned, self._path)
        if parent is None or refusal_within(parent) is None:
            for place, node in enumerate(graph):
                if is_control(node) and not assigned[place]:
                    captured = self.captures is not None
                    single[place] = control_outcome(self.ort, node, self.name, has_kernel, captured)
                    loop = None if captured or self._loops is None else self._loops.outcome(node)
                    single[place] = loop or single[place]
        unrolled = self._unrolled(handle, graph, parent, assigned, single)
        decision = unrolled or self._decision(graph, parent, assigned, single)
        if parent is not None and self._left_to_loop(parent, graph, handle, decision, assigned):
            decision = Claim((Fused(0),) * len(graph))
            self.assignment.decided(parent.name, graph, decision, assigned)
            return [], []
        within = "" if parent is None else parent.name
        faults = [reason.error for reason in decision.reasons if isinstance(reason, Fault)]
        self._meet_internal([error for error in faults if isinstance(error, InternalError)])
        if parent is None:
            self.decided = True
            for error in faults:
                if not isinstance(error, InternalError):
                    raise error
            self.inputs = tuple(value.name for value in graph.inputs)
            self.outputs = tuple(value.name for value in graph.outputs)
        self.assignment.decided(within, graph, decision, assigned)
        for it in searches.values():
            for body in it.bodies.values():
                self.assignment.decided(it.node.name, body, it.claim_of(body), [""] * len(body))
        self.copy_guard.decided(parent is None, graph, decision.groups, assigned, decision.kernels)
        if parent is None:
            held = [place for place, name in enumerate(assigned) if name == self.name]
            if line := self.contexts.decided(graph, decision, assigned):
                self.logger.log(WARNING, line)
            whole = any(len(group) == len(nodes) for group in decision.groups)
            self._crossings = None if whole else Crossings(graph, decision.parts, held)
        return [[nodes[place] for place in group] for group in decision.groups], [nodes[it] for it in decision.kernels]

    def _unrolled(
        self,
        handle: Any,
        graph: ShownGraph,
        parent: ShownNode | None,
        assigned: Sequence[str],
        single: Mapping[int, Alone | OwnKernel | Elsewhere],
    ) -> Claim | None:
        """The decision about a graph with iterations in the places of Loops; None where there are none, or they are in no group."""
        if self._loops is None or not any(it == LOOP for it in single.values()):
            return None
        apart = ort_graph.read(self.ort, handle)
        places = self._loops.unroll(apart)
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
            self._loops.keep_whole(nodes[place] for place in opened)
            return None
        return Claim(tuple(next(iter(outcomes[place])) for place in range(len(graph))), claim.found)

    def _left_to_loop(
        self, parent: ShownNode, graph: ShownGraph, handle: Any, decision: Claim, assigned: Sequence[str]
    ) -> bool:
        """Whether a body, on which this was decided by itself, runs with all iterations of its Loop. Tools want to see each run of
        it, and compiled models have Programs for it."""
        compiled = self.contexts.enabled or self.contexts.opened
        if compiled or tool_waits() or self.captures is not None or any(assigned) or self._forced.has(parent.name):
            return False
        if self._loops is None:
            from .loops.decide import Loops

            self._loops = Loops(self.ort, self._answers, self._forced.among)
        return self._loops.takes(parent, graph, ort_graph.read(self.ort, handle), decision)

    def _decision(
        self,
        graph: ShownGraph,
        parent: ShownNode | None,
        assigned: Sequence[str],
        single: Mapping[int, Alone | OwnKernel | Elsewhere],
    ) -> Claim:
        """The decision about a graph, where `single` are outcomes of nodes by place that are known."""
        held = {place: Elsewhere(f"held by {it}") for place, it in enumerate(assigned) if it}
        known, forced = {**single, **held}, self._forced.among(graph)
        if parent is None and len(known) == len(graph) and self.contexts.opened and not forced:
            return Claim(tuple(known[place] for place in range(len(graph))))
        return self._answers.claim(graph, parent, assigned, forced, single)

    def _carry(self) -> None:
        """Takes what a compiled model has for its bodies, or begins to keep that of one that is written."""
        written = self.contexts.enabled and not self._carrying
        if written or self.contexts.open_around(watch.source() or self._path, self._path):
            self._carrying = True
            it = self.contexts
            self._answers.carry(it.carried, it.made_for, written=written, foreign=it.foreign, checks=it.checking)

    def drops_constants(self, group: Sequence[Any]) -> bool:
        """Whether ONNX Runtime needs no constants of a group of OrtNodes of the graph that was decided on last."""
        if self.contexts.enabled and self._in_a_body:
            return False
        return len(group) != 1 or address(group[0]) not in self.contexts.nodes

    def _searched(self, graph: ShownGraph, parent: ShownNode | None, assigned: Sequence[str]) -> dict[int, Decided]:
        """What was decided on nodes that generate text, by place."""
        if not any(map(is_search, graph)) or self.contexts.enabled:
            return {}
        if self._searches is None:
            from .search.decide import Searches

            self._searches = Searches(self.ort, self._answers, self._forced.among, self.captures is not None)
        return self._searches.decide(graph, assigned, None if parent is None else refusal_within(parent))

    def _tell(self, line: str, aloud: bool) -> None:
        self.logger.log(WARNING if aloud else INFO, line)

    def crossings(self) -> frozenset[tuple[str, str]]:
        """Outputs of the model that may not lie in the memory of these inputs."""
        return frozenset() if self._crossings is None else self._crossings.pairs

    def _meet_internal(self, faults: Sequence[InternalError]) -> None:
        """Faults of this package need not stop a user: the nodes are left to the CPU, and a warning asks for a report.

        With WGPU_EP_STRICT=1 in the environment, as tests have it, they are errors.
        """
        if faults and os.environ.get("WGPU_EP_STRICT") == "1":
            raise faults[0]
        for line in map(str, faults):
            if line not in self._told:
                self._told.add(line)
                self.logger.log(WARNING, line)

    def complete(self) -> None:
        """All graphs have been decided. Raises OptionError when an option names a node that the model does not have."""
        if not self._completed and (line := self.assignment.left_to_the_cpu()):
            self.logger.log(WARNING, line)
        self._completed = True
        for severity, line in self._forced.check_met(watch.source() or self._path, self._others):
            self.logger.log(severity, line)

    def initialised(self) -> None:
        """ONNX Runtime has made the session. Without a group it needs no device."""
        self.making.end()
        if not self._has_groups:
            self._opening.end()
            self._member.device = None

    def check_captures(self) -> None:
        """Raises UnsupportedError, with nodes and reasons, when the session is to capture and something runs elsewhere."""
        if self.captures is not None:
            check_placements(self.name, self.assignment.placements())

    # Compiling

    def compile(self, handle: Any, fused: Any) -> ComputeInfo:
        """The compiled node of a group, given as an OrtGraph and the OrtNode that stands for it. Its pipelines are on their way;
        see `settle`."""
        with self._working(), self.making.part(COMPILING):
            info = self._compile(handle, fused)
        info.first_run = self._first_run
        return info

    def _working(self) -> AbstractContextManager[None]:
        """Around what makes the session."""
        return nullcontext() if self._telling is None else self._telling.working(self.making.spent)

    def settle(self) -> None:
        """Waits for the pipelines of the groups that were compiled. Raises ShaderError, DeviceLostError."""
        with self._working():
            self.making.settle()

    def _compile(self, handle: Any, fused: Any) -> ComputeInfo:
        graph = ort_graph.read(self.ort, handle)
        made = frozenset(value.name for node in graph for value in node.outputs)
        names = self.assignment.names_of(made)
        for node in graph:
            # As when it was decided: nodes without a name are numbered per graph.
            node.name = next((names[it.name] for it in node.outputs if it.name in names), node.name)
        inputs, outputs = ort_graph.fused_names(self.ort, fused)
        if any(map(is_search, graph)):
            return self._compile_search(graph.nodes[0], inputs, outputs)
        if self._loops is not None:
            self._loops.unroll(graph, again=True)
        if len(graph) == 1 and self._loops is not None and self._loops.outcome(graph.nodes[0]) is not None:
            return self._compile_loop(graph.nodes[0], inputs, outputs)
        name = text(self.ort.get(self.ort.api.Node_GetName, fused, "const char *"))
        opened = self.contexts.take(graph)
        # The body of a control-flow node is compiled before the main graph is known, and may read what nodes make.
        answer, graph = (
            (self._answers.program(graph, name, frozenset(self.inputs)), graph)
            if opened is None
            else self.contexts.answer(*opened, self._answers, outputs)
        )
        self._read_ahead.begin(it.span for it in graph.in_files.values())  # of a context
        program, specialise = answer.stored.program, answer.specialise
        graph_inputs, graph_outputs = answer.stored.inputs, answer.stored.outputs
        if opened is not None:
            from .context.content import renamed

            graph_inputs, graph_outputs = renamed(*opened, answer.stored)
        elif self.contexts.enabled and self._in_a_body:
            self.contexts.pass_by(name, inputs, outputs)
        elif self.contexts.enabled:
            source = watch.source()
            content = source if isinstance(source, bytes) else None
            values = inputs, outputs, frozenset(self.inputs)
            self.contexts.write(name, graph, answer, *values, self._path, content)
        weights = None if opened is None else self.contexts.shared(program, graph.in_files)
        shared = nothing_shared if weights is None else weights.of_others(_sharing)
        group = self._group(program, specialise, graph.in_files, shared, checked=answer.foreign)
        if weights is not None:
            weights.are_of(group)
        self.assignment.compiled(made, program)
        tool = tool_around(group, lambda: self._read_again(handle, opened is not None))
        signature = FusedNode(
            inputs=[inputs.index(it) for it in graph_inputs],
            outputs=[outputs.index(it) for it in graph_outputs],
            input_names=inputs,
            output_names=outputs,
            warn=partial(self.logger.log, WARNING),
        )
        optional = partial(ort_graph.optional_inputs, self.ort, handle)
        in_a_body = not self.decided  # bodies are compiled before the main graph is decided on
        return node_of(self.ort, group, tool, signature, program, self.captures, optional, in_a_body)

    def _read_again(self, handle: Any, of_context: bool) -> ir.Graph:
        """The graph of a group, for tools that run it step by step. Raises UnsupportedError."""
        if of_context:
            raise UnsupportedError(
                "a compiled model has no nodes to run step by step: take the model that it was made from"
            )
        return self._answers.converted(ort_graph.read(self.ort, handle))

    def _compile_search(self, node: ShownNode, inputs: list[str], outputs: list[str]) -> ComputeInfo:
        """The only node of a graph, which generates text."""
        from .search.bodies import cut_rows
        from .search.compile import compiled_search

        assert self._searches is not None
        places = self._searches.places_of(node)
        # What nothing reads ONNX Runtime leaves out.
        made = [outputs.index(it.name) for it in node.outputs if it.name in outputs]

        def program(attribute: str, graph: ShownGraph, name: str) -> Answer:
            return self._answers.program_within(places[attribute], graph, name, frozenset(), cut_rows)

        def group(body: SearchBody, graph: ShownGraph, answer: Answer, shared: Shared) -> CompiledGroup:
            self.assignment.compiled(body.shown, answer.stored.program)
            return self._group(answer.stored.program, answer.specialise, graph.in_files, shared)

        signature = FusedNode(inputs=list(range(len(inputs))), outputs=made, input_names=inputs, output_names=outputs)
        return compiled_search(self.ort, node, signature, program, group)

    def _compile_loop(self, node: ShownNode, inputs: list[str], outputs: list[str]) -> ComputeInfo:
        """The only node of a graph, a Loop that runs here with all of its iterations."""
        from .loops.compile import compiled_loop

        assert self._loops is not None
        self.assignment.declined(frozenset(it.name for it in node.outputs), f"unrolling: {self._loops.why_whole(node)}")
        body, graph, place = self._loops.body(node)
        answer = self._answers.program_within(place, graph, f"{node.name}.body", frozenset(), as_it_is)
        self.assignment.compiled(body.made, answer.stored.program)
        group = self._group(answer.stored.program, answer.specialise, graph.in_files)
        return compiled_loop(self.ort, node, body, answer, group, inputs, outputs)

    def _group(
        self,
        program: Program,
        specialise: CompiledAgain,
        in_files: Mapping[int, FilePlace],
        shared: Shared = nothing_shared,
        checked: bool = False,
    ) -> CompiledGroup:
        """A compiled graph on the device, whose weights are found again in the model where they are. Kernels that are to be
        `checked` test every index, whatever the options."""
        source = watch.source()
        weights = FromModel(self._path, source if isinstance(source, bytes) else None, in_files)
        running = replace(self._running, bounds_checks=True) if checked else self._running
        group = CompiledGroup(program, self.device, running, weights, specialise, shared, self.making)
        weights.freed()
        self._has_groups = True
        return group

    def compiled(self) -> None:
        """The groups of a graph are compiled: what was kept to compile them goes."""
        self._answers.end()


def _sharing() -> list[SharedWeights]:
    """The weights of all sessions that share."""
    return [weights for it in watch.live() if it.state is not None for weights in it.state.contexts.sharing]
