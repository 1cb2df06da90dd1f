"""A small model with every kind of step: convolution, a shape subgraph, attention-like products, reductions.

Small enough for a thousand runs on a software adapter; all of its input dims are dynamic.
"""

from __future__ import annotations

import numpy as np
import onnx

from .graph import GraphBuilder
from .transformer import layer_norm, linear

CHANNELS = 8


def build() -> onnx.ModelProto:
    """Input `x` (batch, 3, height, width), output `y` (batch, 4), both float32."""
    rng = np.random.default_rng(7)

    def normal(*shape: int, deviation: float = 0.3) -> np.ndarray:
        return rng.normal(0, deviation, shape).astype(np.float32)

    g = GraphBuilder("tiny")
    x = g.input("x", np.float32, ["batch", 3, "height", "width"])
    kernel = g.weight("conv.weight", normal(CHANNELS, 3, 3, 3))
    bias = g.weight("conv.bias", normal(CHANNELS))
    x = g.op("Conv", x, kernel, bias, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    x = g.op("Relu", x, out="relu")
    batch = g.op("Shape", x, start=0, end=1, out="batch_size")
    x = g.op("Reshape", x, g.op("Concat", batch, g.const([CHANNELS, -1]), axis=0), out="rows")
    x = g.op("Transpose", x, perm=[0, 2, 1], out="tokens")
    x = layer_norm(g, x, 1 + normal(CHANNELS), normal(CHANNELS), 1e-5, "norm")
    q = linear(g, x, normal(CHANNELS, CHANNELS), normal(CHANNELS), "query")
    weights = g.op("Softmax", g.op("MatMul", q, g.op("Transpose", x, perm=[0, 2, 1])), axis=-1, out="weights")
    x = g.op("Add", x, g.op("MatMul", weights, x, out="attended"), out="sum")
    x = g.op("ReduceMean", x, g.const([1]), keepdims=0, out="mean")
    head, bias = g.weight("head.weight", normal(4, CHANNELS)), g.weight("head.bias", normal(4))
    g.op("Gemm", x, head, bias, out="y", transB=1)
    g.output("y", np.float32, ["batch", 4])
    return g.build()
