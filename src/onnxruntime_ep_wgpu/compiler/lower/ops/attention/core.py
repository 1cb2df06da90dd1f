"""The attention that all attention operators share: scores of queries and keys, scaled, capped and masked; softmax; weighted
values.

It is one kernel if `ops/attend.py` supports the case and the scores are not a result. Otherwise it is expanded: heads, groups
of heads and transposes are views, and scores stay in f32 until they become weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from .....errors import UnsupportedError
from .....program.dtypes import DType
from .....records import dataclass
from ....dims import Dim, floordiv, quotient
from ...builder import Builder, Operand
from ..attend import Change, VisibleKeys, flash_attention
from ..matmul import matrix_product
from ..softmax import softmax_rows

Hide = Callable[[Operand], Operand]
"""Maps scores (batch, heads, queries, keys) to the same with minus infinity where a query may not see a key."""


@dataclass(frozen=True)
class Direct:
    """The equivalent of `hide` for an attention kernel: the visible keys, and other changes of scores. `value` may have
    any content in rows that no query sees."""

    value: Operand
    visible: VisibleKeys
    change: Change | None = None


@dataclass(frozen=True)
class Attended:
    """The result of attention: `y` (batch, heads, queries, size of a value), and the f32 scores before and after each step.
    The scores are None if one kernel computed y."""

    y: Operand
    scores: Operand | None = None
    capped: Operand | None = None
    hidden: Operand | None = None
    weights: Operand | None = None


def heads_of(b: Builder, x: Operand, count: Dim) -> Operand:
    """Returns x, (batch, sequence, heads * size) or with separate heads, as (batch, heads, sequence, size)."""
    if x.rank == 4:
        return x
    if x.rank != 3:
        raise UnsupportedError(f"{x} does not have three or four axes")
    if count == 0:
        raise UnsupportedError("inputs with three axes need the numbers of heads")
    return b.permute(b.reshape(x, (*x.shape[:2], count, floordiv(x.shape[2], count))), (0, 2, 1, 3))


def merged(b: Builder, y: Operand) -> Operand:
    """Returns (batch, heads, sequence, size) as (batch, sequence, heads * size)."""
    batch, heads, steps, size = y.shape
    return b.reshape(b.permute(y, (0, 2, 1, 3)), (batch, steps, heads * size))


def scale_of(b: Builder, size: Dim, scale: float) -> float | Operand:
    """Returns the scale of scores for heads of `size` elements. `scale` 0 stands for the default. The result is a scalar
    operand if a run decides the size."""
    if scale:
        return scale
    if isinstance(size, int):
        return 1.0 / math.sqrt(max(1, size))  # without elements all scores are 0
    known = b.reshape(b.host(DType.INT32, [size]), ())
    return b.pointwise("quotient(1, sqrt(max(f32(n), 1)))", {"n": known}, DType.FLOAT32, ())


def _with_heads(b: Builder, query: Operand, key: Operand, value: Operand) -> tuple[Operand, Operand, Operand]:
    """Makes the head counts known if it is unknown whether one divides the other. A free count is assumed to equal the other
    one."""
    heads, groups = query.shape[1], key.shape[1]
    if quotient(heads, groups) is not None:
        return query, key, value
    usual = next((it for it in (heads, groups) if isinstance(it, int)), 8)
    if not isinstance(heads, int):
        query = b.assumed(query, (query.shape[0], b.assume(heads, usual, "the number of heads"), *query.shape[2:]))
    if not isinstance(groups, int):
        groups = b.assume(groups, usual, "the number of heads of keys")
        key, value = (b.assumed(it, (it.shape[0], groups, *it.shape[2:])) for it in (key, value))
    return query, key, value


def attend(
    b: Builder,
    query: Operand,
    key: Operand,
    value: Operand,
    *,
    scale: float | Operand,
    softcap: float = 0.0,
    hide: Hide | None = None,
    sink: Operand | None = None,
    direct: Direct | None = None,
) -> Attended:
    """Computes attention of queries (batch, heads, queries, size) to keys and values (batch, groups, keys, size). Each group
    of keys serves heads / groups query heads. A query that sees no key gets zeros.

    `sink` (heads or 1) is an additional score per query, of a key without a value. With `direct`, which is equivalent to
    `hide`, the caller does not use the scores.
    """
    if sink is not None and sink.rank != 1:
        raise UnsupportedError(f"a sink {sink} must be one score per head, of shape (heads or 1)")
    query, key, value = _with_heads(b, query, key, value)
    if direct is not None and isinstance(scale, float):
        direct = replace(
            direct, value=b.assumed(direct.value, (direct.value.shape[0], key.shape[1], *direct.value.shape[2:]))
        )
        y = flash_attention(
            b,
            query,
            key,
            direct.value,
            scale=scale,
            softcap=softcap,
            visible=direct.visible,
            change=direct.change,
            sink=sink,
        )
        if isinstance(y, Operand):
            return Attended(y)
    batch, heads, queries, size = query.shape
    total = key.shape[2]
    shared = floordiv(heads, key.shape[1])
    if quotient(heads, key.shape[1]) is None:
        raise UnsupportedError(f"{heads} query heads are not a multiple of {key.shape[1]} key heads")
    grouped = (batch, key.shape[1], shared)

    def spread(x: Operand) -> Operand:
        """Broadcasts keys or values to the query heads that share them."""
        return b.expand(b.reshape(x, (*x.shape[:2], 1, *x.shape[2:])), (*grouped, *x.shape[2:]))

    groups = (3, 1, 1)
    product = matrix_product(
        b,
        b.reshape(query, (*grouped, queries, size)),
        groups,
        b.permute(spread(key), (0, 1, 2, 4, 3)),
        groups,
        (*grouped, queries, total),
        groups,
        DType.FLOAT32,
    )
    product = b.reshape(product, (batch, heads, queries, total))
    if isinstance(scale, Operand):
        scores = b.pointwise("x * f", {"x": product, "f": scale}, DType.FLOAT32)
    else:
        scores = b.pointwise("x * f", {"x": product}, DType.FLOAT32, f=scale)
    capped = scores
    if softcap:
        capped = b.pointwise("c * tanh(x / c)", {"x": scores}, DType.FLOAT32, cost=12, c=softcap)
    hidden = hide(capped) if hide is not None else capped
    each = None if sink is None else b.expand(b.reshape(sink, (1, sink.shape[0], 1)), (batch, heads, queries))
    weights = softmax_rows(b, hidden, 1, masked=hide is not None, sink=each)
    result = matrix_product(
        b,
        b.reshape(weights, (*grouped, queries, total)),
        groups,
        spread(value),
        groups,
        (*grouped, queries, value.shape[3]),
        groups,
        query.dtype,
    )
    return Attended(b.reshape(result, (batch, heads, queries, value.shape[3])), scores, capped, hidden, weights)
