"""MultiHeadAttention and its decoders of one token. The projections are inputs, to which biases are still to be added. There
are several kinds of masks. Caches are copied, or with `past_sequence_length` updated in place."""

from __future__ import annotations

from .....errors import UnsupportedError
from ....dims import Dim, floordiv
from ...builder import Builder, Operand
from ..choices import Flag
from ..index import INDICES, index32
from ..registry import FLOATS, MICROSOFT, Ranks, op
from .cache import appended, extended
from .core import Direct, attend, heads_of, merged, scale_of
from .masks import Past, biased, hidden, padded, present

FILTER = -10000.0


_CACHES: dict[str, Ranks] = {"past_key": 4, "past_value": 4, "beams": 3}
_RANKS: dict[str, Ranks] = {"key": (3, 4, 5), "value": (3, 4), "bias": 1, **_CACHES}


@op(
    "MultiHeadAttention",
    domain=MICROSOFT,
    types=FLOATS,
    mask=INDICES,
    past_length=INDICES,
    beams=INDICES,
    ranks={"query": (3, 5), **_RANKS},
)
def multi_head_attention(
    b: Builder,
    query: Operand,
    key: Operand | None = None,
    value: Operand | None = None,
    bias: Operand | None = None,
    mask: Operand | None = None,
    attention_bias: Operand | None = None,
    past_key: Operand | None = None,
    past_value: Operand | None = None,
    past_length: Operand | None = None,
    beams: Operand | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = FILTER,
    scale: float = 0.0,
    unidirectional: Flag = 0,
    outputs: int = 1,
) -> list[Operand]:
    """Takes queries (batch, steps, heads * size), or (batch, steps, heads, 3, size) with keys and values. Keys and values
    have the same form, or (batch, steps, heads, 2, size), or (batch, heads, steps, size) if another attention computed them.

    Results: output, present keys and values, and the scores before the softmax.
    """
    q, k, v = _with_bias(b, *_parts(b, query, key, value, num_heads), bias, fixed=key is not None and key.rank == 4)
    return attended(
        b, q, k, v, past_key=past_key, past_value=past_value, past_length=past_length, beams=beams, mask=mask,
        bias=attention_bias, filter_value=mask_filter_value, scale=scale, causal=bool(unidirectional), outputs=outputs,
    )  # fmt: skip


@op(
    "DecoderMaskedMultiHeadAttention",
    domain=MICROSOFT,
    types=FLOATS,
    mask=INDICES,
    past_length=INDICES,
    beam_width=INDICES,
    beams=INDICES,
    ranks={"query": 3, **_RANKS},
)
def decoder_multi_head_attention(
    b: Builder,
    query: Operand,
    key: Operand | None = None,
    value: Operand | None = None,
    mask: Operand | None = None,
    attention_bias: Operand | None = None,
    past_key: Operand | None = None,
    past_value: Operand | None = None,
    past_length: Operand | None = None,
    beam_width: Operand | None = None,
    beams: Operand | None = None,
    bias: Operand | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = FILTER,
    output_qk: Flag = 0,
    past_present_share_buffer: Flag = 0,
    scale: float = 0.0,
    outputs: int = 1,
) -> list[Operand]:
    """Attention of one token. Takes queries, keys and values (batch, 1, heads * size), or keys and values (batch, heads,
    steps, size) of an encoder.

    `beams` (sequences, width, rows) has for each row of the cache the beam of the sequence that produced it.
    """
    across = key is not None and key.rank == 4
    if key is None or value is None:
        size = floordiv(query.shape[2], 3)
        query, key, value = (b.slice(query, 2, n * size, 1, size) for n in range(3))
    parts = (heads_of(b, query, num_heads), heads_of(b, key, num_heads), heads_of(b, value, num_heads))
    q, k, v = _with_bias(b, *parts, bias, fixed=across)
    if past_key is not None and not past_present_share_buffer:
        past_length = None
    return attended(
        b, q, k, v, past_key=None if across else past_key, past_value=None if across else past_value, past_length=past_length,
        beams=beams, mask=mask, bias=attention_bias, filter_value=mask_filter_value, scale=scale,
        causal=False, outputs=outputs,
    )  # fmt: skip


