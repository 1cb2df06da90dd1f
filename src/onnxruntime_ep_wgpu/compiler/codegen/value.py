"""What generated text stands for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Value:
    """A WGSL expression and its compute type (`f32`, `i32`, `u32`, `i64`, `u64` or `bool`)."""

    text: str
    kind: str
