"""What generated text stands for."""

from __future__ import annotations

from ...records import dataclass


@dataclass(frozen=True)
class TypedValue:
    """A WGSL expression and its compute type (`f32`, `i32`, `u32`, `i64`, `u64` or `bool`).

    With `width` 4 it is a vec4 of four consecutive elements; at a place of four, one of width 1 is the same for all of them.
    `number` is the value of a literal.
    """

    text: str
    kind: str
    width: int = 1
    number: float | int | bool | None = None
