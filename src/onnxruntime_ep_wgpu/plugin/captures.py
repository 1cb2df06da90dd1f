"""Graph capture in one session: keeps captured runs by id, and answers ONNX Runtime's callbacks about capture.

In: `gpu_graph_id` from the options of each run, and the runs of compiled nodes. Out: the first run of a node with tensors that
the caller keeps is captured under the id. A later run under the id repeats it, or raises an error.

ONNX Runtime can replay by itself (`ReplayGraph`). It then calls no node and passes no tensor, so a run with other memory would
return stale data without an error. Therefore the provider reports that nothing is captured. ONNX Runtime calls the node in
every run, and the node replays after it has compared its tensors. ONNX Runtime does the rest: when the session is made, it
checks that this provider runs every node, and later it forwards `release_captured_graph`.

Memory that is older than the run belongs to the caller, for example to an IOBinding, and must stay in place. Memory that was
allocated since the run began belongs to ONNX Runtime, for the feeds and results of a plain `run`. It may be elsewhere each
time. A run with only such memory is not captured.

Invariants: a run under an id gives the results of an uncaptured run, or raises an error. The number of captures is bounded.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..errors import InputError, LimitError, UnsupportedError
from ..runtime.runs.key import REMEMBERED_RUNS
from . import memo, watch
from .abi import ERROR, INFO, Logger, Ort, message_of, text
from .assign.decision import SHAPE_ARITHMETIC
from .callbacks import callback
from .memory import space as memory

if TYPE_CHECKING:
    from ..device import Place, Submission
    from ..runtime.executable import Run
    from ..runtime.runs.repeat import CapturedRun
    from .assign.placement import Placement

RUN_KEY = "gpu_graph_id"
# The id of runs without the option, and the id of runs that are not captured.
DEFAULT_ID, NO_CAPTURE = 0, -1
MAX_GRAPHS = 64
# ONNX Runtime's OrtGraphCaptureNodeAssignmentPolicy.
_ALLOW_CPU_FOR_SHAPES = 1
_SHOWN_NODES = 20
# The number for the C code in runs without capture.
_NOT_CAPTURED = -1
_numbers = itertools.count(1)


class _CurrentRun(NamedTuple):
    """The run of a thread.

    `graph`: its graph id. `newest`: the number of the newest allocation at its beginning. `number`: that of the graph that was
    captured under the id; 0 if there is none.
    """

    graph: int
    newest: int
    number: int


class Captures:
    """The captures of one session. Thread safe."""

    def __init__(self, logger: Logger, releasable: bool) -> None:
        """`releasable`: ONNX Runtime has `release_captured_graph`."""
        self.logger, self._releasable = logger, releasable
        self._graphs: dict[int, _Graph] = {}
        self._lock = threading.Lock()
        self._thread = threading.local()

    def begin(self, graph_id: str) -> None:
        """Begins a run on this thread. `graph_id` is its run option; "" if it has none. Raises InputError."""
        try:
            number = int(graph_id) if graph_id else DEFAULT_ID
        except ValueError:
            raise InputError(f"run option {RUN_KEY}: {graph_id!r} is not an integer") from None
        known = self._graphs.get(number)
        begun = _NOT_CAPTURED if number == NO_CAPTURE else 0 if known is None else known.number
        memo.begin_run(0)
        self._thread.run = _CurrentRun(number, memory.space().allocations_made, begun)
        memo.begin_run(begun)  # from now on C code repeats runs of this graph

    def current(self) -> _CurrentRun:
        """Returns the run of this session on this thread. Raises UnsupportedError if there is none."""
        run: _CurrentRun | None = getattr(self._thread, "run", None)
        if run is None:
            raise UnsupportedError(
                "graph capture requires that nodes run on the thread that called run: set execution_mode to ORT_SEQUENTIAL"
            )
        return run

    def graph(self, number: int) -> _Graph:
        """Returns the captures under an id. Raises LimitError if there are too many ids."""
        with self._lock:
            graph = self._graphs.get(number)
            if graph is None:
                if len(self._graphs) >= MAX_GRAPHS:
                    raise LimitError(
                        f"graph {number} exceeds the limit of {MAX_GRAPHS} graphs per session: {self.advice('id')}"
                    )
                graph = self._graphs[number] = _Graph()
            return graph

    def advice(self, graph_id: int | str) -> str:
        """Returns advice for the message about a run that cannot be captured under this id."""
        skip = f"{RUN_KEY}={NO_CAPTURE} runs without capture"
        return f"release_captured_graph({graph_id}) makes room, {skip}" if self._releasable else skip

    def release(self, number: int) -> None:
        """Forgets the captures under an id, if any."""
        with self._lock:
            graph = self._graphs.pop(number, None)
        if graph is not None:
            for node in {node for node, _ in graph.runs.copy()}:
                if node.memos is not None:
                    node.memos.end_graph(graph.number)

    def forget(self, node: CapturedNode) -> None:
        """Forgets the captures of a node under all ids."""
        with self._lock:
            for graph in self._graphs.values():
                for key in graph.of(node):
                    graph.runs.pop(key, None)

    def clear(self) -> None:
        """Forgets all captures when the session ends."""
        with self._lock:
            self._graphs.clear()


class _Graph:
    """The captures under one id, by node and by which of its tensors the caller keeps.

    `number` is unique, also after a release. Each change is one step.
    """

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.runs: dict[tuple[CapturedNode, tuple[bool, ...]], CapturedRun] = {}

    def of(self, node: CapturedNode) -> list[tuple[CapturedNode, tuple[bool, ...]]]:
        """Returns the keys of a node's captures."""
        return [key for key in self.runs.copy() if key[0] is node]


