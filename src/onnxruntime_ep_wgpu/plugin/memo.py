"""Runs of a compiled node that are the same as before, for C code to repeat (csrc/runs.c).

In: runs that Python has done. Out: memos, each a set of tensors with the work that is submitted for them; ONNX Runtime's call of
the node then ends in C, without the interpreter and its lock, when all tensors are the same.

Where sizes grow from run to run, as a decoder's mask does, the memo of the next run is there before it: whoever prepares that
run asks the memo of the last one to go on (`Memo.go_on`). Its tensors are the same but for their shapes, at the same addresses.

Invariants: a memo is used only while the marks of its tensors' memory are what they were (`memory/allocation.py`), on a device
that is there, on a thread that nobody listens on. What it keeps goes when one of its buffers dies, when its plan goes, when another
one takes its place and when the session ends, each time after the last thread that uses it.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from itertools import compress, count
from operator import ne
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from .._ort import ffi, lib
from ..device import Place, depend
from ..runtime.runs.key import Places
from . import without_python
from .abi import address
from .known import write_row
from .memory import descriptors
from .memory import space as memory
from .memory.allocation import Marked

if TYPE_CHECKING:
    from ..device import Submission, Work
    from ..runtime.executable import Run
    from ..runtime.plan import Plan
    from .known import FusedNode

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


Shapes = Sequence[tuple[int, ...]]
MemoKey = tuple[int, tuple[int, ...], Shapes]  # what a run is captured as; addresses and shapes of the node's tensors


class _Tensors:
    """What memos have in common where only shapes are others: the addresses of the node's tensors, and of the group's, inputs
    first, types, and where they lie (`Places.at`). It keeps no memory of tensors. `valued`: the value of some input sets shapes."""

    def __init__(self, tensors: Sequence[NodeTensor], numbers: Sequence[int], marked: Sequence[Marked | None]) -> None:
        self.marks = [mark.marks for mark in marked if mark is not None]
        self.addresses = tuple([it.address for it in tensors])
        self.types = [tensors[number].type for number in numbers]
        self.at = Places([tensors[number].place for number in numbers]).at
        self.valued = any(it.value is not None for it in tensors)
        buffers = {mark.at.place.buffer for mark in marked if mark is not None and mark.at is not None}
        self.buffers = [*map(weakref.ref, buffers)]


class _Contents:
    """What C code reads while a memo lives: `rows` of all tensors of the node, which have these `shapes`. `own` are those of the
    group's tensors."""

    def __init__(self, tensors: _Tensors, rows: Any, shapes: Shapes, own: Shapes, work: Work) -> None:
        self.tensors, self.rows, self.shapes, self.own, self.work = tensors, rows, shapes, own, work


class Memo:
    """One of a node's memos, and what it points to. `expected`: of a run that had not been; `expects`: of one that others will
    follow, with other sizes; `extended`: the memo of such a one was made of it."""

    __slots__ = ("__weakref__", "_buffers", "_memos", "_words", "contents", "expected", "expects", "extended", "key")

    def __init__(self, memos: Memos, words: Any, key: MemoKey, contents: _Contents) -> None:
        self.key, self._memos, self._words = key, memos, words
        self.contents: _Contents | None = contents
        self._buffers = contents.tensors.buffers
        self.expected = self.expects = self.extended = False

    @property
    def hits(self) -> int:
        return int(self._words.hits)

    def begin(self) -> None:
        """From here on C code uses it."""
        lib.memo_begin(self._words)

    def end(self) -> bool:
        """Nobody begins to use it any more. Whether nobody does, and so what it kept has gone."""
        if self.contents is None:
            return True
        if not lib.memo_end(self._words):
            return False
        self.contents = None
        return True

    def is_at(self, number: int) -> bool:
        """Whether C code knows it by this address."""
        return address(self._words) == number

    def raise_refusal(self) -> NoReturn:
        """C code has begun the run and cannot complete it, and uses the memo until this has raised why."""
        assert self.contents is not None
        self.contents.work.raise_refusal()

    def buffers_ended(self) -> None:
        if any(buffer() is None for buffer in self._buffers):
            self.end()

    def go_on(
        self,
        plan: Plan,
        shapes: Sequence[tuple[int, ...]],
        places: Places,
        work: Callable[[], Work | None],
    ) -> Work | None:
        """See `runtime.plan.Repeater`."""
        return self._memos.go_on(self, plan, shapes, places, work)


