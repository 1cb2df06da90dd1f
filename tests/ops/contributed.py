"""One well-formed node of every operator of com.microsoft that has a kernel here, small and as exporters write it.

What is true of all of them is tried with these: with free sizes, with weights that are inputs, mutated.
`tests/ops/test_contributed.py` tells that no operator in the registry is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .compare import random
from .enumerated import EXAMPLES as ENUMERATED
from .enumerated import MICROSOFT, Example

F32, U8, I32 = np.float32, np.uint8, np.int32
BATCH, HEADS, SIZE, STEPS, PAST = 2, 2, 8, 3, 4
WIDE = HEADS * SIZE


def _node(op: str, *arrays: Any, outputs: Any = (), constants: Any = (), **attributes: Any) -> Example:
    given = [None if it is None else np.asarray(it) for it in arrays]
    return Example(op, given, {}, attributes, MICROSOFT, constants=constants, outputs=outputs)


def _f(value: float) -> np.ndarray:
    return np.array(value, F32)


def _u(value: int) -> np.ndarray:
    return np.array(value, U8)


def _bytes(*shape: int, seed: int = 0, dtype: Any = U8) -> np.ndarray:
    return random(*shape, dtype=dtype, seed=seed)


def _attention() -> Iterator[Example]:
    x = random(BATCH, STEPS, WIDE)
    weights, bias = random(WIDE, 3 * WIDE, seed=1), random(3 * WIDE, seed=2)
    past = random(2, BATCH, HEADS, PAST, SIZE, seed=3)
    heads = {"num_heads": HEADS}
    ends = np.array([3, 2], I32)
    yield _node("Attention", x, weights, bias, ends, constants=(1, 2), **heads)
    yield _node("Attention", x, weights, bias, None, past, outputs=[F32] * 2, constants=(1, 2), **heads)
    parts = [random(BATCH, STEPS, WIDE, seed=k) for k in range(3)]
    keys, values = (random(BATCH, HEADS, PAST, SIZE, seed=k) for k in (4, 5))
    yield _node("MultiHeadAttention", *parts, bias, **heads)
    yield _node("MultiHeadAttention", *parts, None, None, None, keys, values, outputs=[F32] * 3, **heads)
    yield _node("MultiHeadAttention", parts[0], keys, values, **heads)
    token = [it[:, :1] for it in parts]
    room, at = [random(BATCH, HEADS, 6, SIZE, seed=k) for k in (4, 5)], np.array([PAST], I32)
    shared = {"past_present_share_buffer": 1, **heads}
    yield _node("DecoderMaskedMultiHeadAttention", *token, None, None, *room, at, outputs=[F32] * 3, **shared)
    both = random(2, BATCH, HEADS, 6, SIZE, seed=3)
    self_attention = [token[0], weights, bias, None, both, None, at]
    yield _node("DecoderMaskedSelfAttention", *self_attention, outputs=[F32] * 2, constants=(1, 2), **shared)
    offsets, limits = np.array([[0, 1, 2], [3, 4, 5]], I32), np.array([0, 3, 5], I32)
    rows = [random(5, WIDE, seed=k) for k in range(3)]
    yield _node("PackedAttention", rows[0], weights, bias, offsets, limits, constants=(1, 2), **heads)
    yield _node("PackedMultiHeadAttention", *rows, None, offsets, limits, **heads)
    angles = [np.cos(random(8, SIZE // 2)), np.sin(random(8, SIZE // 2))]
    yield _node("RotaryEmbedding", random(BATCH, HEADS, STEPS, SIZE), np.array([1]), *angles)
    places = np.arange(3 * BATCH * STEPS).reshape(3, BATCH, STEPS) % 8
    yield _node("MRotaryEmbedding", x, places, *angles, mrope_section=[2, 1, SIZE // 2 - 3], **heads)
    yield _node("RotaryEmbedding", x, np.arange(STEPS * BATCH).reshape(BATCH, STEPS), *angles, **heads)
    words = [random(11, WIDE), random(7, WIDE, seed=1), random(2, WIDE, seed=2), random(WIDE), random(WIDE, seed=3)]
    ids, kinds = np.array([[1, 2, 3], [4, 10, 0]], I32), np.zeros((2, 3), I32)
    yield _node("EmbedLayerNormalization", ids, kinds, *words, outputs=[F32, I32], constants=range(2, 7))


def _norms() -> Iterator[Example]:
    rows, gain = random(BATCH, STEPS, WIDE), [random(WIDE, seed=k) for k in (1, 2, 3)]
    yield _node("SkipLayerNormalization", rows, rows[::-1], *gain, constants=(2, 3, 4))
    yield _node("GatedAdd", rows, rows[::-1], rows[..., :1])
    yield _node("LinearAttentionGate", rows, *gain[:2], rows[::-1], outputs=[F32] * 2, constants=(1, 2))
    keys, scales = random(BATCH, STEPS, 2, WIDE, seed=4), [random(2, WIDE, seed=k) for k in (5, 6, 7)]
    yield _node("EngramGate", keys, keys[::-1], rows, *scales, outputs=[F32] * 2, constants=(3, 4, 5))
    yield _node("SkipSimplifiedLayerNormalization", rows, rows[::-1], *gain[:2], constants=(2, 3))
    image, scales = random(BATCH, 4, 4, 8), [random(8, seed=k) for k in (1, 2)]
    how = {"groups": 2, "activation": 1}
    yield _node("GroupNorm", image, *scales, constants=(1, 2), **how)
    yield _node("SkipGroupNorm", image, *scales, random(BATCH, 1, 1, 8, seed=4), constants=(1, 2), **how)


def _pointwise() -> Iterator[Example]:
    rows = random(BATCH, STEPS, WIDE)
    yield _node("BiasAdd", rows, random(WIDE, seed=1), rows[::-1], constants=[1])
    yield _node("BiasGelu", rows, random(WIDE, seed=1), constants=[1])
    yield _node("BiasSplitGelu", rows, random(WIDE, seed=1), constants=[1])
    yield _node("FastGelu", rows, random(WIDE, seed=1), constants=[1])
    yield _node("Gelu", rows)
    yield _node("QuickGelu", rows, alpha=1.5)
    tokens, rows_of_heads = np.arange(6).reshape(2, 3), np.array([11, 13, 17, 19])
    sizes = {"pad_id": 0, "n_head_per_ngram": 2, "max_ngram_size": 3}
    given = [tokens, np.array([3, 5, 7]), rows_of_heads, tokens[:, :2], rows_of_heads, np.array(1), tokens.astype(I32)]
    yield _node("NGramHashMapping", *given, outputs=[np.int64] * 2, constants=(1, 2, 4, 5), reset_on_eos=1, **sizes)
    yield _node("Trilu", random(2, 4, 5), np.array(1), constants=[1], upper=0)


def _moved() -> Iterator[Example]:
    yield _node("GatherND", random(3, 4), np.array([[2], [0]]))
    yield _node("Pad", random(3, 4), np.array([1, 0, 0, 2]), np.array([3], F32), constants=[1])
    yield _node("Range", _f(1), _f(5), _f(1.5), constants=(0, 1, 2))
    data, scales = _bytes(5, 16), np.abs(random(5, 2))
    how = {"block_size": 16, "bits": 4, "gather_axis": 0, "quantize_axis": 1}
    yield _node("GatherBlockQuantized", data, np.array([[4, 0]]), scales, outputs=[F32], constants=(0, 2), **how)


def _products() -> Iterator[Example]:
    rows = random(STEPS, WIDE)
    yield _node("FusedMatMul", random(2, 4, 3), random(2, 4, 5, seed=1), transA=1, alpha=0.5)
    weights, scale, zero = _bytes(WIDE, 6, seed=1), _f(0.02), _u(9)
    yield _node("DynamicQuantizeMatMul", rows, weights, scale, zero, constants=(1, 2, 3))
    narrow = _bytes(STEPS, WIDE)
    given = [narrow, weights, _f(0.03), scale, _u(7), zero]
    yield _node("MatMulIntegerToFloat", *given, outputs=[F32], constants=(1, 2, 3, 4, 5))
    given = [narrow, _f(0.03), _u(7), _bytes(6, WIDE, seed=1), scale, zero, np.arange(6, dtype=I32), _f(0.2), _u(30)]
    yield _node("QGemm", *given, constants=range(1, 9), transB=1)
    wide = random(STEPS, 32)
    how: dict[str, Any] = {"K": 32, "N": 6, "block_size": 16}
    blocks = [_bytes(6, 2, 8), np.abs(random(6, 2)), _bytes(6, 1)]
    yield _node("MatMulNBits", wide, *blocks, constants=(1, 2, 3), bits=4, **how)
    part, how_of_parts = [*blocks[:2], None], {"K": 32, "Nq": 6, "Nkv": 6, "block_size": 16, "bits": 4}
    given = [wide, wide[::-1], random(32, seed=2), *part, *part, *part]
    yield _node("MatMulNBitsQkv", *given, outputs=[F32] * 4, constants=(2, 3, 4, 6, 7, 9, 10), **how_of_parts)
    yield _node("MatMulBnb4", wide, _bytes(96), np.abs(random(12)), constants=(1, 2), quant_type=1, **how)


def _quantised() -> Iterator[Example]:
    x, y, at = _bytes(2, 3, 4), _bytes(2, 3, 4, seed=1), [_f(0.02), _u(13)]
    out = [_f(0.05), _u(5)]
    fixed = (1, 2, 4, 5, 6, 7)
    yield _node("QLinearAdd", x, *at, y, *at, *out, constants=fixed)
    yield _node("QLinearMul", x, *at, y, *at, *out, constants=fixed)
    for op, how in (("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.1}), ("QLinearSoftmax", {"opset": 13})):
        more = [_f(1 / 256), _u(0)] if op == "QLinearSoftmax" else out
        yield _node(op, x, *at, *more, constants=(1, 2, 3, 4), **how)
    yield _node("QLinearGlobalAveragePool", _bytes(1, 3, 4, 5), *at, *out, constants=(1, 2, 3, 4))
    joined = [*out, x, *at, y, *at]
    yield _node("QLinearConcat", *joined, outputs=[U8], constants=(0, 1, 3, 4, 6, 7), axis=1)
    chosen = [random(2, 3, 4, dtype=np.bool_), x, *at, y, *at, *out]
    yield _node("QLinearWhere", *chosen, outputs=[U8], constants=(2, 3, 5, 6, 7, 8))
    yield _node("QuantizeLinear", random(3, 4), _f(0.05), _u(7), outputs=[U8], constants=(1, 2))
    yield _node("DequantizeLinear", x, *at, outputs=[F32], constants=(1, 2))


def _enumerated() -> Iterator[Example]:
    for it in ENUMERATED:
        if it.domain == MICROSOFT:
            first = {name: values[0] for name, values in it.choices.items()} | dict(it.others)
            if first.get("auto_pad", "NOTSET") != "NOTSET":
                first.pop("pads", None)
            yield Example(it.op, it.arrays, {}, first, it.domain, it.opset, it.constants, it.outputs)


EXAMPLES = (*_attention(), *_norms(), *_pointwise(), *_moved(), *_products(), *_quantised(), *_enumerated())