class CapturedNode:
    """A compiled node with captured runs. `defaults`: the indices of inputs that have a value in the model."""

    def __init__(self, captures: Captures, defaults: frozenset[int]) -> None:
        self._captures, self._defaults = captures, defaults
        self._group: object = None
        self.memos: memo.Memos | None = None  # of its runs, if C code repeats them

    def run(
        self, group: object, run: Run, outputs: Sequence[Place | None], addresses: Sequence[int]
    ) -> tuple[Submission | None, int]:
        """Runs the node. If the caller keeps tensors in place, the run is captured or replayed.

        Returns what was submitted if it may be repeated, and the number of the graph in which it may be repeated.

        Captures of another `group` are forgotten, because its device was lost. `addresses`: those of the inputs and outputs; 0
        for a temporary place. Raises InputError if the caller's tensors differ from the captured ones, LimitError for too many
        graphs.
        """
        current = self._captures.current()
        if group is not self._group:
            self._captures.forget(self)
            self._group = group
        if current.graph == NO_CAPTURE:
            return run.submit(outputs), current.number
        graph = self._captures.graph(current.graph)
        space = memory.space()
        kept = tuple([at != 0 and space.number(at) <= current.newest for at in addresses])
        # The session's own memory, with the values that the model gives its inputs, stays in place in any case.
        if any(is_kept for number, is_kept in enumerate(kept) if number not in self._defaults):
            submission = self._run_captured(graph, current.graph, run, run.places(outputs), addresses, kept)
        else:
            submission = run.submit(outputs)
        return (submission, current.number) if current.number else (None, 0)

    def _run_captured(
        self,
        graph: _Graph,
        graph_id: int,
        run: Run,
        places: Sequence[Place | None],
        addresses: Sequence[int],
        kept: tuple[bool, ...],
    ) -> Submission | None:
        """Replays the captured run with these tensors in place. If there is none, captures it first."""
        capture = graph.runs.get((self, kept))
        if capture is None:
            known = graph.of(self)
            if len(known) >= REMEMBERED_RUNS:
                raise LimitError(
                    f"graph {graph_id} has been captured with {len(known)} sets of tensors, the most for one id: "
                    f"use another {RUN_KEY}; {self._captures.advice(graph_id)}"
                )
            for at, is_kept in zip(addresses, kept, strict=True):
                if is_kept:
                    memory.space().pin(at)  # even if sessions on other devices use it
            made = run.executable.capture(run.plan, places, kept)
            capture = graph.runs.setdefault((self, kept), made)  # another thread may have been faster
            if capture is made:
                self._captures.logger.log(INFO, f"captured graph {graph_id}: {len(run.plan.dispatches)} dispatches")
        difference = capture.difference(run.plan, places)
        if difference is not None:
            raise InputError(
                f"graph {graph_id} does not fit this run: {difference}; change the captured tensors in place or use "
                f"another {RUN_KEY}; {self._captures.advice(graph_id)}"
            )
        return run.executable.replay(capture, places)


