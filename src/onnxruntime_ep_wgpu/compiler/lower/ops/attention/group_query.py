"""GroupQueryAttention, the attention of most exported decoders. Queries and keys are normalised and rotated, keys and values
are appended to a cache, and each query sees the cache up to its own position.

The length of each sequence is `seqlens_k`, which only the device reads.
"""

from __future__ import annotations

import numpy as np

from .....errors import UnsupportedError
from .....program.dtypes import DType
from ....dims import Dim, floordiv, less_equal, maximum
from ...builder import Builder, Operand
from ..choices import Flag
from ..index import INDICES, Allowed, index32
from ..normalise import rms_normalization
from ..registry import FLOATS, MICROSOFT, op
from .cache import appended, appended_with_query, started
from .core import Direct, attend, merged, scale_of
from .masks import Past, biased, hidden, present
from .quantised_cache import HELD, QuantisedBy, quantised
from .rotary import STEPS_FIRST, AngleRows, per_step, rotated, second_part


@op(
    "GroupQueryAttention",
    domain=MICROSOFT,
    types=FLOATS,
    seqlens=INDICES,
    total_length=INDICES,
    positions=INDICES,
    past_key=FLOATS | frozenset(HELD),
    past_value=FLOATS | frozenset(HELD),
    ranks={
        "query": 3,
        "key": 3,
        "value": 3,
        "past_key": 4,
        "past_value": 4,
        "cosines": 2,
        "sines": 2,
        "positions": 2,
    },
)
def group_query_attention(
    b: Builder,
    query: Operand,
    key: Operand | None,
    value: Operand | None,
    past_key: Operand | None,
    past_value: Operand | None,
    seqlens: Operand,
    total_length: Operand,
    cosines: Operand | None = None,
    sines: Operand | None = None,
    positions: Operand | None = None,
    bias: Operand | None = None,
    sink: Operand | None = None,
    key_scale: Operand | None = None,
    value_scale: Operand | None = None,
    query_gain: Operand | None = None,
    key_gain: Operand | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    causal: Flag = 1,
    do_rotary: Flag = 0,
    k_quant_type: QuantisedBy = "NONE",
    kv_cache_bit_width: int = 0,
    local_window_size: int = -1,
    qk_norm_epsilon: float = 1e-6,
    qk_output: int = 0,
    rotary_interleaved: Flag = 0,
    scale: float = 0.0,
    sliding_window_cache: Flag = 0,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
    v_quant_type: QuantisedBy = "NONE",
    outputs: int = 1,
) -> list[Operand]:
    """Takes queries (batch, steps, heads * size), or queries, keys and values concatenated; caches (batch, groups, rows,
    size).

    A sequence uses `seqlens` + 1 rows, including the new ones, which are the last, unless the sequence has fewer rows than
    there are steps. Results: output, present keys and values, and the scores or weights that `qk_output` selects.
    """
    in_cache = (
        quantised(kv_cache_bit_width, k_quant_type, key_scale, past_key),
        quantised(kv_cache_bit_width, v_quant_type, value_scale, past_value),
    )
    if sliding_window_cache:
        raise UnsupportedError("sliding_window_cache, a cache as long as its window, is not supported")
    q, k, v = _projections(b, query, key, value, num_heads, kv_num_heads)
    steps, size = q.shape[1], q.shape[3]
    rows, total = _rows(b, total_length, past_key, steps)
    used = _used(b, seqlens, steps, rows)
    if query_gain is not None and key_gain is not None:
        q = rms_normalization(b, q, query_gain, epsilon=qk_norm_epsilon)
        k = rms_normalization(b, k, key_gain, epsilon=qk_norm_epsilon)
    if do_rotary:
        if cosines is None or sines is None:
            raise UnsupportedError("do_rotary needs cos_cache and sin_cache")
        # With a cache, one kernel rotates queries as it stores them, and keys as it appends them to the cache.
        cached = past_key is not None
        part = second_part(b, b.reshape(index32(b, seqlens), (seqlens.size,))) if b.settings.rotary_switch else None
        q, k = (
            _rotated(b, x, cosines, sines, positions, (used, part), bool(rotary_interleaved), inline=cached or x is k)
            for x in (q, k)
        )
    q, k, v = (b.permute(x, (0, 2, 1, 3)) for x in (q, k, v))
    new_k, new_v = (it.stored(b, x) if it else x for it, x in zip(in_cache, (k, v), strict=True))
    if past_key is None or past_value is None:
        keys, values = started(b, k, rows), started(b, v, rows)
    elif do_rotary:
        q, keys, values = appended_with_query(b, q, (new_k, past_key), (new_v, past_value), used, rows)
    else:
        keys, values = appended(b, past_key, new_k, used, rows), appended(b, past_value, new_v, used, rows)
    known_k, known_v = (it.read(b, x, query.dtype) if it else x for it, x in zip(in_cache, (keys, values), strict=True))
    if smooth_softmax == 1 and sink is None:  # ONNX Runtime fills in -1 where a model has no value
        sink = b.constant(np.zeros(1, np.float32))
    past = Past(used=used, steps=steps, total=total)

    def change(scores: Operand) -> Operand:
        return biased(b, scores, bias, past)

    def hide(scores: Operand) -> Operand:
        return hidden(b, change(scores), past, causal=bool(causal), window=local_window_size)

    visible = past.visible(causal=bool(causal), window=local_window_size) if outputs <= 3 else None
    found = attend(
        b,
        q,
        known_k,
        present(b, known_v, past),
        scale=scale_of(b, size, scale),
        softcap=softcap,
        hide=hide,
        sink=sink,
        direct=Direct(known_v, visible, change if bias is not None else None) if visible else None,
    )
    results = [merged(b, found.y), keys, values]
    if outputs > 3:
        stage = {1: found.hidden, 2: found.weights}.get(qk_output)
        if stage is None:
            raise UnsupportedError(f"an output of scores with qk_output={qk_output} is not supported")
        results.append(b.pointwise("x", {"x": stage}, query.dtype))
    return results[:outputs]


