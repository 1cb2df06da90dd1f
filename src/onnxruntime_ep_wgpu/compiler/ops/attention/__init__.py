"""Attention and what belongs to it, from the parts to the operators.

`rotary` turns queries and keys by their positions.
`standard` has Attention as ONNX defines it.
"""

from __future__ import annotations

from . import rotary, standard

__all__ = ["rotary", "standard"]
