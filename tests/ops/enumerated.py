"""One node of every operator that has attributes of enumerated text, with all values that its schema names.

`tests/ops/test_spellings.py` tells that no such attribute of an operator in the registry is missing here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

from . import learnt
from .compare import random
from .example import PADS, Example

MICROSOFT = "com.microsoft"
DIRECTIONS = ("forward", "reverse", "bidirectional")


def _bytes(*shape: int, seed: int = 0, dtype: Any = np.uint8) -> np.ndarray:
    return random(*shape, dtype=dtype, seed=seed)


def _windows() -> Iterator[Example]:
    x, w = random(1, 2, 7, 6), random(3, 2, 3, 3, seed=1)
    pads, choices = {"pads": [1, 0, 2, 1]}, {"auto_pad": PADS}
    pool = {"kernel_shape": [3, 3]} | pads
    one, zero = np.array(0.5, np.float32), np.array(3, np.uint8)
    yield Example("Conv", [x, w], choices, pads)
    yield Example("ConvTranspose", [x, random(2, 3, 3, 3, seed=1)], choices, {"strides": [2, 2]})
    yield Example("ConvInteger", [_bytes(1, 2, 7, 6), _bytes(3, 2, 3, 3)], choices, pads, outputs=[np.int32])
    scaled = [_bytes(1, 2, 7, 6), one, zero, _bytes(3, 2, 3, 3), one, zero, np.array(9.0, np.float32), zero]
    yield Example("QLinearConv", scaled, choices, pads, constants=range(1, 8))
    for op in ("MaxPool", "AveragePool", "LpPool"):
        yield Example(op, [x], choices, pool)
    conv = {"auto_pad": PADS, "activation": ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid")}
    yield Example("FusedConv", [x, w], conv, pads, MICROSOFT)
    last = _bytes(1, 7, 6, 2)
    yield Example("NhwcMaxPool", [last], choices, pool, MICROSOFT)
    yield Example(
        "QLinearAveragePool",
        [_bytes(1, 2, 7, 6), one, zero, one, zero],
        choices,
        pool,
        MICROSOFT,
        constants=range(1, 5),
    )
    nhwc = {"channels_last": 1} | pads
    yield Example("QLinearConv", [last, *scaled[1:]], choices, nhwc, MICROSOFT, constants=range(1, 8))


def _recurrent() -> Iterator[Example]:
    x = random(3, 2, 4)
    for op, gates, states in (("RNN", 1, 1), ("GRU", 3, 1), ("LSTM", 4, 2)):
        w = [random(1, gates * 5, n, seed=n) for n in (4, 5)]
        outputs = [np.float32] * (1 + states)
        yield Example(op, [x, *w], {"direction": DIRECTIONS[:2]}, {"hidden_size": 5}, outputs=outputs)


def _moved() -> Iterator[Example]:
    x, image = random(3, 4), random(1, 4, 4, 6)
    at, new = np.array([[2, 0, 1, 1]]), random(1, 4, seed=1)
    kinds = ("none", "add", "mul", "min", "max")
    yield Example("ScatterElements", [x, at, new], {"reduction": kinds}, {"axis": 0})
    yield Example("ScatterND", [x, np.array([[2], [0]]), random(2, 4, seed=1)], {"reduction": kinds})
    cache = [random(2, 1, 6, 3), random(2, 1, 2, 3, seed=1), np.array([1, 4])]
    yield Example("TensorScatter", cache, {"mode": ("linear", "circular")}, opset=24)
    pads = [x, np.array([1, 0, 0, 2])]
    yield Example("Pad", pads, {"mode": ("constant", "edge", "reflect", "wrap")}, constants=[1])
    yield Example("Pad", pads, {"mode": ("constant", "edge", "reflect")}, domain=MICROSOFT, constants=[1])
    yield Example("DepthToSpace", [image], {"mode": ("DCR", "CRD")}, {"blocksize": 2})
    yield Example("SpaceToDepth", [image], {"mode": ("DCR", "CRD")}, {"blocksize": 2}, opset=28)


def _sampled() -> Iterator[Example]:
    image, grid = random(1, 2, 5, 6), np.tanh(random(1, 4, 3, 2, seed=1)) * 1.4
    outside = ("zeros", "border", "reflection")
    yield Example("GridSample", [image, grid], {"mode": ("linear", "nearest", "cubic"), "padding_mode": outside})
    yield Example(
        "GridSample", [image, grid], {"mode": ("bilinear", "nearest", "bicubic"), "padding_mode": outside}, opset=16
    )
    old = {"mode": ("bilinear", "nearest", "bicubic"), "padding_mode": outside}
    yield Example("GridSample", [image, grid], old, domain=MICROSOFT)
    regions = [image, np.array([[0.5, 0.2, 4, 3.6]], np.float32), np.array([0])]
    size = {"output_height": 3, "output_width": 2, "sampling_ratio": 2}
    for opset, places in ((10, {}), (16, {"coordinate_transformation_mode": ("half_pixel", "output_half_pixel")})):
        yield Example("RoiAlign", regions, {"mode": ("avg", "max")} | places, size, opset=opset)
    kinds = ("nearest", "linear", "cubic")
    places = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
    more = {
        "coordinate_transformation_mode": (*places, "tf_crop_and_resize"),
        "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
        "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    }
    region, scales = np.array([0, 0, 0.1, 0.2, 1, 1, 0.8, 0.9], np.float32), np.array([1, 1, 1.5, 0.7], np.float32)
    sizes = [image, region, None, np.array([1, 2, 8, 4])]
    yield Example("Resize", sizes, {"mode": kinds} | more, constants=[1, 3])
    yield Example("Resize", sizes, {"mode": kinds[1:]}, {"antialias": 1}, constants=[1, 3])
    yield Example("Resize", [image, scales], {"mode": kinds[:2]}, opset=10, constants=[1])
    grams = {
        "min_gram_length": 1,
        "max_gram_length": 2,
        "max_skip_count": 1,
        "ngram_counts": [0, 3],
        "ngram_indexes": [0, 1, 2, 3],
    }
    pool = {"pool_int64s": [2, 3, 5, 5, 2], "weights": [1.0, 0.5, 2.0, 3.0]}
    yield Example("TfIdfVectorizer", [np.array([5, 3, 2, 5, 2])], {"mode": ("TF", "IDF", "TFIDF")}, grams | pool)
    yield Example("Upsample", [image, np.maximum(scales, 1)], {"mode": kinds[:2]}, opset=9, constants=[1])


def _pointwise() -> Iterator[Example]:
    x = random(3, 4)
    yield Example("Gelu", [x], {"approximate": ("none", "tanh")})
    bits = [random(3, 4, dtype=np.uint32), np.full((3, 4), 3, np.uint32)]
    yield Example("BitShift", bits, {"direction": ("LEFT", "RIGHT")})
    rounding = {"round_mode": ("up", "down", "nearest")}
    yield Example("Cast", [x], rounding, {"to": onnx.TensorProto.INT32}, opset=25, outputs=[np.int32])
    yield Example("CastLike", [x, bits[0]], rounding, opset=25, outputs=[np.uint32])


def _models() -> Iterator[Example]:
    how = {"activation": ("none", "silu", "swish")}
    rows = [random(1, 4, 5), random(4, 1, 3, seed=1)]
    yield Example("CausalConvWithState", rows, how, domain=MICROSOFT, outputs=[np.float32] * 2)
    yield Example("CausalConvWithState", rows, how, opset=27, outputs=[np.float32] * 2)
    gated = [random(2, 3, 8), random(4, seed=1), random(2, 3, 8, seed=2)]
    yield Example("GatedRMSNorm", gated, {"activation": ("silu", "sigmoid")}, domain=MICROSOFT)
    part = [_bytes(6, 2, 8), np.abs(random(6, 2)), random(6, seed=2)]
    how = {"K": 32, "N": 6, "block_size": 16, "bits": 4}
    given, named = [random(3, 32), None, random(32, seed=1), *part, *part], {"activation": ("silu",)}
    yield Example("MatMulNBitsMlp", given, named, how, MICROSOFT, constants=[2, 3, 4, 5, 6, 7, 8])
    rules = {"update_rule": ("gated_delta", "linear", "gated", "delta")}
    parts = [*(random(1, 3, 8, seed=k) for k in range(3)), random(1, 2, 4, 4, seed=3)]
    parts += [-np.abs(random(1, 3, 8, seed=4)), np.abs(random(1, 3, 2, seed=5))]
    heads = {"q_num_heads": 2, "kv_num_heads": 2}
    yield Example("LinearAttention", parts, rules, heads, MICROSOFT, outputs=[np.float32] * 2)
    yield Example("LinearAttention", parts, rules, heads, opset=27, outputs=[np.float32] * 2)
    kinds = ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid")
    yield Example("FusedGemm", [random(3, 4), random(4, 5, seed=1)], {"activation": kinds}, {}, MICROSOFT)
    experts = [random(6, 16), random(6, 4, seed=1), random(4, 32, 16, seed=2), None, random(4, 16, 32, seed=3)]
    kinds = ("relu", "gelu", "silu", "identity")
    yield Example("MoE", experts, {"activation_type": kinds}, {"k": 2}, MICROSOFT, constants=[2, 4])
    scale = np.full((4, 32), 0.02, np.float32)
    small = [*experts[:2], _bytes(4, 32, 8), scale, None, _bytes(4, 16, 16), scale[:, :16]]
    choices = {"activation_type": kinds, "quant_type": ("int",)}
    yield Example("QMoE", small, choices, {"k": 2, "expert_weight_bits": 4}, MICROSOFT, constants=[2, 3, 5, 6])
    wide = [random(1, 2, 32), random(1, 2, 16, seed=1), random(1, 2, 16, seed=2)]
    caches = [random(1, 1, 3, 16, dtype=np.int8, seed=k) for k in (3, 4)]
    totals = [np.array([4], np.int32), np.array(5, np.int32)]
    factors = [np.full((1, 1, 1, 16), 0.02, np.float32)] * 2
    given = [*wide, *caches, *totals, *[None] * 5, *factors]
    kinds = {"k_quant_type": ("PER_CHANNEL", "PER_TENSOR"), "v_quant_type": ("PER_CHANNEL", "PER_TENSOR")}
    how = {"num_heads": 2, "kv_num_heads": 1, "kv_cache_bit_width": 8}
    yield Example(
        "GroupQueryAttention", given, kinds, how, MICROSOFT, outputs=[np.float32, np.int8, np.int8], constants=[5, 6]
    )
    plain = [*wide, *(random(1, 1, 3, 16, seed=k) for k in (3, 4)), *totals]
    kinds = {"k_quant_type": ("NONE",), "v_quant_type": ("NONE",)}
    how = {"num_heads": 2, "kv_num_heads": 1}
    yield Example("GroupQueryAttention", plain, kinds, how, MICROSOFT, outputs=[np.float32] * 3, constants=[5, 6])
    yield from _paged()


def _paged() -> Iterator[Example]:
    """Two sequences, one row of the first is held; 16-bit floats are what ONNX Runtime takes."""
    half, how = np.float16, {"num_heads": 2, "kv_num_heads": 1}
    wide = [random(4, 32, dtype=half), *(random(4, 16, dtype=half, seed=k) for k in (1, 2))]
    tables = [np.array([0, 3, 4], np.int32), np.array([1, 0], np.int32), np.array([[2, 0], [1, 3]], np.int32)]
    held = ("", "float16", "bfloat16", "int8", "float8e4m3fn", "int4", "float4e2m1")
    kinds = {"k_quant_type": ("NONE",), "v_quant_type": ("NONE",), "k_cache_dtype": held, "v_cache_dtype": held}
    caches = [random(4, 2, 1, 16, dtype=half, seed=k) for k in (3, 4)]
    layout = {"kv_cache_layout": ("SEPARATE",)}
    yield Example("PagedAttention", [*wide, *caches, *tables], kinds | layout, how, MICROSOFT, outputs=[half] * 3)
    latent = [wide[0], wide[1], None, caches[0], None, *tables]
    layout = {"kv_cache_layout": ("LATENT",)}
    yield Example(
        "PagedAttention", latent, layout, {"v_head_size": 8, "scale": 0.3, **how}, MICROSOFT, outputs=[half] * 2
    )
    narrow = [random(4, 2, 1, 16, dtype=np.int8, seed=k) for k in (3, 4)]
    factors = [np.full((1, 1, 16), 0.02, np.float32)] * 2
    kinds = {"k_quant_type": ("PER_CHANNEL", "PER_TENSOR"), "v_quant_type": ("PER_CHANNEL", "PER_TENSOR")}
    given = [*wide, *narrow, *tables, *[None] * 6, *factors]
    yield Example("PagedAttention", given, kinds, how, MICROSOFT, outputs=[half, np.int8, np.int8])


EXAMPLES = (*_windows(), *_recurrent(), *_moved(), *_sampled(), *_pointwise(), *_models(), *learnt.EXAMPLES)
