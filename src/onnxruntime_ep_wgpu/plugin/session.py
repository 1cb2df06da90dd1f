"""One session: its device and its compiled groups. `deciding.py` decides which nodes run where.

In: a session's graphs from ONNX Runtime, and later the groups that ONNX Runtime cut out. Out: which nodes to group, and a
compiled node per group. `assignment` shows both to users. Invariant: the device of the session is opened while ONNX Runtime
optimises the model, and released if no group is compiled. Before that, matrix units are probed on a device, once per driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..device import debugger, library_named
from ..errors import OptionError, UnsupportedError
from ..fields import settings_from
from ..options import Options
from ..program.settings import CompileSettings
from ..progress_line import ProgressLine
from ..runtime.making import Making
from ..runtime.progress import CLAIMING, COMPILING
from ..runtime.read_ahead import ReadAhead
from ..runtime.settings import RunSettings
from ..runtime.weight_sources import FilePlace, FromModel
from . import watch
from .abi import INFO, WARNING, Logger, Ort, text
from .assign import graph as ort_graph
from .assign.decision import Claim
from .assign.inferred import made_by
from .assign.ort_format import CopyGuard
from .assign.outcome import Fused
from .assign.report import AssignmentReport
from .cached_compiler import CachedCompiler
from .captures import Captures, check_placements
from .context.ep_contexts import EPContexts
from .context.shared import nothing_shared
from .deciding import Deciding, SessionModel
from .device_choice import context_for, library_for
from .group import CompiledGroup
from .known_tensors import FusedNode
from .memory import space as memory
from .node import ComputeInfo
from .node_choice import node_of
from .prepared import unchanged
from .search.operators import is_search
from .settings import fields_set, settings_of
from .tools import tool_around

if TYPE_CHECKING:
    import onnx_ir as ir

    from ..device import Adapter, Device
    from ..program.program import Program
    from .assign.shown import ShownGraph, ShownNode
    from .cached_compiler import CompiledProgram
    from .context.keeping import Keeping
    from .context.options import ContextOptions
    from .context.shared import Shared, SharedWeights
    from .loops.decide import Loops
    from .recompiling import Recompiler
    from .search.bodies import SearchBody


class SessionState:
    """The state of one session on one adapter, for the provider with this `name`.

    `copies` returns how many kernels ONNX Runtime made to copy tensors of this session between providers.
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
        # A caller with `on_progress` displays the progress itself.
        watched = self.making.is_watched
        self._slow_work = None if watched else ProgressLine(self.making.line)
        self._first_run = None if watched else ProgressLine(self.making.first_run_line)
        self._check_debugger()
        self._running = settings_from(RunSettings, options.values)
        if (ahead := watch.preparation()) is not None:
            ahead.wait_for_library()
        model = self._model = SessionModel()
        self.library = library_for(adapter, options, model.matrices)
        self.context = context_for(adapter, options, self.library.name, self._running.bounds_checks)
        self._member = self.context.join(
            settings_of(options, adapter.through("", self.library.name)),
            fields_set(options),
            preserve=options["preserveDevice"],
        )
        self.target = self.context.target
        self._opening = self.context.open_ahead()
        self._compiling = replace(settings_from(CompileSettings, options.values), compiled_again=True, reads_sizes=True)
        self._read_ahead = ReadAhead()
        self._has_groups = False
        self.assignment = AssignmentReport(name, logger)
        self.captures = Captures(logger, ort.version >= 27) if options["enableGraphCapture"] else None
        self.ep_contexts = EPContexts(
            ort,
            contexts,
            self.target,
            self._compiling,
            trusting="enableRobustness" in options.given and not options["enableRobustness"],
            checking=library_named(self.library.name).module_checks or self._running.bounds_checks,
            kept=None if model.kept is None else model.kept.context,
        )
        self.keeping: Keeping | None = None
        if watch.keeps_model():
            from .context.keeping import Keeping

            self.keeping = Keeping()
        stored = not contexts.enabled and model.kept is None
        compiler = self._compiler = CachedCompiler(
            self.target, self._compiling, model.source, self._report_problem, stored
        )
        self.copy_guard = CopyGuard(
            name,
            copies,
            lambda: [
                it.state.copy_guard
                for it in watch.live()
                if it.state is not None and it.state.logger.owner == logger.owner
            ],
        )
        guard, report = self.copy_guard, self.assignment
        self.deciding = Deciding(ort, name, options, logger, model, compiler, self.ep_contexts, report, guard)
        for line in options.warnings():
            logger.log(WARNING, line)

    def _check_debugger(self) -> None:
        if self.options["enablePIXCapture"] and not debugger.attached():
            raise OptionError(f"option 'enablePIXCapture': {debugger.MISSING}")

    @property
    def library_text(self) -> str:
        """The WebGPU library of the session with its version, the reason for it, and the matrix units that are not used."""
        name, why = self.library
        view = self.context.view
        wrong = view.refused_matrices if view.matrices else ""
        return f"{name} {library_named(name).version} ({why})" + (f"; without matrix units of {wrong}" if wrong else "")

    def device(self) -> Device:
        """Returns the session's device, which is opened on first use."""
        return self.context.device()

    @property
    def matrices_found(self) -> frozenset[str] | None:
        """The types of the model's matrices, if the library was chosen by them."""
        return self._model.matrices_found

    def close(self) -> None:
        """Ends the session."""
        self.making.leave()
        self._read_ahead.stop()
        self._opening.end()
        if self.captures is not None:
            self.captures.clear()
        self._member.leave()
        if not self.context.sessions:
            memory.space().end_pooling(context=self.context)

    def decide(self, handle: Any, has_kernel: Callable[[Any], bool]) -> tuple[list[list[Any]], list[Any]]:
        """Returns the groups of OrtNodes to compile in an OrtGraph, and the nodes with own kernels; see `Deciding.decide`."""
        with self._working(), self.making.part(CLAIMING):
            graph = ort_graph.read(self.ort, handle)
            self._read_ahead.begin(it.span for it in graph.in_files.values())
            groups, kernels = self.deciding.decide(graph, handle, has_kernel)
            if self.keeping is not None and not self.deciding.in_a_body:
                self.keeping.decided(graph, len(groups) == 1 and len(groups[0]) == len(graph))
            return groups, kernels

    def _report_problem(self, line: str, aloud: bool) -> None:
        self.logger.log(WARNING if aloud else INFO, line)

    def initialised(self) -> None:
        """Call this when ONNX Runtime has made the session. Without a group it needs no device."""
        self.making.end()
        if not self._has_groups:
            self._opening.end()
            self._member.device = None

    def check_captures(self) -> None:
        """Raises UnsupportedError, with nodes and reasons, if the session captures and something runs elsewhere."""
        if self.captures is not None:
            check_placements(self.name, self.assignment.placements())

    def compile(self, handle: Any, fused: Any) -> ComputeInfo:
        """Returns the compiled node of a group, given as an OrtGraph and the OrtNode that represents it.

        Its pipelines are still in compilation; see `settle`.
        """
        with self._working(), self.making.part(COMPILING):
            info = self._compile(handle, fused)
        info.first_run = self._first_run
        return info

    def _working(self) -> AbstractContextManager[None]:
        """Returns a context manager around work that makes the session. It prints a line if the work takes long."""
        return nullcontext() if self._slow_work is None else self._slow_work.working(self.making.spent)

    def settle(self) -> None:
        """Waits for the pipelines of the compiled groups. Raises ShaderError, DeviceLostError."""
        with self._working():
            self.making.settle()

    def _compile(self, handle: Any, fused: Any) -> ComputeInfo:
        graph = ort_graph.read(self.ort, handle)
        made = made_by(graph)
        names = self.assignment.names_of(made)
        for node in graph:
            # The names from the decision: nodes without a name are numbered per graph.
            node.name = next((names[it.name] for it in node.outputs if it.name in names), node.name)
        inputs, outputs = ort_graph.fused_names(self.ort, fused)
        if any(map(is_search, graph)):
            return self._compile_search(graph.nodes[0], inputs, outputs)
        if (loops := self.deciding.loops) is not None:
            loops.unroll(graph, again=True)
            if len(graph) == 1 and loops.outcome(graph.nodes[0]) is not None:
                return self._compile_loop(loops, graph.nodes[0], inputs, outputs)
        name = text(self.ort.get(self.ort.api.Node_GetName, fused, "const char *"))
        opened = self.ep_contexts.take(graph)
        # Bodies are compiled before the main graph is decided on, and `inputs` is empty then. They may read results of nodes.
        answer, graph = (
            (self._compiler.program(graph, name, frozenset(self.deciding.inputs)), graph)
            if opened is None
            else self.ep_contexts.program(*opened, self._compiler, outputs)
        )
        self._read_ahead.begin(it.span for it in graph.in_files.values())  # the files of a context
        program, specialise = answer.stored.program, answer.specialise
        graph_inputs, graph_outputs = answer.stored.inputs, answer.stored.outputs
        if opened is not None:
            from .context.content import renamed

            graph_inputs, graph_outputs = renamed(*opened, answer.stored)
        elif self.ep_contexts.enabled and self.deciding.in_a_body:
            self.ep_contexts.record_in_body(name, inputs, outputs)
        elif self.ep_contexts.enabled:
            values = inputs, outputs, frozenset(self.deciding.inputs)
            self.ep_contexts.write(name, graph, answer, *values, self._model.path, self._model.content())
        if self._model.kept is not None:
            made = self._record_group(graph, self._model.kept.nodes)
        source = self._weights(graph.in_files)
        if self.keeping is not None and opened is None:
            self.keeping.compiled(graph, answer, name, (inputs, outputs), source, self.ep_contexts.build_key)
        weights = None if opened is None else self.ep_contexts.shared(program, graph.in_files)
        shared = nothing_shared if weights is None else weights.found_in_others(_sharing)
        group = self._group(program, specialise, source, shared, checked=answer.foreign)
        if weights is not None:
            weights.set_group(group)
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
        return node_of(self.ort, group, tool, signature, program, self.captures, optional, self.deciding.in_a_body)

    def _weights(self, in_files: Mapping[int, FilePlace]) -> FromModel:
        """Returns the sources of a graph's weights in the model. `in_files`: those with a known place."""
        return FromModel(self._model.path, self._model.content(), in_files)

    def _record_group(self, graph: ShownGraph, nodes: Sequence[str]) -> frozenset[str]:
        """Records the nodes of a graph, in this order, as one group that runs here. Returns the names of their results."""
        by_name = {it.name: it for it in graph}
        whole = replace(graph, nodes=[by_name[it] for it in nodes])
        self.assignment.decided("", whole, Claim((Fused(0),) * len(whole)), [""] * len(whole))
        return made_by(whole)

    def _read_again(self, handle: Any, of_context: bool) -> ir.Graph:
        """Returns the graph of a group as it was compiled, for tools that run it step by step. Raises UnsupportedError."""
        if of_context:
            raise UnsupportedError("a compiled model has no nodes to run step by step: use the original model")
        graph = ort_graph.read(self.ort, handle)
        if self.deciding.loops is not None:
            self.deciding.loops.unroll(graph, again=True)
        return self._compiler.converted(graph)

    def _compile_search(self, node: ShownNode, inputs: list[str], outputs: list[str]) -> ComputeInfo:
        """Compiles the only node of a graph, which generates text."""
        from .search.bodies import cut_rows
        from .search.compile import compiled_search

        assert self.deciding.searches is not None
        places = self.deciding.searches.places_of(node)
        # ONNX Runtime omits outputs without a reader.
        made = [outputs.index(it.name) for it in node.outputs if it.name in outputs]

        def program(attribute: str, graph: ShownGraph, name: str) -> CompiledProgram:
            return self._compiler.program_within(places[attribute], graph, name, frozenset(), cut_rows)

        def group(body: SearchBody, graph: ShownGraph, answer: CompiledProgram, shared: Shared) -> CompiledGroup:
            self.assignment.compiled(body.shown, answer.stored.program)
            return self._group(answer.stored.program, answer.specialise, self._weights(graph.in_files), shared)

        signature = FusedNode(inputs=list(range(len(inputs))), outputs=made, input_names=inputs, output_names=outputs)
        return compiled_search(self.ort, node, signature, program, group)

    def _compile_loop(self, loops: Loops, node: ShownNode, inputs: list[str], outputs: list[str]) -> ComputeInfo:
        """Compiles the only node of a graph, a Loop that runs here with all of its iterations."""
        from .loops.compile import compiled_loop

        self.assignment.declined(
            frozenset(it.name for it in node.outputs), f"unrolling: {loops.why_not_unrolled(node)}"
        )
        body, graph, place = loops.body(node)
        answer = self._compiler.program_within(place, graph, f"{node.name}.body", frozenset(), unchanged)
        self.assignment.compiled(body.made, answer.stored.program)
        group = self._group(answer.stored.program, answer.specialise, self._weights(graph.in_files))
        tool = tool_around(group, lambda: self._compiler.converted(loops.body(node)[1]))
        return compiled_loop(self.ort, node, body, answer, tool or group, inputs, outputs)

    def _group(
        self,
        program: Program,
        specialise: Recompiler,
        weights: FromModel,
        shared: Shared = nothing_shared,
        checked: bool = False,
    ) -> CompiledGroup:
        """Returns a compiled graph on the device. `weights`: where its weights can be read again.

        `checked`: kernels check every index, regardless of the options.
        """
        running = replace(self._running, bounds_checks=True) if checked else self._running
        group = CompiledGroup(program, self.device, running, weights, specialise, shared, self.making)
        weights.freed()
        self._has_groups = True
        return group

    def compiled(self) -> None:
        """Releases what was kept for compiling, because the groups of a graph are compiled."""
        self._compiler.end()


def _sharing() -> list[SharedWeights]:
    """Returns the weights of all sessions that share weights."""
    return [weights for it in watch.live() if it.state is not None for weights in it.state.ep_contexts.sharing]