class Capturing(Protocol):
    """The part of a session that captures need."""

    captures: Captures | None

    def check_captures(self) -> None:
        """Raises UnsupportedError, with nodes and reasons, if the session captures and something runs elsewhere."""


class CaptureCallbacks:
    """The callbacks of OrtEp about capture. A base class of `Provider`, which has the attributes declared here.

    A session without capture leaves them empty (`capture_slots`), because ONNX Runtime would call some of them in every run.
    """

    ort: Ort
    logger: Logger
    state: Capturing | None
    _nodes_checked = False

    @property
    def captures(self) -> Captures | None:
        """The captures of the session; None if it does not capture."""
        return self.state.captures if self.state is not None else None

    @callback("OnRunStart")
    def on_run_start(self, options: Any) -> None:
        if self.captures is not None:
            self.captures.begin(text(self.ort.api.GetRunConfigEntry(options, self.ort.string(RUN_KEY))))

    @callback("IsGraphCaptureEnabled", since=26)
    def is_graph_capture_enabled(self) -> bool:
        # True while the session is made: ONNX Runtime then checks its nodes, and later forwards releases. False afterwards:
        # with True, ONNX Runtime would repeat each run until it is captured, and Python's `run` would refuse plain arrays.
        return self.captures is not None and not self._nodes_checked

    @callback("GetGraphCaptureNodeAssignmentPolicy", since=26)
    def get_graph_capture_node_assignment_policy(self) -> int:
        """Called once, before ONNX Runtime checks the nodes. Its error names no nodes, so they are recorded and logged here."""
        self._nodes_checked = True
        try:
            if self.state is not None:
                self.state.check_captures()
        except UnsupportedError as error:
            watch.record_error(error)
            self.logger.log(ERROR, message_of(error))
        return _ALLOW_CPU_FOR_SHAPES

    @callback("IsGraphCaptured", since=26)
    def is_graph_captured(self, _graph_id: int) -> bool:
        return False  # see the module's docstring

    @callback("ReplayGraph", since=26)
    def replay_graph(self, graph_id: int) -> None:
        raise UnsupportedError(
            f"graph {graph_id} is replayed by its nodes, because only they have the run's tensors: run them"
        )

    @callback("ReleaseCapturedGraph", since=27, device=True)
    def release_captured_graph(self, graph_id: int) -> None:
        if self.captures is not None:
            self.captures.release(graph_id)


def capture_slots() -> list[str]:
    """Returns the names of the callbacks about capture."""
    return [method.callback[0] for method in vars(CaptureCallbacks).values() if hasattr(method, "callback")]


def check_placements(provider: str, placements: Iterable[Placement]) -> None:
    """Raises UnsupportedError if nodes run elsewhere, except shape arithmetic, which may run on the CPU."""
    elsewhere = []
    bodies = set()
    for node in placements:
        if not node.on_webgpu and node.reason != SHAPE_ARITHMETIC:
            elsewhere.append(f"{node.op_type} {node.name!r} on {node.provider}: {node.reason}")
        elif node.within and node.within not in bodies:
            bodies.add(node.within)
            elsewhere.append(f"control-flow node {node.within!r}: ONNX Runtime decides when its body runs")
    if elsewhere:
        more = f"; and {len(elsewhere) - _SHOWN_NODES} more" if len(elsewhere) > _SHOWN_NODES else ""
        raise UnsupportedError(
            f"enableGraphCapture=1 requires all nodes on {provider}, but these are not: "
            f"{'; '.join(elsewhere[:_SHOWN_NODES])}{more}; set enableGraphCapture=0 for this model"
        )
