"""Attention and what belongs to it, from the parts to the operators.

`rotary` turns queries and keys by their positions.
`core` is the attention that all operators are, `cache` where keys and values of tokens before lie.
`standard` has Attention as ONNX defines it, `group_query` the one of decoders.
"""

from __future__ import annotations

from . import group_query, rotary, standard

__all__ = ["group_query", "rotary", "standard"]
