"""The encoder of a speech recogniser: two convolutions over time, sinusoidal positions, transformer blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx

from .graph import GraphBuilder
from .layers import Layers


@dataclass(frozen=True)
class Size:
    """`frames` is the largest number of positions: half the frames of the input."""

    mels: int
    width: int
    heads: int
    depth: int
    frames: int


FULL = Size(80, 256, 4, 4, 1500)
SMALL = Size(20, 48, 3, 2, 100)


def build(size: Size = SMALL) -> onnx.ModelProto:
    """Input `mel` (batch, mels, frames), output `hidden` (batch, frames / 2, width), float32."""
    g = GraphBuilder("whisper_encoder")
    layers = Layers(g, 7)
    width, heads = size.width, size.heads
    mel = g.input("mel", np.float32, ["batch", size.mels, "frames"])
    batch = g.op("Shape", mel, start=0, end=1, out="batch_size")
    x = g.op("Gelu", layers.conv(mel, (size.mels, width), 3, "conv1", rank=1), approximate="none")
    x = layers.conv(x, (width, width), 3, "conv2", stride=2, rank=1)
    length = g.op("Shape", x, start=2, end=3, out="length")
    x = g.op("Transpose", g.op("Gelu", x, approximate="none"), perm=[0, 2, 1])
    half = width // 2
    angle = np.arange(size.frames)[:, None] * np.exp(-math.log(10000) / (half - 1) * np.arange(half))[None]
    table = g.weight("positions", np.concatenate([np.sin(angle), np.cos(angle)], 1).astype(np.float32))
    x = g.op("Add", x, g.op("Slice", table, g.const([0]), length, g.const([0]), g.const([1])), out="embedding")
    split = g.op("Concat", batch, length, g.const([heads]), g.const([width // heads]), axis=0)
    merged = g.op("Concat", batch, length, g.const([width]), axis=0)
    for i in range(size.depth):
        x = layers.block(x, width, heads, (split, split, merged), f"block{i}")
    layers.layer_norm(x, width, "hidden")
    g.output("hidden", np.float32, ["batch", "half_frames", width])
    return g.build()
