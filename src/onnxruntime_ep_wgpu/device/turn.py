"""Whose turn it is to submit: runs that keep their intermediate values in the same buffers do not mix, although C code submits a
run in parts and lets other work come between them.

In: nothing. Out: a lock that C code takes for as long as it submits one piece of work (csrc/submit.c). Invariant: Python code never
has it.
"""

from __future__ import annotations

from typing import Any

from . import encoding


class Turn:
    """One for all work that uses the same buffers. `words` are for C code."""

    __slots__ = ("words",)

    def __init__(self) -> None:
        native = encoding.native
        words = native.ffi.new("Turn *")
        native.lib.turn_begin(words)
        self.words: Any = native.ffi.gc(words, native.lib.turn_end)
