"""Attention operators, and their parts.

Parts:

* `rotary` rotates queries and keys by their positions.
* `core` is the attention that all operators share.
* `masks` hides keys from queries.
* `cache` stores keys and values of earlier tokens, and `quantised_cache` stores them in fewer bits.

Operators:

* `standard` is ONNX's Attention.
* `group_query` is GroupQueryAttention, for decoders.
* `multi_head` is MultiHeadAttention and its variant for one token.
* `projected` has the operators that include the projections, or take sequences without padding.
* `paged` is PagedAttention, for caches in pages.
"""

from __future__ import annotations

from . import group_query, multi_head, paged, projected, rotary, standard

__all__ = ["group_query", "multi_head", "paged", "projected", "rotary", "standard"]
