"""Dispatches that C code submits repeatedly, without Python: a `Work` of csrc/submit.c.

In: a recording. Out: the addresses of a C function and of its argument. A call encodes and submits, and returns an outcome
(csrc/outcomes.h).

Before a thread waits for the GPU, it records the commands of the next run in encoders, one per submitted part
(`Queue.run_deferred`). They depend only on this object, which never changes. So they cannot be outdated, and they are released
with it.

In a series of runs with growing sizes, the same dispatches read different numbers in each run. C code writes these to their
buffers before the dispatches.
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
    """The work of a run: copies, dispatches, copies.

    `numbers`: for a series of runs, the contents of buffers in each run, an array (runs, bytes).
    """

    recording: Recording
    before: Sequence[Copy] = ()
    after: Sequence[Copy] = ()
    numbers: Sequence[tuple[Buffer, Any]] = ()


class Work:
    """A submission on the device of `queue`, in parts of at most `per_submission` dispatches; 0 means the best number.

    `turn`: that of the graph. Like a bind group, a work keeps the memory of its buffers, but not the `Buffer` objects. So the
    owner of a buffer can detect that it is unused.
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
        self._ahead: list[Any] = []  # the encoders of the last recording in advance
        queue.works.set(self.number, self)

    def run(self, number: int = 0) -> bool:
        """Submits the work in parts, so that the GPU starts with the first ones. `number`: that of the run in a series.

        Returns whether it was submitted; if not, nothing has run. Raises the errors of `raise_refusal`.
        """
        outcome = native.lib.run(self._words[0], number)
        if outcome == native.lib.BEGUN:
            self.raise_refusal()
        return bool(outcome == native.lib.DONE)

    def raise_refusal(self) -> NoReturn:
        """Call this if C code has submitted a part and the library refused a later one. Raises DeviceError, DeviceLostError."""
        self._queue.raise_refusal(
            "the rest of a run that had begun",
            "; do not use what the run writes, and set tensors anew that it updates in place, such as a KV cache",
        )

    def record_ahead(self) -> None:
        """Records the commands of the next run, unless they are recorded or have too many parts."""
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
                    forget_errors()  # the run reports its own errors
