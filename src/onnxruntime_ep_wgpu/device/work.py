"""Dispatches that are submitted again and again without Python: a `Work` of csrc/submit.c.

In: a recording. Out: two numbers for C code, a function and what to call it with; the call encodes and submits, and gives what
came of it (csrc/outcomes.h). A thread that has to wait for the GPU prepares what comes next (`Queue.run_deferred`): the same
recorded in encoders, one for each part that is submitted. They say what this object does, which never changes, so they cannot be
out of date, and go with it.

In a series of runs whose sizes grow, the same dispatches read other numbers in each: C code writes these to their buffers before.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple, NoReturn

from .buffers import Buffer
from .encoding import Copy, Recording, copy_words
from .native import function_of, native
from .queue import Queue
from .turn import Turn
from .webgpu.header import address
from .webgpu.messages import forget_errors


class Submission(NamedTuple):
    """What a run submits: copies, dispatches, copies. Of a series of runs, `numbers` are what buffers hold in each, from their
    beginning on (runs, bytes)."""

    recording: Recording
    before: Sequence[Copy] = ()
    after: Sequence[Copy] = ()
    numbers: Sequence[tuple[Buffer, Any]] = ()


class Work:
    """A submission on the device of `queue`, at most `per_submission` dispatches at a time, 0 meaning as many as is best.
    `turn`: of its graph.

    Of buffers it keeps the memory and not the object, as bind groups do, so that their owner sees when nothing uses them.
    """

    __slots__ = (
        "__weakref__",
        "_ahead",
        "_lock",
        "_memory",
        "_queue",
        "_turn",
        "_words",
        "function",
        "number",
        "recording",
    )

    def __init__(self, queue: Queue, submission: Submission, per_submission: int = 0, turn: Turn | None = None) -> None:
        ffi = native.ffi
        recording, before, after, numbers = submission
        copies = (*before, *after)
        buffers = [it for source, _, destination, *_ in copies for it in (source, destination)]
        buffers += [buffer for buffer, _ in numbers]
        self._memory = [queue.owner.shared("Buffer", it.handle) for it in buffers]
        self._queue, self._turn, self.recording, self._lock = queue, turn, recording, threading.Lock()
        words = copy_words(copies)
        rows = ffi.from_buffer("uint64_t[]", recording.words)
        copied = ffi.from_buffer("uint64_t[]", words)
        parts = [(address(buffer.handle), ffi.from_buffer("char[]", it), it.shape[1]) for buffer, it in numbers]
        numbered = ffi.new("Numbers[]", parts or 1)
        turn_words = ffi.NULL if turn is None else turn.words
        given = (queue.shared, turn_words, rows, len(recording), per_submission, copied, len(before), len(after))
        self._words = ffi.new("Work *", (*given, numbered, len(parts))), rows, copied, numbered, parts
        self.number = address(self._words[0])
        self.function = function_of("run")
        self._ahead: list[Any] = []  # the last encoders in which it was recorded before it was wanted
        queue.works.set(self.number, self)

    def run(self, number: int = 0) -> bool:
        """Submits it, in parts, so that the GPU begins with the first ones; of a series the run with this number. Whether it did;
        if not, nothing has run. Raises as `raise_refusal`."""
        outcome = native.lib.run(self._words[0], number)
        if outcome == native.lib.BEGUN:
            self.raise_refusal()
        return bool(outcome == native.lib.DONE)

    def raise_refusal(self) -> NoReturn:
        """C code has submitted a part of it, and the library has refused a later one: raises DeviceError, DeviceLostError."""
        self._queue.was_refused(
            "the rest of a run that had begun",
            "; what the run writes is not to be used, and a tensor that it updates in place, as a KV cache, is to be set anew",
        )

    def record_ahead(self) -> None:
        """Records what the next run submits, unless that has been done, or is in many parts."""
        (words, *_), lib = self._words, native.lib
        count = lib.parts(words)
        if count > lib.MOST_AHEAD:
            return
        with self._lock:  # several threads may wait for the same runs
            if lib.is_behind(words):
                first = native.ffi.new("size_t *")
                own_address = self._queue.owner.own_address
                made = (own_address("CommandEncoder", lib.record_ahead, words, first) for _ in range(count))
                encoders = [*takewhile(bool, made)]
                if len(encoders) == count:
                    self._ahead = encoders
                    lib.set_ahead(words, [*map(address, encoders)], count)
                else:
                    forget_errors()  # the run itself says what is wrong with it
