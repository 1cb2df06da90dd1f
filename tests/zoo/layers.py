"""Layers with seeded random weights, in the nodes that `torch.onnx.export` writes for them (opset 20).

Weights are uniform within 1/sqrt(fan in), as torch starts them, so that values keep their scale through normalised
networks; `gain` widens them where nothing normalises.
"""

from __future__ import annotations

import math

import numpy as np

from .graph import GraphBuilder
from .transformer import attention, layer_norm, linear


class Layers:
    """Adds layers to a graph. Widths are numbers of channels; every layer gives the name of its result."""

    def __init__(self, g: GraphBuilder, seed: int) -> None:
        self.g, self.rng = g, np.random.default_rng(seed)

    def uniform(self, fan_in: int, *shape: int, gain: float = 1.0) -> np.ndarray:
        bound = gain / math.sqrt(fan_in)
        return self.rng.uniform(-bound, bound, shape).astype(np.float32)

    def normal(self, *shape: int, centre: float = 0.0, deviation: float = 0.02) -> np.ndarray:
        return self.rng.normal(centre, deviation, shape).astype(np.float32)

    def dense(self, x: str, widths: tuple[int, int], name: str) -> str:
        """MatMul and Add, for x of any rank."""
        return linear(self.g, x, self.uniform(widths[0], widths[1], widths[0]), self.uniform(*widths), name)

    def gemm(self, x: str, widths: tuple[int, int], name: str) -> str:
        """Gemm, for x of rank 2."""
        weight = self.g.weight(f"{name}.weight", self.uniform(widths[0], widths[1], widths[0]))
        bias = self.g.weight(f"{name}.bias", self.uniform(*widths))
        return self.g.op("Gemm", x, weight, bias, out=name, alpha=1.0, beta=1.0, transA=0, transB=1)

    def conv(self, x: str, widths: tuple[int, int], kernel: int, name: str, stride: int = 1, padded: bool = True,
             rank: int = 2, gain: float = 1.0) -> str:  # fmt: skip
        """Conv over `rank` axes; padded to the size of x divided by the stride."""
        fan_in = widths[0] * kernel**rank
        return self.g.op(
            "Conv",
            x,
            self.g.weight(f"{name}.weight", self.uniform(fan_in, widths[1], widths[0], *[kernel] * rank, gain=gain)),
            self.g.weight(f"{name}.bias", self.uniform(fan_in, widths[1])),
            out=name,
            auto_pad="NOTSET",
            dilations=[1] * rank,
            group=1,
            kernel_shape=[kernel] * rank,
            pads=[kernel // 2 if padded else 0] * 2 * rank,
            strides=[stride] * rank,
        )

    def layer_norm(self, x: str, width: int, name: str) -> str:
        gain, bias = self.normal(width, centre=1.0, deviation=0.1), self.normal(width)
        return layer_norm(self.g, x, gain, bias, 1e-5, name)

    def group_norm(self, x: str, groups: int, width: int, name: str) -> str:
        """Over x (batch, width, height, width): InstanceNormalization of the groups, then gain and bias per channel."""
        g = self.g
        flat = g.op("Reshape", x, g.const([0, groups, -1]), allowzero=0)
        ones = g.weight(f"groups{groups}.one", np.ones(groups, np.float32))
        zeros = g.weight(f"groups{groups}.zero", np.zeros(groups, np.float32))
        normed = g.op("InstanceNormalization", flat, ones, zeros, epsilon=1e-5)
        normed = g.op("Reshape", normed, g.op("Shape", x, start=0), allowzero=0)
        gain = g.weight(f"{name}.weight", self.normal(width, 1, 1, centre=1.0, deviation=0.1))
        bias = g.weight(f"{name}.bias", self.normal(width, 1, 1))
        return g.op("Add", g.op("Mul", normed, gain), bias, out=name)

    def silu(self, x: str) -> str:
        return self.g.op("Mul", x, self.g.op("Sigmoid", x))

    def attend(self, x: str, context: str, widths: tuple[int, int], heads: int, shapes: tuple[str, str, str], name: str,
               operator: bool = False) -> str:  # fmt: skip
        """Multi-head attention of x (batch, sequence, widths[0]) to `context` (batch, length, widths[1]).

        `shapes` are the shapes that split x into heads, split the context, and merge the heads again. `operator`: the
        Attention operator of opset 23 instead of its steps.
        """
        g, width = self.g, widths[0]
        parts = []
        for part, source, fan_in, shape in (
            ("query", x, width, shapes[0]),
            ("key", context, widths[1], shapes[1]),
            ("value", context, widths[1], shapes[1]),
        ):
            projected = self.dense(source, (fan_in, width), f"{name}.{part}")
            split = g.op("Reshape", projected, shape, allowzero=1)
            parts.append(g.op("Transpose", split, perm=[0, 2, 1, 3], out=f"{name}.{part}.heads"))
        if operator:
            joined = g.op("Attention", *parts, out=name, is_causal=0, qk_matmul_output_mode=0, softcap=0.0)
        else:
            joined = attention(g, parts, width // heads, None, name)
        merged = g.op("Reshape", g.op("Transpose", joined, perm=[0, 2, 1, 3]), shapes[2], allowzero=1)
        return self.dense(merged, (width, width), f"{name}.output")

    def feed_forward(self, x: str, width: int, name: str) -> str:
        up = self.g.op("Gelu", self.dense(x, (width, 4 * width), f"{name}.up"), approximate="none")
        return self.dense(up, (4 * width, width), f"{name}.down")

    def block(self, x: str, width: int, heads: int, shapes: tuple[str, str, str], name: str,
              operator: bool = False) -> str:  # fmt: skip
        """A pre-norm transformer block."""
        normed = self.layer_norm(x, width, f"{name}.norm1")
        attended = self.attend(normed, normed, (width, width), heads, shapes, f"{name}.attention", operator)
        x = self.g.op("Add", x, attended, out=f"{name}.middle")
        fed = self.feed_forward(self.layer_norm(x, width, f"{name}.norm2"), width, name)
        return self.g.op("Add", x, fed, out=f"{name}.out")
