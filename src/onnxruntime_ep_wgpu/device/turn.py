"""A lock against interleaved submissions.

Runs that keep their intermediate values in the same buffers must not be mixed. But C code submits a run in parts and allows other
work in between.

In: nothing. Out: a lock that C code holds while it submits one piece of work (csrc/submit.c). Invariant: Python code never holds
it.
"""

from __future__ import annotations

from typing import Any

from . import encoding


class Turn:
    """The lock of all work that uses the same buffers. `words` is the C struct."""

    __slots__ = ("words",)

    def __init__(self) -> None:
        native = encoding.native
        words = native.ffi.new("Turn *")
        native.lib.turn_begin(words)
        self.words: Any = native.ffi.gc(words, native.lib.turn_end)