class _Thread(threading.local):
    """What is known of one thread: the last allocation that was made before the end of its last run in Python."""

    newest = 0


class Memos:
    """Those of one node, a Node of C code."""

    def __init__(self, node: Any, signature: FusedNode, captured: bool) -> None:
        """`captured`: the session captures its runs, so a run is repeated only where it belongs to the same graph."""
        # The places of the group's tensors among those of the node.
        self._numbers = [*signature.inputs, *(len(signature.input_names) + number for number in signature.outputs)]
        self._node = node
        node.inputs, node.outputs = signature.counts
        node.captured = captured
        self._memos: list[Memo | None] = [None] * len(self._node.memos)
        self._lock = threading.Lock()
        self._thread = _Thread()
        self._passed_over = self._pass_over = 0
        self._expected: deque[Memo] = deque()  # of runs that had not been when they were made
        self._unexpected = self._expect_none = 0
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
        self, run: Run, submission: Submission, tensors: Callable[[], Sequence[NodeTensor]], graph: int = 0
    ) -> None:
        """Python has done a run that was nothing but this submission; `run` is still open, `tensors` are the node's inputs, then
        its outputs, and `graph` is what the session captures it as.

        Noted are runs whose tensors were there before, or stay where they are when they are freed: other memory that was allocated
        for this run will not come again.
        """
        thread = self._thread
        newest, thread.newest = thread.newest, memory.space().allocations_made
        if not (self._expects() if run.goes_on else self._comes_again(run)):
            return
        bound = tensors()
        marked = _marked(bound, self._node.inputs, newest)
        if marked is not None:
            with self._lock:
                self._keep(run, submission, bound, marked, graph)

    def _comes_again(self, run: Run) -> bool:
        """Whether to note a run, for others like it. Where tensors change faster than memos help, most are passed over."""
        if run.plan.submits == 1:
            return False
        self._passed_over += 1
        return self._passed_over > self._pass_over

    def _expects(self) -> bool:
        """Whether to note a run that others will follow, with other sizes. Where that was in vain, most are passed over."""
        self._unexpected += 1
        return self._unexpected > self._expect_none

    def _learn_from(self, memo: Memo) -> None:
        """A memo ends: was it of any use?"""
        if memo.expects or memo.expected:
            used = memo.hits or memo.extended
            self._unexpected, self._expect_none = 0, 0 if used else min(2 * self._expect_none + 1, MOST_PASSED_OVER)
        else:
            self._passed_over, self._pass_over = 0, 0 if memo.hits else min(2 * self._pass_over + 1, MOST_PASSED_OVER)

    def _keep(
        self,
        run: Run,
        submission: Submission,
        tensors: Sequence[NodeTensor],
        marked: Sequence[Marked | None],
        graph: int,
    ) -> None:
        shapes = [it.dims for it in tensors]
        key = graph, tuple([it.address for it in tensors]), shapes
        number = self._free_place(key)
        if number is None:
            return
        work = run.work(submission)
        rows = ffi.new("Tensor[]", max(1, len(tensors)))
        for k, (it, mark) in enumerate(zip(tensors, marked, strict=True)):
            # A host copy of an output has to be forgotten.
            write_row(rows[k], it.type, it.dims, mark, it.address, it.value is not None or k >= self._node.inputs)
        known = _Tensors(tensors, self._numbers, marked)
        contents = _Contents(known, rows, shapes, [shapes[number] for number in self._numbers], work)
        self._begin(number, key, contents, run.plan).expects = run.goes_on

    def _begin(self, number: int, key: MemoKey, contents: _Contents, plan: Plan) -> Memo:
        """Lets C code repeat what `contents` says, from here on."""
        words = ffi.addressof(self._node, "memos", number)
        words.tensors = contents.rows
        words.run = ffi.cast("int (*)(void *)", contents.work.function)
        words.work = ffi.cast("void *", contents.work.number)
        words.hits, words.graph = 0, key[0]
        words.last = self._node.hits
        made = Memo(self, words, key, contents)
        depend(made)
        plan.repeaters.add(made)
        self._memos[number] = made
        without_python.settle()
        made.begin()
        if self._closed:  # meanwhile, by a thread that may not have seen it
            made.end()
        return made

    # ---- runs that have not been

    def go_on(
        self, last: Memo, plan: Plan, shapes: Shapes, places: Places, work: Callable[[], Work | None]
    ) -> Work | None:
        """See `runtime.plan.Repeater`: `last` is the memo of the run before. What tensors that take turns have in common with those
        of an earlier run, its memo knows."""
        with self._lock:
            known = (it for it in (last, *self._memos) if it is not None and it.key[0] == last.key[0])
            found = next((it for it in known if it.contents is not None and it.contents.tensors.at == places.at), None)
            contents = None if found is None else found.contents
            if found is None or contents is None:
                return None
            contents.tensors.at = places.at  # the same object, which is compared faster the next time
            own = [*shapes, *plan.output_shapes]
            grown = self._grown(contents, own)
            made = None if grown is None else work()
            if grown is None or made is None:
                return None
            everything, rows = grown
            found.extended = True
            self._end_expected()
            key = last.key[0], contents.tensors.addresses, everything
            number = self._free_place(key)
            if number is None:
                return None
            memo = self._begin(number, key, _Contents(contents.tensors, rows, everything, own, made), plan)
            memo.expected = True
            self._expected.append(memo)
            return made

    def _grown(self, contents: _Contents, own: Shapes) -> tuple[Shapes, Any] | None:
        """The shapes of the node's tensors when these are the group's, and the same as C code reads them; None where tensors would
        not lie as they do."""
        tensors, space = contents.tensors, memory.space()
        if tensors.valued:
            return None
        grown = list(contents.shapes)
        rows = ffi.new("Tensor[]", len(contents.rows))
        ffi.memmove(rows, contents.rows, ffi.sizeof(rows))
        for k in compress(count(), map(ne, own, contents.own)):
            number, shape = self._numbers[k], own[k]
            nbytes = descriptors.tensor_bytes(tensors.types[k], shape)
            there = space.known_place(tensors.addresses[number], nbytes) if nbytes else None
            at = None if there is None else (there.buffer.number, there.offset)
            if at is None or at != tensors.at[k] or len(grown[number]) != len(shape):
                return None
            grown[number] = shape
            rows[number].dims[0 : len(shape)] = shape
        return grown, rows

    def _end_expected(self) -> None:
        """Of runs that were expected two are known, the last one and the one to come."""
        while len(self._expected) > 1:
            old = self._expected.popleft()
            if old.contents is not None:
                self._learn_from(old)
            old.end()

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
        self._learn_from(known)
        return number if known.end() else None

    def end_graph(self, graph: int) -> None:
        """What has been captured as this number is released."""
        for k, known in enumerate(self._memos):
            if known is not None and int(self._node.memos[k].graph) == graph:
                known.end()

    def close(self) -> None:
        """The session ends: no run is under way, but a thread may prepare the next one (`go_on`), or be this one, in a finaliser:
        no lock is taken. What it begins after this it ends (`_begin`)."""
        self._closed = True
        self.end_all()

    def end_all(self) -> None:
        """What was noted stands no more."""
        for known in self._memos:
            if known is not None:
                known.end()


def _marked(tensors: Sequence[NodeTensor], inputs: int, newest: int) -> list[Marked | None] | None:
    """The marks of all tensors' memory, None for empty ones; None when a run with them is not to be noted."""
    space = memory.space()
    marked: list[Marked | None] = []
    for number in reversed(range(len(tensors))):  # results are new more often than inputs
        it = tensors[number]
        if len(it.dims) > lib.MOST_AXES or (it.nbytes and not it.address):  # in a temporary place
            return None
        if not it.nbytes:
            marked.append(None)
            continue
        mark = space.marked(it.address, it.nbytes)
        if (mark.number > newest and not mark.stays) or mark.at is None or mark.at.place != it.place:
            return None
        if it.value is not None and (mark.mirror is None or mark.mirror[: it.nbytes] != it.value):
            return None
        if number >= inputs and mark.mirrored:
            return None
        marked.append(mark)
    return marked[::-1]


def begin_run(graph: int) -> None:
    """A run begins on this thread, in a session that captures, of what has been captured as this number."""
    lib.begin_run(graph)
