"""A piece of a diffusion UNet: one level down, a middle, one level up, each with self and cross attention.

GroupNorm is InstanceNormalization between reshapes and SiLU a product with a Sigmoid, as exported. The embedding of the
time step is float32 in the float16 model too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx

from .graph import GraphBuilder
from .layers import Layers

CHANNELS = 4  # of the picture in latent space


@dataclass(frozen=True)
class Size:
    """`context` is the width of what cross attention reads, `tokens` how many there are."""

    width: int
    context: int
    tokens: int
    heads: int
    groups: int


FULL = Size(64, 128, 77, 4, 8)
SMALL = Size(16, 24, 7, 2, 4)


def build(size: Size = SMALL, half: bool = False) -> onnx.ModelProto:
    """Inputs `sample` (batch, 4, height, width), both even, `timestep` (batch) int64, `context` (batch, tokens, context);
    output `noise` like `sample`."""
    return _UNet(size, half).build()


def inputs(
    batch: int, height: int, width: int, tokens: int, context: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    def normal(*shape: int) -> np.ndarray:
        return rng.normal(0, 1, shape).astype(np.float32)

    steps = rng.integers(0, 1000, batch)
    return {
        "sample": normal(batch, CHANNELS, height, width),
        "timestep": steps,
        "context": normal(batch, tokens, context),
    }


class _UNet:
    def __init__(self, size: Size, half: bool) -> None:
        self.size, self.g = size, GraphBuilder("unet", half=half)
        self.layers = Layers(self.g, 8)

    def build(self) -> onnx.ModelProto:
        g, layers, size = self.g, self.layers, self.size
        c = size.width
        sample = g.input("sample", np.float32, ["batch", CHANNELS, "height", "width"])
        timestep = g.input("timestep", np.int64, ["batch"])
        self.context = g.input("context", np.float32, ["batch", size.tokens, size.context])
        self.batch = g.op("Shape", self.context, start=0, end=1, out="batch_size")
        self.time = layers.silu(self._time(timestep))

        x = layers.conv(sample, (CHANNELS, c), 3, "in")
        skip = self._transformer(self._residual(x, (c, c), "down.residual"), c, "down.attention")
        x = layers.conv(skip, (c, c), 3, "down.conv", stride=2)
        x = self._transformer(self._residual(x, (c, 2 * c), "middle.residual1"), 2 * c, "middle.attention")
        x = self._residual(x, (2 * c, 2 * c), "middle.residual2")
        scales = g.const([1.0, 1.0, 2.0, 2.0], keep=True)
        x = g.op("Resize", x, "", scales, mode="nearest", nearest_mode="floor",
                 coordinate_transformation_mode="asymmetric", out="up.resize")  # fmt: skip
        x = layers.conv(x, (2 * c, 2 * c), 3, "up.conv")
        x = g.op("Concat", x, skip, axis=1)
        x = self._transformer(self._residual(x, (3 * c, c), "up.residual"), c, "up.attention")
        layers.conv(layers.silu(layers.group_norm(x, size.groups, c, "norm")), (c, CHANNELS), 3, "noise")
        g.output("noise", np.float32, ["batch", CHANNELS, "height", "width"])
        return g.build()

    def _time(self, timestep: str) -> str:
        """Sines and cosines of the time step (batch, width), then two layers: (batch, 4 * width)."""
        g, layers, c = self.g, self.layers, self.size.width
        frequencies = np.exp(-math.log(10000) * np.arange(c // 2) / (c // 2)).astype(np.float32)[None]
        steps = g.op("Cast", g.op("Unsqueeze", timestep, g.const([1])), to=onnx.TensorProto.FLOAT)
        angle = g.op("Mul", steps, g.weight("frequencies", frequencies, keep=True))
        x = g.op("Concat", g.op("Cos", angle), g.op("Sin", angle), axis=-1)
        if g.half:
            x = g.op("Cast", x, to=g.real)
        x = layers.gemm(x, (c, 4 * c), "time1")
        return layers.gemm(layers.silu(x), (4 * c, 4 * c), "time2")

    def _residual(self, x: str, widths: tuple[int, int], name: str) -> str:
        g, layers, groups = self.g, self.layers, self.size.groups
        y = layers.silu(layers.group_norm(x, groups, widths[0], f"{name}.norm1"))
        y = layers.conv(y, widths, 3, f"{name}.conv1")
        shift = layers.gemm(self.time, (4 * self.size.width, widths[1]), f"{name}.time")
        y = g.op("Add", y, g.op("Unsqueeze", shift, g.const([2, 3])))
        y = layers.silu(layers.group_norm(y, groups, widths[1], f"{name}.norm2"))
        y = layers.conv(y, (widths[1], widths[1]), 3, f"{name}.conv2")
        if widths[0] != widths[1]:
            x = layers.conv(x, widths, 1, f"{name}.skip")
        return g.op("Add", x, y, out=name)

    def _transformer(self, x: str, c: int, name: str) -> str:
        """Self attention, cross attention and a gated feed-forward over the pixels of x (batch, c, height, width)."""
        g, layers, heads = self.g, self.layers, self.size.heads
        shape = g.op("Shape", x, start=0)
        height, width = (g.op("Squeeze", g.op("Shape", x, start=k, end=k + 1)) for k in (2, 3))
        pixels = g.op("Reshape", g.op("Mul", height, width), g.const([-1]), allowzero=0)
        y = layers.conv(layers.group_norm(x, self.size.groups, c, f"{name}.norm"), (c, c), 1, f"{name}.in")
        y = g.op("Reshape", y, g.op("Concat", self.batch, g.const([c]), pixels, axis=0), allowzero=1)
        y = g.op("Transpose", y, perm=[0, 2, 1], out=f"{name}.pixels")
        tail = (g.const([heads]), g.const([c // heads]))
        split = g.op("Concat", self.batch, pixels, *tail, axis=0)
        split_context = g.op("Concat", self.batch, g.const([self.size.tokens]), *tail, axis=0)
        merged = g.op("Concat", self.batch, pixels, g.const([c]), axis=0)
        normed = layers.layer_norm(y, c, f"{name}.norm1")
        y = g.op("Add", y, layers.attend(normed, normed, (c, c), heads, (split, split, merged), f"{name}.self"))
        normed = layers.layer_norm(y, c, f"{name}.norm2")
        widths, shapes = (c, self.size.context), (split, split_context, merged)
        y = g.op("Add", y, layers.attend(normed, self.context, widths, heads, shapes, f"{name}.cross"))
        both = layers.dense(layers.layer_norm(y, c, f"{name}.norm3"), (c, 8 * c), f"{name}.gated")
        value, gate = g.split(both, 2, -1, f"{name}.halves")
        gated = g.op("Mul", value, g.op("Gelu", gate, approximate="none"))
        y = g.op("Add", y, layers.dense(gated, (4 * c, c), f"{name}.feed"))
        y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1]), shape, allowzero=1)
        return g.op("Add", x, layers.conv(y, (c, c), 1, f"{name}.out"), out=name)
