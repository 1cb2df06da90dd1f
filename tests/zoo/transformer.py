"""Parts that the transformer models share, in the nodes that `torch.onnx.export` writes for them (opset 20)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .graph import GraphBuilder


def linear(g: GraphBuilder, x: str, weight: np.ndarray, bias: np.ndarray, name: str) -> str:
    """`x @ weight.T + bias`; weight has torch's shape (out, in)."""
    product = g.op("MatMul", x, g.weight(f"{name}.weight", weight.T), out=f"{name}.matmul")
    return g.op("Add", product, g.weight(f"{name}.bias", bias), out=name)


def layer_norm(g: GraphBuilder, x: str, gain: np.ndarray, bias: np.ndarray, epsilon: float, name: str) -> str:
    return g.op(
        "LayerNormalization",
        x,
        g.weight(f"{name}.weight", gain),
        g.weight(f"{name}.bias", bias),
        out=name,
        axis=-1,
        epsilon=epsilon,
        stash_type=1,
    )


def attention(g: GraphBuilder, qkv: Sequence[str], head_size: int, mask: str | None, name: str) -> str:
    """softmax(q k^T / sqrt(head_size) + mask) v; all of shape (batch, heads, sequence, head_size).

    The exporter transposes k as a batch of matrices, through a shape subgraph, and gives the square root of the scale
    to each factor.
    """
    q, k, v = qkv
    shape = g.op("Shape", k, out=f"{name}.k.shape", start=0)
    last, second, low = g.const([-1]), g.const([-2]), np.iinfo(np.int64)
    size = g.op("Slice", shape, last, g.const([low.max]), out=f"{name}.k.size")
    length = g.op("Slice", shape, second, last, out=f"{name}.k.length")
    batch = g.op("Slice", shape, g.const([low.min]), second, out=f"{name}.k.batch")
    matrices = g.op("Reshape", k, _concat(g, last, length, size), allowzero=0)
    transposed = g.op("Transpose", matrices, perm=[0, 2, 1])
    k_transposed = g.op("Reshape", transposed, _concat(g, batch, size, length), allowzero=0)
    scale = g.const([math.sqrt(1 / math.sqrt(head_size))])
    scores = g.op("MatMul", g.op("Mul", q, scale), g.op("Mul", k_transposed, scale), out=f"{name}.scores")
    if mask is not None:
        scores = g.op("Add", scores, mask, out=f"{name}.masked")
    weights = g.op("Softmax", scores, axis=-1, out=f"{name}.weights")
    return g.op("MatMul", weights, v, out=name)


def _concat(g: GraphBuilder, *parts: str) -> str:
    return g.op("Concat", *parts, axis=0)
