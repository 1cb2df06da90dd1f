"""Repetition of equal runs of a compiled node by C code (csrc/runs.c).

In: runs that Python has done. Out: memos, each a set of tensors with the work that is submitted for them. If all tensors are
the same, ONNX Runtime's call of the node stays in C code, without the interpreter and its lock.

If sizes grow from run to run, as those of a decoder's mask, a memo describes a series of runs (`program/series.py`). Their
tensors are at the same addresses and differ only in shape. C code finds the number of the run from the shapes.

Invariants: a memo is used only while the marks of its tensors' memory are unchanged (`memory/allocation.py`), on a device that
is not lost, on a thread without a recorder. Its contents are released when one of its buffers dies, when its plan ends, when
another memo replaces it, and when the session ends. A thread that still uses the memo delays the release.
"""

from __future__ import annotations

import math
import threading
import weakref
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from .._ort import ffi, lib
from ..attempts import Attempts
from ..device import depend
from ..live import LiveMap
from . import without_python
from .abi import address
from .memory import space as memory

if TYPE_CHECKING:
    from ..device import Buffer, Place, Submission, Work
    from ..program.dtypes import DType
    from ..runtime.executable import Run
    from ..runtime.plans import InSeries
    from .known_tensors import FusedNode
    from .tensors import Tensors

MOST_PASSED_OVER = 1024


Buffers = Sequence["weakref.ref[Buffer] | None"]
Shapes = Sequence[tuple[int, ...]]
MemoKey = tuple[
    int, tuple[int, ...], Shapes
]  # number of the captured graph; addresses and shapes of the group's tensors, inputs first


class Memo:
    """One memo of a node, and the data that C code reads while it is live: `rows` of the node's tensors, and the `work`.

    `work` is None before the beginning and after the end. The memo keeps no memory of tensors: `buffers` are weak references.
    `in_series`: it describes more than one run.
    """

    __slots__ = ("__weakref__", "_buffers", "_words", "in_series", "key", "rows", "work")

    def __init__(self, words: Any, key: MemoKey, rows: Any, buffers: Buffers, in_series: bool) -> None:
        self._words, self.key, self.rows, self._buffers, self.in_series = words, key, rows, buffers, in_series
        self.work: Work | None = None

    @property
    def hits(self) -> int:
        return int(self._words.hits)

    def begin(self, work: Work) -> None:
        """Lets C code use the memo from now on, and submit this work."""
        self.work = work
        self._words.run = ffi.cast("int (*)(void *, size_t)", work.function)
        self._words.work = ffi.cast("void *", work.number)
        lib.memo_begin(self._words)

    def end(self) -> bool:
        """Ends the memo. Returns whether its contents are released, because no thread uses it."""
        if self.work is None:
            return True
        if not lib.memo_end(self._words):
            return False
        self.rows = self.work = None
        return True

    def is_at(self, number: int) -> bool:
        """Returns whether this is its address in C code."""
        return address(self._words) == number

    def raise_refusal(self) -> NoReturn:
        """Raises the reason why C code has begun the run and cannot complete it. Until then C code keeps the memo in use."""
        assert self.work is not None
        self.work.raise_refusal()

    def buffers_ended(self) -> None:
        if any(buffer is not None and buffer() is None for buffer in self._buffers):
            self.end()


class _Thread(threading.local):
    """The data of one thread: the number of the last allocation before the end of its last run in Python."""

    newest = 0


