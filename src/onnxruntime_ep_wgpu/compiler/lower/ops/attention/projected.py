"""Attention of com.microsoft, which includes the projections to queries, keys and values, and its variants for packed
sequences, which are concatenated without padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from .....errors import UnsupportedError, cut
from .....program.dtypes import DType
from ....dims import Dim, equal, floordiv, less_equal
from ...builder import Builder, Operand
from ..attend import VisibleKeys
from ..choices import Flag
from ..gemm import matmul
from ..index import INDICES, Allowed, index32
from ..registry import FLOATS, MICROSOFT, op
from .cache import appended
from .core import Direct, attend, heads_of, merged, scale_of
from .masks import Past, biased, hidden
from .multi_head import FILTER, attended, attended_to


@op(
    "Attention",
    "DecoderMaskedSelfAttention",
    domain=MICROSOFT,
    types=FLOATS,
    mask=INDICES,
    past_length=INDICES,
    beam_width=INDICES,
    beams=INDICES,
    ranks={"x": 3, "weights": 2, "bias": 1, "past": 5, "beams": 3},
)
def projected_attention(
    b: Builder,
    x: Operand,
    weights: Operand,
    bias: Operand | None = None,
    mask: Operand | None = None,
    past: Operand | None = None,
    attention_bias: Operand | None = None,
    past_length: Operand | None = None,
    beam_width: Operand | None = None,
    beams: Operand | None = None,
    *,
    num_heads: int,
    do_rotary: Flag = 0,
    mask_filter_value: float = FILTER,
    past_present_share_buffer: Flag = 0,
    qkv_hidden_sizes: Sequence[int] = (),
    rotary_embedding_dim: int = 0,
    scale: float = 0.0,
    unidirectional: Flag = 0,
    outputs: int = 1,
) -> list[Operand]:
    """Takes x (batch, steps, inputs), weights (inputs, all of queries, keys and values), and a past (2, batch, heads, rows,
    size).

    Results: output, and the present: keys and values of the past, followed by the new ones.
    """
    if do_rotary:
        raise UnsupportedError("do_rotary is not supported: use RotaryEmbedding before the attention")
    q, k, v = (heads_of(b, part, num_heads) for part in _projections(b, x, weights, bias, qkv_hidden_sizes))
    options: _Options = {"filter_value": mask_filter_value, "scale": scale, "causal": bool(unidirectional)}
    if past is not None and past_present_share_buffer:
        if past_length is None:
            raise UnsupportedError("past_present_share_buffer needs the input past_sequence_length")
        if beams is not None:
            raise UnsupportedError(
                "past_present_share_buffer with cache_indirection is not supported: DecoderMaskedMultiHeadAttention supports both"
            )
        return _in_one_buffer(b, q, k, v, past, past_length, mask, attention_bias, options)[:outputs]
    past_key, past_value = (None, None) if past is None else (_half(b, past, 0), _half(b, past, 1))
    y, keys, values = attended(
        b,
        q,
        k,
        v,
        past_key=past_key,
        past_value=past_value,
        beams=beams,
        mask=mask,
        bias=attention_bias,
        outputs=3,
        **options,
    )
    if outputs == 1:
        return [y]
    both = [b.reshape(it, (1, *it.shape)) for it in (keys, values)]
    return [y, b.join(both, 0, (2, *keys.shape))]


class _Options(TypedDict):
    filter_value: float
    scale: float
    causal: bool


def _in_one_buffer(
    b: Builder,
    q: Operand,
    k: Operand,
    v: Operand,
    past: Operand,
    past_length: Operand,
    mask: Operand | None,
    bias: Operand | None,
    options: _Options,
) -> list[Operand]:
    """Returns the output and the present, for a past (2, batch, heads, rows, size) with free rows for the new ones."""
    batch, heads, steps, size = k.shape
    used = b.expand(b.reshape(index32(b, past_length), (1,)), (batch,))
    both = b.join([b.reshape(it, (1, *it.shape)) for it in (k, v)], 0, (2, batch, heads, steps, size))
    present = appended(b, past, both, b.expand(b.reshape(used, (1, batch)), (2, batch)), past.shape[3])
    keys, values = (_half(b, present, at) for at in (0, 1))
    y, _ = attended_to(b, q, keys, values, Past(used=used, steps=steps), mask, bias, **options)
    return [y, present]


@op(
    "PackedAttention",
    domain=MICROSOFT,
    types=FLOATS,
    offsets=INDICES,
    ends=INDICES,
    ranks={"x": 2, "weights": 2, "bias": 1},
)
def packed_attention(
    b: Builder,
    x: Operand,
    weights: Operand,
    bias: Operand | None,
    offsets: Operand,
    ends: Operand,
    attention_bias: Operand | None = None,
    *,
    num_heads: int,
    qkv_hidden_sizes: Sequence[int] = (),
    scale: float = 0.0,
) -> Operand:
    """Takes x (tokens, inputs) of all sequences. `offsets` (batch, steps) are positions in the padded batch, those of the
    tokens first. `ends` (batch + 1) are the numbers of tokens before each sequence."""
    parts = _projections(b, x, weights, bias, qkv_hidden_sizes)
    return _unpadded(b, parts, offsets, ends, attention_bias, num_heads, scale)


@op(
    "PackedMultiHeadAttention",
    domain=MICROSOFT,
    types=FLOATS,
    offsets=INDICES,
    ends=INDICES,
    ranks={"query": (2, 4), "key": 2, "value": 2, "bias": 1},
)
def packed_multi_head_attention(
    b: Builder,
    query: Operand,
    key: Operand | None,
    value: Operand | None,
    bias: Operand | None,
    offsets: Operand,
    ends: Operand,
    attention_bias: Operand | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = FILTER,
    scale: float = 0.0,
) -> Operand:
    """Takes queries, keys and values (tokens, heads * size) of all sequences, or (tokens, heads, 3, size) together."""
    if query.rank == 4:
        tokens, heads, _, size = query.shape
        slices = [b.slice(query, 2, k, 1, 1) for k in range(3)]
        parts = [b.reshape(it, (tokens, heads * size)) for it in slices]
    elif key is not None and value is not None:
        parts = [query, key, value]
    else:
        raise UnsupportedError("queries that are not packed need keys and values")
    if bias is not None:
        start: Dim = 0
        for k, part in enumerate(parts):
            own = b.slice(bias, 0, start, 1, part.shape[1])
            start = start + part.shape[1]
            parts[k] = b.pointwise("x + y", {"x": part, "y": own}, part.dtype, part.shape)
    return _unpadded(b, parts, offsets, ends, attention_bias, num_heads, scale)


def _projections(b: Builder, x: Operand, weights: Operand, bias: Operand | None, sizes: Sequence[int]) -> list[Operand]:
    """Returns queries, keys and values (..., heads * size)."""
    whole = matmul(b, x, weights)
    if bias is not None:
        whole = b.pointwise("x + y", {"x": whole, "y": bias}, x.dtype, whole.shape)
    third = floordiv(weights.shape[1], 3)
    widths: Sequence[Dim] = tuple(sizes) or (third,) * 3
    if sizes and (len(sizes) != 3 or min(sizes) < 1):
        raise UnsupportedError(f"attribute qkv_hidden_sizes={cut(sizes)} is not three positive numbers")
    b.require(equal(sum(widths), weights.shape[1]), "weights {} for widths of {}", weights, widths)
    out, start = [], 0 * third
    for width in widths:
        out.append(b.slice(whole, whole.rank - 1, start, 1, width))
        start = start + width
    return out


def _half(b: Builder, past: Operand, which: int) -> Operand:
    return b.reshape(b.slice(past, 0, which, 1, 1), past.shape[1:])


def _unpadded(
    b: Builder,
    parts: Sequence[Operand],
    offsets: Operand,
    ends: Operand,
    bias: Operand | None,
    num_heads: int,
    scale: float,
) -> Operand:
    """Computes attention within each sequence, from tokens (tokens, heads * size) to results of the same shape. Results are
    zeros where `offsets` or `ends` are outside the tensors."""
    if offsets.rank != 2:
        raise UnsupportedError(f"offsets {offsets} of tokens must have the shape (batch, steps)")
    batch, steps = offsets.shape
    tokens = parts[0].shape[0]
    b.require(equal(ends.size, batch + 1), "{} ends of sequences for a batch of {}", ends.size, batch)
    b.require(
        less_equal(tokens, batch * steps), "{} tokens in a batch of {} sequences of {} steps", tokens, batch, steps
    )
    for x in parts[1:]:
        b.require(equal(x.shape[0], tokens), "{} tokens of queries, {} of keys or values", tokens, x.shape[0])
    counts = b.reshape(index32(b, ends, Allowed(0, tokens, "the tokens of all sequences")), (batch + 1,))
    lengths = b.pointwise(
        "y - x", {"x": b.slice(counts, 0, 0, 1, batch), "y": b.slice(counts, 0, 1, 1, batch)}, DType.INT32
    )

    def spread(x: Operand) -> Operand:
        rows = b.map(
            "let token = u32(max(begins_at(batch), 0)) + step; "
            "if (i32(step) >= lengths_at(batch) || token >= $tokens) { return $out_t(); } return x_at(token, d);",
            x.dtype,
            (batch, steps, x.shape[1]),
            ("batch", "step", "d"),
            (1, 1, 1),
            {"x": (x, (1, 1)), "lengths": (lengths, (1,)), "begins": (b.slice(counts, 0, 0, 1, batch), (1,))},
            parameters={"tokens": tokens},
        )
        return heads_of(b, rows, num_heads)

    q, k, v = map(spread, parts)

    def change(scores: Operand) -> Operand:
        return biased(b, scores, bias, Past())  # the bias is as long as the padded batch

    def hide(scores: Operand) -> Operand:
        return hidden(b, change(scores), Past(used=lengths), causal=False)

    direct = Direct(v, VisibleKeys(ends=lengths), change)
    found = attend(b, q, k, v, scale=scale_of(b, q.shape[3], scale), hide=hide, direct=direct)
    y = merged(b, found.y)
    places = index32(b, offsets, Allowed(0, batch * steps - 1, "the places of the padded batch"))
    flat = b.reshape(places, (batch * steps,))
    return b.map(
        "let place = u32(max(places_at(token), 0)); if (place >= $places) { return $out_t(); } "
        "return y_at(place / $steps, place % $steps, d);",
        y.dtype,
        (tokens, y.shape[2]),
        ("token", "d"),
        (1, 1),
        {"y": (y, (1, 1, 1)), "places": (flat, (1,))},
        parameters={"steps": steps, "places": batch * steps},
    )
