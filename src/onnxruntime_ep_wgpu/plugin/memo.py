"""Runs of a compiled node that are the same as before, for C code to repeat (csrc/memo.c).

In: runs that Python has done. Out: memos, each a set of tensors with the work that is submitted for them; ONNX Runtime's call of
the node then ends in C, without the interpreter and its lock, when all tensors are the same.
Invariants: a memo is used only while the marks of its tensors' memory are what they were (`memory/allocation.py`), on a device
that is there, on a thread that nobody listens on. What it keeps goes when one of its buffers dies, when its plan goes, when another
one takes its place and when the session ends, each time after the last thread that uses it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import process, trace
from .._ort import ffi as _ort_ffi
from ..device import Buffer, Place, depend
from .abi import Ort, address
from .memory import space as memory
from .memory.allocation import Marked

try:
    from .. import _memo as _extension  # type: ignore[attr-defined,unused-ignore]
except ImportError:
    _extension = None
native: Any = _extension

if TYPE_CHECKING:
    from ..device import Submission
    from ..runtime.executable import Run

MOST_PASSED_OVER = 1024


class NodeTensor(NamedTuple):
    """An input or output of a run, as the fused node has it: `place` is None for one that is empty. `value` are the bytes of
    an input whose elements set shapes."""

    type: int
    dims: tuple[int, ...]
    address: int
    nbytes: int
    place: Place | None
    value: bytes | None = None


LEFT_OUT = NodeTensor(0, (), 0, 0, None)


class Memo:
    """One of a node's memos, the `number`th, and what it points to."""

    __slots__ = ("__weakref__", "_buffers", "_kept", "_node", "_words", "key")

    def __init__(self, key: object, node: Any, number: int, buffers: Sequence[Buffer], kept: object) -> None:
        self.key, self._node, self._kept = key, node, kept
        self._words = native.ffi.addressof(node, "memos", number)
        self._buffers = tuple(map(weakref.ref, buffers))

    @property
    def hits(self) -> int:
        return int(self._words.hits)

    def begin(self) -> None:
        """From here on C code uses it."""
        native.lib.memo_begin(self._words)

    def end(self) -> bool:
        """Nobody begins to use it any more. Whether nobody does, and so what it kept has gone."""
        if self._kept is None:
            return True
        if not native.lib.memo_end(self._words):
            return False
        self._kept = None
        return True

    def buffers_ended(self) -> None:
        if any(buffer() is None for buffer in self._buffers):
            self.end()


class _Thread(threading.local):
    """What is known of one thread: the last allocation that was made before the end of its last run in Python."""

    newest = 0


