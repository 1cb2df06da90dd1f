"""Runs of a compiled node that are the same as before, for C code to repeat (csrc/runs.c).

In: runs that Python has done. Out: memos, each a set of tensors with the work that is submitted for them; ONNX Runtime's call of
the node then ends in C, without the interpreter and its lock, when all tensors are the same.

Where sizes grow from run to run, as a decoder's mask does, a memo is of a series of runs (`program/series.py`), with tensors that
are the same but for their shapes, at the same addresses. Which of these runs it is, C code finds out from the shapes.

Invariants: a memo is used only while the marks of its tensors' memory are what they were (`memory/allocation.py`), on a device
that is there, on a thread without a recorder. What it keeps goes when one of its buffers dies, when its plan goes, when another
one takes its place and when the session ends, each time after the last thread that uses it.
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
    from .known import FusedNode
    from .tensors import Tensors

MOST_PASSED_OVER = 1024


Buffers = Sequence["weakref.ref[Buffer] | None"]
Shapes = Sequence[tuple[int, ...]]
MemoKey = tuple[
    int, tuple[int, ...], Shapes
]  # what a run is captured as; addresses and shapes of the group's tensors, inputs first


class Memo:
    """One of a node's memos, and what C code reads while it lives: `rows` of the node's tensors, and the `work`, which is None at
    its end. It keeps no memory of tensors, which lie in `buffers`. `in_series`: it is of more than one run."""

    __slots__ = ("__weakref__", "_buffers", "_words", "in_series", "key", "rows", "work")

    def __init__(self, words: Any, key: MemoKey, rows: Any, buffers: Buffers, in_series: bool) -> None:
        self._words, self.key, self.rows, self._buffers, self.in_series = words, key, rows, buffers, in_series
        self.work: Work | None = None

    @property
    def hits(self) -> int:
        return int(self._words.hits)

    def begin(self, work: Work) -> None:
        """From here on C code uses it, and submits this."""
        self.work = work
        self._words.run = ffi.cast("int (*)(void *, size_t)", work.function)
        self._words.work = ffi.cast("void *", work.number)
        lib.memo_begin(self._words)

    def end(self) -> bool:
        """Ends it. Whether no thread uses it, and what it kept has gone."""
        if self.work is None:
            return True
        if not lib.memo_end(self._words):
            return False
        self.rows = self.work = None
        return True

    def is_at(self, number: int) -> bool:
        """Whether C code knows it by this address."""
        return address(self._words) == number

    def raise_refusal(self) -> NoReturn:
        """C code has begun the run and cannot complete it, and uses the memo until this has raised why."""
        assert self.work is not None
        self.work.raise_refusal()

    def buffers_ended(self) -> None:
        if any(buffer is not None and buffer() is None for buffer in self._buffers):
            self.end()


class _Thread(threading.local):
    """What is known of one thread: the last allocation that was made before the end of its last run in Python."""

    newest = 0


class Memos:
    """Those of one node, a Node of C code."""

    def __init__(self, node: Any, signature: FusedNode, captured: bool) -> None:
        """`captured`: the session captures its runs, so a run is repeated only where it belongs to the same graph."""
        # The places of the group's tensors among those of the node.
        self._numbers = [*signature.inputs, *(len(signature.input_names) + number for number in signature.outputs)]
        self._node, self._signature = node, signature
        nodes.set(address(node), self)
        node.inputs, node.outputs = signature.counts
        node.captured = captured
        self._memos: list[Memo | None] = [None] * len(self._node.memos)
        self._lock = threading.Lock()
        self._thread = _Thread()
        # To note a run, or one in a series: where tensors change faster than memos help, most are passed over.
        self._attempts = {in_series: Attempts(MOST_PASSED_OVER) for in_series in (False, True)}
        self._closed = False

    @property
    def hits(self) -> int:
        """Runs that C code has repeated."""
        return int(self._node.hits)

    @property
    def noted(self) -> int:
        """Runs that C code may repeat now."""
        return sum(bool(it.live) for it in self._node.memos)

    def check_begun(self, state: Any) -> None:
        """C code calls the node with this state: that of the node, or the memo of a run which it has begun and cannot complete, and
        leaves in use meanwhile. Raises DeviceError, DeviceLostError for that."""
        number = address(state)
        if number != address(self._node):
            next(it for it in self._memos if it is not None and it.is_at(number)).raise_refusal()

    def ran(
        self, run: Run, submission: Submission, tensors: Tensors, outputs: Sequence[Place | None], graph: int = 0
    ) -> None:
        """Python has done a run that was nothing but this submission; `run` is still open, and `graph` is what the session captures
        it as.

        Noted are runs whose tensors were there before, or stay where they are when they are freed: other memory that was allocated
        for this run will not come again.
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
            if tensors.valued:  # a value that sets shapes
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
        """Makes the rows of a run those of its series. Gives the first shapes, and how many runs of it have their tensors at these
        addresses, as far as there is room: none where a tensor without elements, which lies nowhere, gets some."""
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
                    count = _that_fit(program.values[values[k]].dtype, begin, more, room, count)
        return first, count

    def _words(self, number: int, rows: Any, graph: int, count: int) -> Any:
        """One of the node's memos, for C code."""
        words = ffi.addressof(self._node, "memos", number)
        words.tensors, words.hits, words.graph, words.count, words.last = rows, 0, graph, count, self._node.hits
        return words

    def _begin(self, number: int, made: Memo, run: Run, submission: Submission) -> None:
        """Lets C code repeat a run, from here on."""
        depend(made)
        self._memos[number] = made
        without_python.settle()
        made.begin(run.repeat(submission, made))
        if self._closed:  # meanwhile, by a thread that may not have seen it
            made.end()

    def _free_place(self, key: MemoKey) -> int | None:
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
        self._attempts[known.in_series].ended(useful=bool(known.hits))
        return number if known.end() else None

    def end_graph(self, graph: int) -> None:
        """What has been captured as this number is released."""
        for k, known in enumerate(self._memos):
            if known is not None and int(self._node.memos[k].graph) == graph:
                known.end()

    def close(self) -> None:
        """The session ends: no run is under way, but this thread may be in a finaliser: no lock is taken. What begins after this is
        ended (`_begin`)."""
        self._closed = True
        self.end_all()

    def end_all(self) -> None:
        """What was noted stands no more."""
        for known in self._memos:
            if known is not None:
                known.end()


nodes: LiveMap[int, Memos] = LiveMap()
"""By the address of the Node, which lasts as long as these."""


def _that_fit(dtype: DType, first: Sequence[int], more: Sequence[int], room: int, most: int) -> int:
    """How many tensors, each larger than the one before by so much, take no more than `room` bytes."""

    def nbytes(number: int) -> int:
        return dtype.nbytes(math.prod([extent + number * by for extent, by in zip(first, more, strict=True)]))

    return bisect_right(range(most), room, key=nbytes)


def begin_run(graph: int) -> None:
    """A run begins on this thread, in a session that captures, of what has been captured as this number."""
    lib.begin_run(graph)