def _projections(
    b: Builder, query: Operand, key: Operand | None, value: Operand | None, heads: int, groups: int
) -> list[Operand]:
    """Returns queries, keys and values, each as (batch, steps, heads, size)."""
    if key is not None and value is not None:
        parts = [query, key, value]
        counts = [heads, groups, groups]
    else:
        counts = [heads, groups, groups]
        size = floordiv(query.shape[2], heads + 2 * groups)
        parts, start = [], 0
        for count in counts:
            parts.append(b.slice(query, 2, start * size, 1, count * size))
            start += count
    return [b.reshape(x, (*x.shape[:2], n, floordiv(x.shape[2], n))) for x, n in zip(parts, counts, strict=True)]


def _used(b: Builder, seqlens: Operand, steps: Dim, rows: Dim) -> Operand:
    """Returns the used rows of each sequence's cache of `rows` rows before this run, (batch), i32. A length is clamped to the
    cache."""
    seqlens = b.reshape(seqlens, (seqlens.size,))
    known = index32(b, seqlens, Allowed(-1, rows - 1, "the rows of the caches"))
    return b.pointwise(
        "max(min(n + 1, rows) - steps, 0)", {"n": known}, DType.INT32, cost=4, parameters={"steps": steps, "rows": rows}
    )


def _rows(b: Builder, total_length: Operand, past: Operand | None, steps: Dim) -> tuple[Dim, Dim]:
    """Returns the rows of the present cache, and the number of rows that the longest sequence uses after this run. If that
    length is known on the device alone, it is 0, and the sequence must fit into the past cache."""
    total_length.check_one("the total sequence length")
    if total_length.has_host:
        (total,) = total_length.dims("the total sequence length")
        b.require(
            less_equal(steps, total),
            "the total sequence length {} is less than the {} new steps",
            total,
            steps,
        )
        return total if past is None else maximum(total, past.shape[2]), total
    return steps if past is None else past.shape[2], 0


def _rotated(
    b: Builder,
    x: Operand,
    cosines: Operand,
    sines: Operand,
    positions: Operand | None,
    begin: tuple[Operand, Operand | None],
    interleaved: bool,
    inline: bool,
) -> Operand:
    """Rotates x. `begin` has per sequence the used rows of the cache before this run, and the start of its part of the
    cosines."""
    used, part = begin
    each = None if positions is None else per_step(b, positions, cosines)
    rows = AngleRows(each, used if each is None else None, part)
    size = 2 * cosines.shape[1]
    return rotated(b, x, STEPS_FIRST, cosines, sines, rows, size=size, interleaved=interleaved, inline=inline)
