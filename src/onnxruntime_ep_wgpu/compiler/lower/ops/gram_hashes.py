"""NGramHashMapping: rows of n-gram tables, as hashes of the last tokens at each position.

Each order of n-grams mixes one more token into the hash of the previous order. Numbers wrap as the token type does.
"""

from __future__ import annotations

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import equal
from ..builder import Builder, Operand
from .parts import concat
from .registry import MICROSOFT, op

TOKENS = frozenset({DType.INT32, DType.INT64})


@op(
    "NGramHashMapping",
    domain=MICROSOFT,
    types=TOKENS,
    segments=frozenset({DType.INT32}),
    ranks={"x": 2, "multipliers": 1, "rows": 1, "past": 2, "offsets": 1, "end": (0, 1), "segments": 2},
)
def n_gram_hash_mapping(
    b: Builder,
    x: Operand,
    multipliers: Operand,
    rows: Operand,
    past: Operand | None = None,
    offsets: Operand | None = None,
    end: Operand | None = None,
    segments: Operand | None = None,
    *,
    max_ngram_size: int,
    n_head_per_ngram: int,
    pad_id: int,
    reset_on_eos: int = 0,
    outputs: int = 1,
) -> list[Operand]:
    """Returns hashes (batch, sequence, (max_ngram_size - 1) * n_head_per_ngram) of tokens x (batch, sequence), by order and
    head. Also returns the last max_ngram_size - 1 tokens, the `past` of the next call.

    A hash is the exclusive or of each token times its multiplier, modulo the `rows` of its head, plus the head's offset.
    Tokens before the first one are `pad_id`, or `end`. So are tokens on the other side of an `end`, with `reset_on_eos`, and
    tokens of another segment.
    """
    before, heads = max_ngram_size - 1, n_head_per_ngram
    if before < 1 or heads < 1:
        raise UnsupportedError(
            f"max_ngram_size {max_ngram_size} with {heads} heads: at least 2, with at least 1 head, is needed"
        )
    numbers = {
        "multipliers": multipliers,
        "vocab_sizes": rows,
        "past_ids": past,
        "head_offsets": offsets,
        "eos_token_id": end,
    }
    for name, it in numbers.items():
        if it is not None and it.dtype is not x.dtype:
            raise UnsupportedError(f"{name} {it} and input_ids {x} have different types")
    batch, length = x.shape
    for name, it, count in (("vocab_sizes", rows, before * heads), ("head_offsets", offsets, before * heads)):
        if it is not None:
            b.require(equal(it.shape[0], count), f"{name} {{}} for {count} heads of all orders", it)
    if isinstance(multipliers.shape[0], int) and multipliers.shape[0] <= before:
        raise UnsupportedError(f"multipliers {multipliers} for n-grams of {max_ngram_size}")
    if rows.constant is not None and rows.constant.min(initial=1) < 1:
        raise UnsupportedError(f"vocab_sizes {rows} has a number below 1")
    if end is None:
        fill = b.constant(np.full((1, 1), pad_id, x.dtype.numpy))
    else:
        b.require(equal(end.size, 1), "eos_token_id {} is not one number", end)
        fill = b.reshape(end, (1, 1))
    if past is None:
        past = b.expand(fill, (batch, before))
    b.require(equal(past.shape[0], batch), "past_ids {} for input_ids {}", past, x)
    b.require(equal(past.shape[1], before), f"past_ids {{}} does not have the {before} preceding tokens", past)
    whole = concat(b, past, x, axis=1)
    resets = end if reset_on_eos else None
    seen = None if segments is None else _extended_at_front(b, segments, x, before)
    mixed: Operand | None = None
    crossed: Operand | None = None  # whether a token so far back is on the other side of an end
    results = []
    for back in range(max_ngram_size):
        token = b.slice(whole, 1, before - back, 1, length)
        if back and resets is not None:
            crossed = _either(b, crossed, b.pointwise("x == e", {"x": token, "e": fill}, DType.BOOL))
        if back and seen is not None:
            sides = {
                "x": b.slice(seen, 1, before - back + 1, 1, length),
                "y": b.slice(seen, 1, before - back, 1, length),
            }
            crossed = _either(b, crossed, b.pointwise("x != y", sides, DType.BOOL))
        if crossed is not None:
            token = b.pointwise("where(o, e, x)", {"o": crossed, "e": fill, "x": token}, x.dtype)
        term = {"x": token, "m": b.reshape(b.slice(multipliers, 0, back, 1, 1), (1, 1))}
        mixed = (
            b.pointwise("x * m", term, x.dtype)
            if mixed is None
            else b.pointwise("y ^ (x * m)", {"y": mixed, **term}, x.dtype, cost=2)
        )
        if back:
            first = (back - 1) * heads
            operands = {
                "x": b.reshape(mixed, (batch, length, 1)),
                "n": b.reshape(b.slice(rows, 0, first, 1, heads), (1, 1, heads)),
            }
            text = "floormod(x, n)"
            if offsets is not None:
                operands["o"], text = b.reshape(b.slice(offsets, 0, first, 1, heads), (1, 1, heads)), f"{text} + o"
            results.append(b.pointwise(text, operands, x.dtype, (batch, length, heads), cost=6))
    return [concat(b, *results, axis=2), b.slice(whole, 1, length, 1, before)][:outputs]


def _extended_at_front(b: Builder, segments: Operand, x: Operand, before: int) -> Operand:
    """Returns segments, extended at the front with copies of the first token's segment, so that no segment ends before it."""
    for have, want in zip(segments.shape, x.shape, strict=True):
        b.require(equal(have, want), "segment_ids {} for input_ids {}", segments, x)
    first = b.expand(b.slice(segments, 1, 0, 1, 1), (x.shape[0], before))
    found: Operand = concat(b, first, segments, axis=1)
    return found


def _either(b: Builder, x: Operand | None, y: Operand) -> Operand:
    return y if x is None else b.pointwise("x or y", {"x": x, "y": y}, DType.BOOL)
