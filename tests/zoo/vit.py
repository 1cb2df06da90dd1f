"""A vision transformer with seeded random weights and a dynamic batch: two blocks of ViT-B/16's widths, or small ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from .graph import GraphBuilder
from .layers import Layers


@dataclass(frozen=True)
class Size:
    """`image` is height and width in pixels; `patch` divides it."""

    width: int
    heads: int
    image: int
    classes: int
    patch: int = 16
    depth: int = 2


FULL = Size(768, 12, 224, 100)
SMALL = Size(64, 4, 64, 10)


def build(size: Size = SMALL, half: bool = False, operator: bool = False) -> onnx.ModelProto:
    """Input `image` (batch, 3, image, image), output `logits` (batch, classes). `operator`: opset 24 with Attention."""
    g = GraphBuilder("vit", 24 if operator else 20, 11 if operator else 10, half=half)
    layers = Layers(g, 6)
    patches, width, heads = (size.image // size.patch) ** 2, size.width, size.heads

    image = g.input("image", np.float32, ["batch", 3, size.image, size.image])
    batch = g.op("Shape", image, start=0, end=1, out="batch_size")
    x = layers.conv(image, (3, width), size.patch, "patch", stride=size.patch, padded=False)
    x = g.op("Reshape", x, g.const([-1, width, patches]), allowzero=1)
    x = g.op("Transpose", x, perm=[0, 2, 1], out="patches")
    shape = g.op("Concat", batch, g.const([1]), g.const([1]), axis=0)
    token = g.op("Expand", g.weight("class_token", layers.normal(1, 1, width)), shape)
    x = g.op("Concat", token, x, axis=1)
    x = g.op("Add", x, g.weight("positions", layers.normal(1, patches + 1, width)), out="embedding")

    split, merged = g.const([-1, patches + 1, heads, width // heads]), g.const([-1, patches + 1, width])
    for i in range(size.depth):
        x = layers.block(x, width, heads, (split, split, merged), f"block{i}", operator)

    first = g.op("Gather", layers.layer_norm(x, width, "norm"), g.const(0), axis=1)
    layers.gemm(first, (width, size.classes), "logits")
    g.output("logits", np.float32, ["batch", size.classes])
    return g.build()
