"""Attention and what belongs to it, from the parts to the operators.

`rotary` turns queries and keys by their positions.
`core` is the attention that all operators are, `masks` what a query does not see, `cache` where the keys and values of tokens
before lie, `quantised_cache` how in fewer bits.
`standard` has Attention as ONNX defines it, `group_query` that of decoders, `multi_head` MultiHeadAttention and its form for
one token, `projected` those that hold the projections or take sequences without padding, `paged` that of caches in pages.
"""

from __future__ import annotations

from . import group_query, multi_head, paged, projected, rotary, standard

__all__ = ["group_query", "multi_head", "paged", "projected", "rotary", "standard"]
