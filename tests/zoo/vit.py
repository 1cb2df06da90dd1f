"""A vision transformer: ViT-B/16's widths, two blocks, seeded random weights, a dynamic batch."""

from __future__ import annotations

import math

import numpy as np
import onnx

from .graph import GraphBuilder
from .transformer import attention, layer_norm, linear

WIDTH, HEADS, DEPTH, PATCH, SIZE, CLASSES = 768, 12, 2, 16, 224, 100
PATCHES = (SIZE // PATCH) ** 2


def build() -> onnx.ModelProto:
    """Input `image` (batch, 3, 224, 224), output `logits` (batch, 100), both float32."""
    rng = np.random.default_rng(6)

    def uniform(fan_in: int, *shape: int) -> np.ndarray:
        bound = 1 / math.sqrt(fan_in)
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    def normal(*shape: int, centre: float = 0.0, deviation: float = 0.02) -> np.ndarray:
        return rng.normal(centre, deviation, shape).astype(np.float32)

    g = GraphBuilder("vit_f32")

    def dense(x: str, fan_in: int, fan_out: int, name: str) -> str:
        return linear(g, x, uniform(fan_in, fan_out, fan_in), uniform(fan_in, fan_out), name)

    def norm(x: str, name: str) -> str:
        return layer_norm(g, x, normal(WIDTH, centre=1.0, deviation=0.1), normal(WIDTH), 1e-5, name)

    image = g.input("image", np.float32, ["batch", 3, SIZE, SIZE])
    batch = g.op("Shape", image, start=0, end=1, out="batch_size")
    fan_in = 3 * PATCH * PATCH
    x = g.op(
        "Conv",
        image,
        g.weight("patch.weight", uniform(fan_in, WIDTH, 3, PATCH, PATCH)),
        g.weight("patch.bias", uniform(fan_in, WIDTH)),
        out="patch",
        auto_pad="NOTSET",
        dilations=[1, 1],
        group=1,
        kernel_shape=[PATCH, PATCH],
        pads=[0, 0, 0, 0],
        strides=[PATCH, PATCH],
    )
    x = g.op("Reshape", x, g.const([-1, WIDTH, PATCHES]), allowzero=1)
    x = g.op("Transpose", x, perm=[0, 2, 1], out="patches")
    shape = g.op("Concat", batch, g.const([1]), g.const([1]), axis=0)
    token = g.op("Expand", g.weight("class_token", normal(1, 1, WIDTH)), shape)
    x = g.op("Concat", token, x, axis=1)
    x = g.op("Add", x, g.weight("positions", normal(1, PATCHES + 1, WIDTH)), out="embedding")

    heads_shape, size = g.const([-1, PATCHES + 1, HEADS, WIDTH // HEADS]), WIDTH // HEADS
    for i in range(DEPTH):
        name, parts = f"block{i}", []
        normed = norm(x, f"{name}.norm1")
        for part in ("query", "key", "value"):
            split = g.op("Reshape", dense(normed, WIDTH, WIDTH, f"{name}.{part}"), heads_shape, allowzero=1)
            parts.append(g.op("Transpose", split, perm=[0, 2, 1, 3], out=f"{name}.{part}.heads"))
        merged = g.op("Transpose", attention(g, parts, size, None, f"{name}.attention"), perm=[0, 2, 1, 3])
        merged = g.op("Reshape", merged, g.const([-1, PATCHES + 1, WIDTH]), allowzero=1)
        x = g.op("Add", x, dense(merged, WIDTH, WIDTH, f"{name}.attention.output"), out=f"{name}.middle")
        up = dense(norm(x, f"{name}.norm2"), WIDTH, 4 * WIDTH, f"{name}.up")
        down = dense(g.op("Gelu", up, approximate="none"), 4 * WIDTH, WIDTH, f"{name}.down")
        x = g.op("Add", x, down, out=f"{name}.out")

    first = g.op("Gather", norm(x, "norm"), g.const(0), axis=1)
    head, bias = g.weight("head.weight", uniform(WIDTH, CLASSES, WIDTH)), g.weight("head.bias", uniform(WIDTH, CLASSES))
    g.op("Gemm", first, head, bias, out="logits", alpha=1.0, beta=1.0, transA=0, transB=1)
    g.output("logits", np.float32, ["batch", CLASSES])
    return g.build()
