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
from collections import deque
from collections.abc import Callable, Sequence
from itertools import compress, count
from operator import ne
from typing import TYPE_CHECKING, Any, NoReturn

from .._ort import ffi, lib
from ..device import depend
from ..runtime.runs.key import Places
from . import without_python
from .abi import address
from .memory import space as memory

if TYPE_CHECKING:
    from ..device import Place, Submission, Work
    from ..runtime.executable import Run
    from ..runtime.plan import Plan
    from .known import FusedNode
    from .tensors import Tensors

MOST_PASSED_OVER = 1024


Shapes = Sequence[tuple[int, ...]]
MemoKey = tuple[
    int, tuple[int, ...], Shapes
]  # what a run is captured as; addresses and shapes of the group's tensors, inputs first


class Memo:
    """One of a node's memos, and what C code reads while it lives: `rows` of the node's tensors, and the `work`, which is None at
    its end. It keeps no memory of tensors, which lie at `places`.

    `valued`: the value of some input sets shapes. `expected`: of a run that had not been; `expects`: of one that others will
    follow, with other sizes; `extended`: the memo of such a one was made of it."""

    __slots__ = (
        *("__weakref__", "_memos", "_words", "expected", "expects", "key", "places", "rows", "valued", "extended"),
        "work",
    )

    def __init__(
        self, memos: Memos, words: Any, key: MemoKey, rows: Any, places: Places, valued: bool, work: Work
    ) -> None:
        self.key, self._memos, self._words = key, memos, words
        self.rows, self.places, self.valued = rows, places, valued
        self.work: Work | None = work
        self.expected = self.expects = self.extended = False

    @property
    def hits(self) -> int:
        return int(self._words.hits)

    def begin(self) -> None:
        """From here on C code uses it."""
        lib.memo_begin(self._words)

    def end(self) -> bool:
        """Nobody begins to use it any more. Whether nobody does, and so what it kept has gone."""
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
        if self.places.held() is None:
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
        self._node, self._signature = node, signature
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
        self, run: Run, submission: Submission, tensors: Tensors, outputs: Sequence[Place | None], graph: int = 0
    ) -> None:
        """Python has done a run that was nothing but this submission; `run` is still open, and `graph` is what the session captures
        it as.

        Noted are runs whose tensors were there before, or stay where they are when they are freed: other memory that was allocated
        for this run will not come again.
        """
        thread, known = self._thread, tensors.known
        newest, thread.newest = thread.newest, memory.space().allocations_made
        if not (self._expects() if run.goes_on else self._comes_again(run)):
            return
        if known.repeatable and known.newest <= newest:
            with self._lock:
                self._keep(run, submission, tensors, Places(run.places(outputs)), graph)

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

    def _keep(self, run: Run, submission: Submission, tensors: Tensors, places: Places, graph: int) -> None:
        plan = run.plan
        key = graph, tuple(tensors.addresses), [*map(plan.shapes.__getitem__, plan.program.inputs), *plan.output_shapes]
        number = self._free_place(key)
        if number is not None:
            rows, valued = tensors.known.rows(self._signature), tensors.valued
            self._begin(number, key, rows, places, valued, run.work(submission), plan).expects = run.goes_on

    def _begin(
        self, number: int, key: MemoKey, rows: Any, places: Places, valued: bool, work: Work, plan: Plan
    ) -> Memo:
        """Lets C code repeat a run, from here on."""
        words = ffi.addressof(self._node, "memos", number)
        words.tensors = rows
        words.run = ffi.cast("int (*)(void *)", work.function)
        words.work = ffi.cast("void *", work.number)
        words.hits, words.graph = 0, key[0]
        words.last = self._node.hits
        made = Memo(self, words, key, rows, places, valued, work)
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
            found = next((it for it in known if it.work is not None and it.places.at == places.at), None)
            if found is None or found.valued:
                return None
            found.places = places  # the same, which is compared faster the next time
            own = [*shapes, *plan.output_shapes]
            rows = self._grown(found, plan, own)
            made = None if rows is None else work()
            if made is None:
                return None
            found.extended = True
            self._end_expected()
            key = last.key[0], found.key[1], own
            number = self._free_place(key)
            if number is None:
                return None
            memo = self._begin(number, key, rows, places, False, made, plan)
            memo.expected = True
            self._expected.append(memo)
            return made

    def _grown(self, found: Memo, plan: Plan, own: Shapes) -> Any:
        """What C code reads of tensors with these shapes; None where they would not lie as they do."""
        (_, addresses, shapes), program = found.key, plan.program
        values = (*program.inputs, *program.outputs)
        rows = ffi.new("Tensor[]", len(found.rows))
        ffi.memmove(rows, found.rows, ffi.sizeof(rows))
        for k in compress(count(), map(ne, own, shapes)):
            nbytes, row = plan.nbytes[values[k]], rows[self._numbers[k]]
            there = memory.space().known_place(addresses[k], nbytes) if nbytes else None
            at = None if there is None else (there.buffer.number, there.offset)
            if at is None or at != found.places.at[k] or len(own[k]) != row.rank:
                return None
            row.dims[0 : row.rank] = own[k]
        return rows

    def _end_expected(self) -> None:
        """Of runs that were expected two are known, the last one and the one to come."""
        while len(self._expected) > 1:
            old = self._expected.popleft()
            if old.work is not None:
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


def begin_run(graph: int) -> None:
    """A run begins on this thread, in a session that captures, of what has been captured as this number."""
    lib.begin_run(graph)
