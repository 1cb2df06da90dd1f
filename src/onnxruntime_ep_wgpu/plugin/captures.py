"""Graph capture in one session: what is captured under which id, and what is reported to ONNX Runtime about it.

In: `gpu_graph_id` from the options of each run, and the runs of compiled nodes. Out: the first run of a node with tensors that the
caller keeps has the id as its name, and later runs under the id are that run or an error.

ONNX Runtime can replay by itself (`ReplayGraph`), but then it calls no node and shows us no tensor: a run with other
memory would return stale data without an error. So the answer is that nothing is captured: ONNX Runtime calls the node in
every run, and the node replays after comparing what it was given. It is asked to do the rest: check at creation that every
node is ours, and pass on `release_captured_graph`.

Memory that is older than the run is the caller's, an IOBinding's for example, and has to stay in place. Memory allocated
since the run began is ONNX Runtime's own, for the feeds and results of a plain `run`, and may lie elsewhere each time. A run
that has only such memory is a run like any other.

Invariants: a run under an id gives what an uncaptured run gives, or raises; what is kept is bounded.
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
from .assign.decision import ISLAND
from .callbacks import callback
from .memory import space as memory

if TYPE_CHECKING:
    from ..device import Place, Submission
    from ..runtime.executable import Run
    from ..runtime.runs.repeat import CapturedRun
    from .assign.placement import Placement

RUN_KEY = "gpu_graph_id"
# Run options without an id mean this one; with the other, a run is not captured.
DEFAULT_ID, NO_CAPTURE = 0, -1
MAX_GRAPHS = 64
# ONNX Runtime's OrtGraphCaptureNodeAssignmentPolicy.
_ALLOW_CPU_FOR_SHAPES = 1
_SHOWN_NODES = 20
# What runs without capture are begun as.
_NOT_CAPTURED = -1
_numbers = itertools.count(1)


class _CurrentRun(NamedTuple):
    """The run that a thread is in: its graph id, the number of the newest allocation when it began, and the number of the graph
    that has been captured under the id; 0 when none has."""

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
        """A run begins on this thread; `graph_id` is its run option, "" when it has none. Raises InputError."""
        try:
            number = int(graph_id) if graph_id else DEFAULT_ID
        except ValueError:
            raise InputError(f"run option {RUN_KEY}: {graph_id!r} is not an integer") from None
        known = self._graphs.get(number)
        begun = _NOT_CAPTURED if number == NO_CAPTURE else 0 if known is None else known.number
        memo.begin_run(0)
        self._thread.run = _CurrentRun(number, memory.space().allocations_made, begun)
        memo.begin_run(begun)  # from here on C code repeats runs of this graph

    def current(self) -> _CurrentRun:
        """The run that this thread is in. Raises UnsupportedError when it is in none of this session."""
        run: _CurrentRun | None = getattr(self._thread, "run", None)
        if run is None:
            raise UnsupportedError(
                "graph capture needs nodes to run on the thread of their run: set execution_mode to ORT_SEQUENTIAL"
            )
        return run

    def graph(self, number: int) -> _Graph:
        """What is captured under an id. Raises LimitError for one id too many."""
        with self._lock:
            graph = self._graphs.get(number)
            if graph is None:
                if len(self._graphs) >= MAX_GRAPHS:
                    raise LimitError(
                        f"graph {number} would be one more than the {MAX_GRAPHS} that a session keeps: "
                        f"{self.ways_out('id')}"
                    )
                graph = self._graphs[number] = _Graph()
            return graph

    def ways_out(self, graph_id: int | str) -> str:
        """What to do about a run that cannot be captured under this id."""
        skip = f"{RUN_KEY}={NO_CAPTURE} runs without capture"
        return f"release_captured_graph({graph_id}) makes room, {skip}" if self._releasable else skip

    def release(self, number: int) -> None:
        """Forgets what was captured under an id; nothing happens when that is nothing."""
        with self._lock:
            graph = self._graphs.pop(number, None)
        if graph is not None:
            for node in {node for node, _ in graph.runs.copy()}:
                if node.memos is not None:
                    node.memos.end_graph(graph.number)

    def forget(self, node: CapturedNode) -> None:
        """Forgets what was captured of a node, under any id."""
        with self._lock:
            for graph in self._graphs.values():
                for key in graph.of(node):
                    graph.runs.pop(key, None)

    def clear(self) -> None:
        """Forgets everything: the session ends."""
        with self._lock:
            self._graphs.clear()


class _Graph:
    """What is captured under one id: by node, and by which of its tensors the caller keeps. `number` is no other graph's, also when
    this one has been released. Each change is one step."""

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.runs: dict[tuple[CapturedNode, tuple[bool, ...]], CapturedRun] = {}

    def of(self, node: CapturedNode) -> list[tuple[CapturedNode, tuple[bool, ...]]]:
        """Under which keys runs of a node are captured."""
        return [key for key in self.runs.copy() if key[0] is node]


class CapturedNode:
    """A compiled node whose runs are captured. `defaults` are the inputs, by number, that have a value in the model."""

    def __init__(self, captures: Captures, defaults: frozenset[int]) -> None:
        self._captures, self._defaults = captures, defaults
        self._group: object = None
        self.memos: memo.Memos | None = None  # of its runs, where C code repeats them

    def run(
        self, group: object, run: Run, outputs: Sequence[Place | None], addresses: Sequence[int]
    ) -> tuple[Submission | None, int]:
        """Runs the node: what has been captured, where the caller keeps tensors in place. Gives what was submitted, when that is to
        be repeated in runs of the graph with the number that comes with it.

        What was captured of another `group`, one whose device was lost, is forgotten. `addresses` are those of the
        inputs and outputs; 0 for a temporary place. Raises InputError when the caller's own tensors are not those of the
        capture, LimitError for too many graphs.
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
        # Memory of the session's own, with the values that the model gives its inputs, stays in place in any case.
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
        """The captured run with these tensors in place; captured now when it is the first."""
        capture = graph.runs.get((self, kept))
        if capture is None:
            known = graph.of(self)
            if len(known) >= REMEMBERED_RUNS:
                raise LimitError(
                    f"graph {graph_id} has been captured with {len(known)} sets of tensors in place, which is the most for one id: "
                    f"use another {RUN_KEY}; {self._captures.ways_out(graph_id)}"
                )
            for at, is_kept in zip(addresses, kept, strict=True):
                if is_kept:
                    memory.space().stay(at)  # whatever sessions on other devices do with it
            made = run.executable.capture(run.plan, places, kept)
            capture = graph.runs.setdefault((self, kept), made)  # another thread may have been faster
            if capture is made:
                self._captures.logger.log(INFO, f"captured graph {graph_id}: {len(run.plan.dispatches)} dispatches")
        difference = capture.difference(run.plan, places)
        if difference is not None:
            raise InputError(
                f"graph {graph_id} does not fit this run: {difference}; change the captured tensors in place or use "
                f"another {RUN_KEY}; {self._captures.ways_out(graph_id)}"
            )
        return run.executable.replay(capture, places)


