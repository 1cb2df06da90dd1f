"""Typed values in generated text."""

from __future__ import annotations

from ...records import dataclass


@dataclass(frozen=True)
class TypedValue:
    """A WGSL expression and its kind (`f32`, `i32`, `u32`, `i64`, `u64` or `bool`).

    With `width` 4 it is a vec4 of four consecutive elements. At a position of four, a value of width 1 is the same for all of
    them. `number` is the value of a literal.
    """

    text: str
    kind: str
    width: int = 1
    number: float | int | bool | None = None