class Memos:
    """The memos of one node, a Node of the C code."""

    def __init__(self, node: Any, signature: FusedNode, captured: bool) -> None:
        """`captured`: the session captures its runs, so a run is repeated only if it belongs to the same graph."""
        # The indices of the group's tensors among those of the node.
        self._numbers = [*signature.inputs, *(len(signature.input_names) + number for number in signature.outputs)]
        self._node, self._signature = node, signature
        nodes.set(address(node), self)
        node.inputs, node.outputs = signature.counts
        node.captured = captured
        self._memos: list[Memo | None] = [None] * len(self._node.memos)
        self._lock = threading.Lock()
        self._thread = _Thread()
        # Attempts to record single runs, and runs in a series. If tensors change too fast for memos to help, most are skipped.
        self._attempts = {in_series: Attempts(MOST_PASSED_OVER) for in_series in (False, True)}
        self._closed = False

    @property
    def hits(self) -> int:
        """The number of runs that C code has repeated."""
        return int(self._node.hits)

    @property
    def live_memos(self) -> int:
        """The number of memos that C code may use now."""
        return sum(bool(it.live) for it in self._node.memos)

    def check_begun(self, state: Any) -> None:
        """Checks the state with which C code calls the node.

        It is the node's, or the memo of a run that C code has begun and cannot complete. C code keeps such a memo in use
        meanwhile. Raises DeviceError, DeviceLostError for it.
        """
        number = address(state)
        if number != address(self._node):
            next(it for it in self._memos if it is not None and it.is_at(number)).raise_refusal()

    def record_run(
        self, run: Run, submission: Submission, tensors: Tensors, outputs: Sequence[Place | None], graph: int = 0
    ) -> None:
        """Call this when Python has done a run that consists only of this submission, and `run` is still open.

        `graph`: the number of the captured graph. A run is recorded if its tensors existed before, or stay in place when they
        are freed. Other memory that was allocated for this run does not recur.
        """
        thread, known = self._thread, tensors.known
        newest, thread.newest = thread.newest, memory.space().allocations_made
        if run.series is None and run.is_new:
            return
        if self._attempts[run.series is not None].is_due() and known.repeatable and known.newest <= newest:
            with self._lock:
                self._keep(run, submission, tensors, run.places(outputs), graph)

    def _keep(
        self, run: Run, submission: Submission, tensors: Tensors, places: Sequence[Place | None], graph: int
    ) -> None:
        series, rows = run.series, tensors.known.rows(self._signature)
        shapes: Shapes = run.shapes
        count = 1
        if series is not None:
            if tensors.reads_values:  # an input value sets shapes
                return
            shapes, count = self._series_rows(run, series, rows, tensors.addresses)
            if not count:
                return
        key = graph, tuple(tensors.addresses), shapes
        number = self._free_place(key)
        if number is not None:
            buffers = [None if it is None else weakref.ref(it.buffer) for it in places]
            words = self._words(number, rows, graph, count)
            self._begin(number, Memo(words, key, rows, buffers, series is not None), run, submission)

    def _series_rows(self, run: Run, series: InSeries, rows: Any, addresses: Sequence[int]) -> tuple[Shapes, int]:
        """Changes the rows of a run to those of its series. Returns the first shapes and the number of runs.

        The tensors of these runs are at these addresses, and fit into the memory there. The number is 0 if a tensor without
        elements, which has no address, gets elements.
        """
        program, first, count = run.executable.program, list[tuple[int, ...]](), series.runs
        values = (*program.inputs, *program.outputs)
        for k, (shape, more) in enumerate(zip(run.shapes, series.more, strict=True)):
            begin = tuple([extent - series.number * by for extent, by in zip(shape, more, strict=True)])
            first.append(begin)
            if any(more):
                if 0 in shape and not any(extent == by == 0 for extent, by in zip(shape, more, strict=True)):
                    count = 0
                    continue
                row = rows[self._numbers[k]]
                row.dims[0 : row.rank], row.more[0 : row.rank] = begin, more
                if 0 not in shape:
                    room = memory.space().room(addresses[k])
                    count = _count_that_fits(program.values[values[k]].dtype, begin, more, room, count)
        return first, count

    def _words(self, number: int, rows: Any, graph: int, count: int) -> Any:
        """Returns one of the node's memos for C code, not live yet."""
        words = ffi.addressof(self._node, "memos", number)
        words.tensors, words.hits, words.graph, words.count, words.last = rows, 0, graph, count, self._node.hits
        return words

    def _begin(self, number: int, made: Memo, run: Run, submission: Submission) -> None:
        """Lets C code repeat a run from now on."""
        depend(made)
        self._memos[number] = made
        without_python.settle()
        made.begin(run.repeat(submission, made))
        if self._closed:  # closed in the meantime, by a thread that may not have seen this memo
            made.end()

    def _free_place(self, key: MemoKey) -> int | None:
        """Returns the index of a memo that may be replaced; None if it is in use.

        It is the memo of the same tensors after a change of their memory, else a free one, else the least recently used one.
        """
        words = self._node.memos
        number = next((k for k, it in enumerate(self._memos) if it is not None and it.key == key), None)
        if number is None:
            for k, it in enumerate(self._memos):
                if it is None or (not words[k].live and it.end()):
                    return k
            number = min(range(len(words)), key=lambda k: int(words[k].last))
        known = self._memos[number]
        assert known is not None
        self._attempts[known.in_series].ended(useful=bool(known.hits))
        return number if known.end() else None

    def end_graph(self, graph: int) -> None:
        """Ends the memos of a captured graph, by its number, when it is released."""
        for k, known in enumerate(self._memos):
            if known is not None and int(self._node.memos[k].graph) == graph:
                known.end()

    def close(self) -> None:
        """Call this when the session ends. No run is active, but this thread may be in a finaliser, so no lock is taken.

        `_begin` ends memos that begin later.
        """
        self._closed = True
        self.end_all()

    def end_all(self) -> None:
        """Ends all memos."""
        for known in self._memos:
            if known is not None:
                known.end()


nodes: LiveMap[int, Memos] = LiveMap()
"""By the address of the Node, which lives as long as its Memos."""


def _count_that_fits(dtype: DType, first: Sequence[int], more: Sequence[int], room: int, most: int) -> int:
    """Returns how many of these tensors take at most `room` bytes each. Each is larger than the one before by `more`."""

    def nbytes(number: int) -> int:
        return dtype.nbytes(math.prod([extent + number * by for extent, by in zip(first, more, strict=True)]))

    return bisect_right(range(most), room, key=nbytes)


def begin_run(graph: int) -> None:
    """Call this when a run begins on this thread, in a session that captures. `graph`: the number of its captured graph."""
    lib.begin_run(graph)