class Memos:
    """Those of one node: `table` is its OrtNodeComputeInfo. `node` is what ONNX Runtime gets instead."""

    def __init__(self, ort: Ort, table: Any, inputs: int, outputs: int, captured: bool) -> None:
        """`captured`: the session captures its runs, so a run is repeated only where it belongs to the same graph."""
        self._node = native.ffi.new("Node *")
        self.node = _ort_ffi.cast("OrtNodeComputeInfo *", address(self._node))
        _ort_ffi.memmove(self.node, table, _ort_ffi.sizeof("OrtNodeComputeInfo"))
        self._node.api = native.ffi.cast("OrtApi *", address(ort.api))
        self._node.inputs, self._node.outputs, self._node.captured = inputs, outputs, captured
        self._node.python = native.ffi.cast(native.ffi.typeof(self._node.python), address(table.Compute))
        compute = address(native.ffi.addressof(native.lib, "compute"))
        self.node.Compute = _ort_ffi.cast(_ort_ffi.typeof(table.Compute), compute)
        self._memos: list[Memo | None] = [None] * len(self._node.memos)
        self._lock = threading.Lock()
        self._thread = _Thread()
        self._passed_over = self._pass_over = 0

    @property
    def hits(self) -> int:
        """Runs that C code has repeated."""
        return int(self._node.hits)

    @property
    def noted(self) -> int:
        """Runs that C code may repeat now."""
        return sum(bool(it.live) for it in self._node.memos)

    def ran(
        self, run: Run, submission: Submission, tensors: Callable[[], Sequence[NodeTensor]], graph: int = 0
    ) -> None:
        """Python has done a run that was nothing but this submission; `run` is still open, `tensors` are the node's inputs, then
        its outputs, and `graph` is what the session captures it as.

        Noted are runs whose tensors were there before: memory that was allocated for this run will not come again.
        """
        thread = self._thread
        newest, thread.newest = thread.newest, memory.space().allocations_made
        if run.plan.submits == 1:
            return
        if self._passed_over < self._pass_over:
            self._passed_over += 1
            return
        bound = tensors()
        marked = _marked(bound, self._node.inputs, newest)
        if marked is not None:
            with self._lock:
                self._keep(run, submission, bound, marked, graph)

    def _keep(
        self,
        run: Run,
        submission: Submission,
        tensors: Sequence[NodeTensor],
        marked: Sequence[Marked | None],
        graph: int,
    ) -> None:
        key = graph, tuple([(it.address, it.dims) for it in tensors])
        number = self._free_place(key)
        work = run.work(submission)
        if number is None or work is None:
            return
        words = self._node.memos[number]
        dims = [extent for it in tensors for extent in it.dims]
        rows, first = [], 0
        cast, null = native.ffi.cast, native.ffi.NULL
        for it, mark in zip(tensors, marked, strict=True):
            row = (it.value is not None, it.type, len(it.dims), first)
            if mark is None:
                rows.append((null, null, 0, 0, *row))
            else:
                marks = cast("uint64_t *", mark.marks.buffer_info()[0])
                rows.append((cast("void *", it.address), marks, mark.place, mark.value, *row))
            first += len(it.dims)
        for k in range(self._node.inputs, len(rows)):
            rows[k] = (*rows[k][:4], True, *rows[k][5:])  # a host copy of an output has to be forgotten
        lists = native.ffi.new("Tensor[]", rows), native.ffi.new("int64_t[]", dims or (0,))
        words.tensors, words.dims = lists
        words.run = native.ffi.cast("int (*)(void *)", work.function)
        words.work = native.ffi.cast("void *", work.number)
        words.hits, words.graph = 0, graph
        words.last = self._node.hits
        buffers = [mark.at.place.buffer for mark in marked if mark is not None and mark.at is not None]
        made = Memo(
            key, self._node, number, buffers, (lists, work, [mark.marks for mark in marked if mark is not None])
        )
        depend(made)
        run.plan.repeaters.add(made)
        self._memos[number] = made
        # A thread on which nobody listens may not have been told so, after an interrupt.
        if not trace.listeners():
            native.lib.listen(False)
        made.begin()

    def _free_place(self, key: object) -> int | None:
        """Which of the node's memos may be made anew: the one of the same tensors, whose memory has changed, a free one, or
        else the one that was used longest ago."""
        words = self._node.memos
        number = next((k for k, it in enumerate(self._memos) if it is not None and it.key == key), None)
        if number is None:
            for k, it in enumerate(self._memos):
                if it is None or (not words[k].live and it.end()):
                    return k
            number = min(range(len(words)), key=lambda k: int(words[k].last))
        known = self._memos[number]
        assert known is not None
        # Where tensors change faster than memos help, most runs are passed over, which costs nothing.
        self._passed_over, self._pass_over = 0, 0 if known.hits else min(2 * self._pass_over + 1, MOST_PASSED_OVER)
        return number if known.end() else None

    def end_graph(self, graph: int) -> None:
        """What has been captured as this number is released."""
        for k, known in enumerate(self._memos):
            if known is not None and int(self._node.memos[k].graph) == graph:
                known.end()

    def close(self) -> None:
        """The session ends: no run is under way."""
        for known in self._memos:
            if known is not None:
                known.end()


def _marked(tensors: Sequence[NodeTensor], inputs: int, newest: int) -> list[Marked | None] | None:
    """The marks of all tensors' memory, None for empty ones; None when a run with them is not to be noted."""
    space = memory.space()
    marked: list[Marked | None] = []
    for number in reversed(range(len(tensors))):  # results are new more often than inputs
        it = tensors[number]
        if not it.nbytes:
            marked.append(None)
            continue
        if not it.address:  # in a temporary place
            return None
        mark = space.marked(it.address, it.nbytes)
        if mark.number > newest or mark.at is None or mark.at.place != it.place:
            return None
        if it.value is not None and (mark.mirror is None or mark.mirror[: it.nbytes] != it.value):
            return None
        if number >= inputs and mark.mirrored:
            return None
        marked.append(mark)
    return marked[::-1]


def begin_run(graph: int) -> None:
    """A run begins on this thread, in a session that captures, of what has been captured as this number."""
    if native is not None:
        native.lib.begin_run(graph)


def _forked() -> None:
    native.lib.forked = 1


if native is not None:
    process.on_fork.append(_forked)
    trace.on_change.append(lambda listens: native.lib.listen(listens))