def attended(
    b: Builder,
    q: Operand,
    k: Operand,
    v: Operand,
    *,
    past_key: Operand | None,
    past_value: Operand | None,
    past_length: Operand | None = None,
    beams: Operand | None,
    mask: Operand | None,
    bias: Operand | None,
    filter_value: float,
    scale: float,
    causal: bool,
    outputs: int,
) -> list[Operand]:
    """Returns the output (batch, steps, heads * size), keys and values including the past, and scores. The operands are
    (batch, heads, steps, size).

    With `past_length` the caches have free rows, and are updated from that row on.
    """
    past, keys, values = Past(), k, v
    if past_key is not None and past_value is not None:
        if past_length is None:
            past = Past(past_key.shape[2])
            keys, values = extended(b, past_key, k), extended(b, past_value, v)
        else:
            used = b.expand(b.reshape(index32(b, past_length), (1,)), q.shape[:1])
            past = Past(used=used, steps=k.shape[2])
            rows = past_key.shape[2]
            keys, values = appended(b, past_key, k, used, rows), appended(b, past_value, v, used, rows)
    found_keys, found_values = keys, values
    if beams is not None and past_key is not None:
        found_keys, found_values = (_reordered_by_beams(b, x, beams, past, k.shape[2]) for x in (keys, values))
    y, scores = attended_to(
        b, q, found_keys, found_values, past, mask, bias, filter_value=filter_value, scale=scale, causal=causal,
        scores=outputs > 3,
    )  # fmt: skip
    return [it for it in (y, keys, values, scores)[:outputs] if it is not None]


def attended_to(
    b: Builder,
    q: Operand,
    keys: Operand,
    values: Operand,
    past: Past,
    mask: Operand | None,
    bias: Operand | None,
    *,
    filter_value: float,
    scale: float,
    causal: bool,
    scores: bool = False,
) -> tuple[Operand, Operand | None]:
    """Returns the output (batch, steps, heads * size), and the scores if requested. Keys and values include the past."""

    def masked(x: Operand) -> Operand:
        return biased(b, padded(b, x, mask, filter_value, past), bias, past)

    def hide(x: Operand) -> Operand:
        return hidden(b, masked(x), past, causal=causal)

    visible = None if scores else past.visible(causal=causal)
    direct = Direct(values, visible, masked) if visible else None
    found = attend(b, q, keys, present(b, values, past), scale=scale_of(b, q.shape[3], scale), hide=hide, direct=direct)
    if not scores:
        return merged(b, found.y), None
    assert found.hidden is not None
    return merged(b, found.y), b.pointwise("x", {"x": found.hidden}, q.dtype)


def _parts(
    b: Builder, query: Operand, key: Operand | None, value: Operand | None, heads: int
) -> tuple[Operand, Operand, Operand]:
    """Returns queries, keys and values as (batch, heads, steps, size)."""

    def packed(x: Operand, at: int) -> Operand:
        one = b.slice(x, 3, at, 1, 1)
        batch, steps, count, _, size = one.shape
        return b.permute(b.reshape(one, (batch, steps, count, size)), (0, 2, 1, 3))

    if query.rank == 5:
        return packed(query, 0), packed(query, 1), packed(query, 2)
    q = heads_of(b, query, heads)
    if key is None:
        raise UnsupportedError("queries of three axes need keys")
    if key.rank == 5:
        return q, packed(key, 0), packed(key, 1)
    if value is None:
        raise UnsupportedError("keys that are not packed need values")
    return q, heads_of(b, key, heads), heads_of(b, value, heads)


def _with_bias(
    b: Builder, q: Operand, k: Operand, v: Operand, bias: Operand | None, *, fixed: bool
) -> tuple[Operand, Operand, Operand]:
    """Adds to each its part of `bias`. Keys and values that are `fixed` already include it."""
    if bias is None:
        return q, k, v
    start: Dim = 0
    out = []
    for x in (q, k, v):
        _, heads, _, size = x.shape
        part = b.reshape(b.slice(bias, 0, start, 1, heads * size), (1, heads, 1, size))
        start = start + heads * size
        out.append(x if fixed and x is not q else b.pointwise("x + y", {"x": x, "y": part}, x.dtype, x.shape))
    return out[0], out[1], out[2]


def _reordered_by_beams(b: Builder, x: Operand, beams: Operand, past: Past, steps: Dim) -> Operand:
    """Reorders the rows of a cache (sequences * width, heads, rows, size) by the beams that produced them. New rows belong to
    their own beam."""
    width = beams.shape[1]
    operands = {"x": (x, (1, 1, 1, 1)), "beams": (index32(b, beams), (1, 1, 1))}
    parameters: dict[str, Dim] = {"width": width, "known": beams.shape[2]}
    if past.used is None:
        parameters["past"] = x.shape[2] - steps
    else:
        operands["used"] = (past.used, (1,))
    return b.map(
        "beams",
        x.dtype,
        x.shape,
        ("batch", "head", "row", "d"),
        (1, 1, 1, 1),
        operands,
        parameters=parameters,
        cost=8,
        reuse=True,
    )
