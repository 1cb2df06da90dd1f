"""Dispatches that are submitted again and again without Python: a `Work` of csrc/submit.c.

In: a recording. Out: two numbers for C code, a function and what to call it with; the call encodes, submits and gives 1, or gives
0 when nothing was submitted, as on a lost device. Invariant: the object keeps alive what the numbers refer to; whoever lets go
of it has made sure that no thread is in such a call, and that none will be.
"""

from __future__ import annotations

from . import encoding
from .encoding import Recording
from .native import address
from .queue import Queue


class Work:
    """`recording` on the device of `queue`, at most `per_submission` dispatches at a time, 0 meaning all of them."""

    __slots__ = ("_queue", "_words", "function", "number", "recording")

    def __init__(self, queue: Queue, recording: Recording, per_submission: int = 0) -> None:
        assert encoding.native is not None and queue.shared is not None
        ffi = encoding.native.ffi
        self._queue, self.recording = queue, recording
        rows = ffi.from_buffer("uint64_t[]", recording.words)
        self._words = ffi.new("Work *", (queue.shared, rows, len(recording), per_submission)), rows
        self.number = address(self._words[0])
        self.function = address(ffi.addressof(encoding.native.lib, "run"))