class Capturing(Protocol):
    """A session, as far as its captures are concerned."""

    captures: Captures | None

    def check_captures(self) -> None:
        """Raises UnsupportedError, with nodes and reasons, when the session is to capture and something runs elsewhere."""


class CaptureCallbacks:
    """The callbacks of OrtEp about capture, for `Provider`, which has what is declared here.

    A session that does not capture leaves them out (`capture_slots`), as ONNX Runtime would call some in every run.
    """

    ort: Ort
    logger: Logger
    state: Capturing | None
    _nodes_checked = False

    @property
    def captures(self) -> Captures | None:
        """What the session captured; None when it does not capture."""
        return self.state.captures if self.state is not None else None

    @callback("OnRunStart")
    def on_run_start(self, options: Any) -> None:
        if self.captures is not None:
            self.captures.begin(text(self.ort.api.GetRunConfigEntry(options, self.ort.string(RUN_KEY))))

    @callback("IsGraphCaptureEnabled", since=26)
    def is_graph_capture_enabled(self) -> bool:
        # Yes while the session is made, so that ONNX Runtime checks its nodes and later passes on releases. Then no: a yes
        # would make it repeat each run until it is captured, and make Python's `run` refuse plain arrays.
        return self.captures is not None and not self._nodes_checked

    @callback("GetGraphCaptureNodeAssignmentPolicy", since=26)
    def get_graph_capture_node_assignment_policy(self) -> int:
        """Asked once, before ONNX Runtime checks the nodes: its error names none, so they are noted and logged here."""
        self._nodes_checked = True
        try:
            if self.state is not None:
                self.state.check_captures()
        except UnsupportedError as error:
            watch.went_wrong(error)
            self.logger.log(ERROR, message_of(error))
        return _ALLOW_CPU_FOR_SHAPES

    @callback("IsGraphCaptured", since=26)
    def is_graph_captured(self, _graph_id: int) -> bool:
        return False  # see the module's docstring

    @callback("ReplayGraph", since=26)
    def replay_graph(self, graph_id: int) -> None:
        raise UnsupportedError(f"graph {graph_id} is replayed by its nodes, which see the run's tensors: run them")

    @callback("ReleaseCapturedGraph", since=27, device=True)
    def release_captured_graph(self, graph_id: int) -> None:
        if self.captures is not None:
            self.captures.release(graph_id)


def capture_slots() -> list[str]:
    """The names of the callbacks about capture."""
    return [method.callback[0] for method in vars(CaptureCallbacks).values() if hasattr(method, "callback")]


def check_placements(provider: str, placements: Iterable[Placement]) -> None:
    """Raises UnsupportedError when nodes run elsewhere, other than shape arithmetic, which may stay on the CPU."""
    elsewhere = []
    bodies = set()
    for node in placements:
        if not node.on_webgpu and node.reason != ISLAND:
            elsewhere.append(f"{node.op_type} {node.name!r} on {node.provider}: {node.reason}")
        elif node.within and node.within not in bodies:
            bodies.add(node.within)
            elsewhere.append(f"control-flow node {node.within!r}: ONNX Runtime runs its body as it decides")
    if elsewhere:
        more = f"; and {len(elsewhere) - _SHOWN_NODES} more" if len(elsewhere) > _SHOWN_NODES else ""
        raise UnsupportedError(
            f"enableGraphCapture=1 needs all nodes on {provider}, but these are not: "
            f"{'; '.join(elsewhere[:_SHOWN_NODES])}{more}; set enableGraphCapture=0 for this model"
        )
