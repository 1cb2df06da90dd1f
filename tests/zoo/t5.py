"""One step of a T5 decoder: self attention over a growing cache with relative position bias, cross attention over the
encoder's keys and values, gated GELU. Seeded random weights; batch, past and source length are dynamic."""

from __future__ import annotations

import math

import numpy as np
import onnx

from .graph import GraphBuilder
from .layers import Layers

VOCABULARY, WIDTH, HEADS, HEAD, FEED, DEPTH = 4096, 256, 4, 64, 512, 2
BUCKETS, FAR = 32, 128  # distances below BUCKETS / 2 have a bias each, farther ones share them up to FAR
INNER = HEADS * HEAD
HIDDEN = -1e9  # added to scores that do not count


def build() -> onnx.ModelProto:
    """Inputs `input_ids` (batch, 1), `encoder_mask` (batch, source), caches `past.I.key`... (batch, heads, past, head) and
    `cross.I.key`... (batch, heads, source, head); outputs `logits` (batch, 1, vocabulary) and `present.I.key`..."""
    return _Step().build()


def inputs(batch: int, past: int, source: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    mask = np.ones((batch, source), np.int64)
    mask[-1, source * 2 // 3 :] = 0
    feeds = {"input_ids": rng.integers(0, VOCABULARY, (batch, 1)), "encoder_mask": mask}
    for kind, length in (("past", past), ("cross", source)):
        for part in _parts():
            feeds[f"{kind}.{part}"] = rng.normal(0, 0.5, (batch, HEADS, length, HEAD)).astype(np.float32)
    return feeds


def _parts() -> list[str]:
    return [f"{i}.{part}" for i in range(DEPTH) for part in ("key", "value")]


class _Step:
    def __init__(self) -> None:
        self.g = GraphBuilder("t5_decoder_step")
        self.layers = Layers(self.g, 9)

    def build(self) -> onnx.ModelProto:
        g = self.g
        ids = g.input("input_ids", np.int64, ["batch", 1])
        mask = g.input("encoder_mask", np.int64, ["batch", "source"])
        for part in _parts():
            g.input(f"past.{part}", np.float32, ["batch", HEADS, "past", HEAD])
        for part in _parts():
            g.input(f"cross.{part}", np.float32, ["batch", HEADS, "source", HEAD])
        words = g.weight("words", self.layers.normal(VOCABULARY, WIDTH, deviation=1.0))
        x = g.op("Gather", words, ids, axis=0, out="embedding")
        near = self._relative_bias()
        present = g.op("Cast", g.op("Unsqueeze", mask, g.const([1, 2])), to=onnx.TensorProto.FLOAT)
        absent = g.op("Mul", g.op("Sub", g.const(1.0), present), g.const(HIDDEN), out="cross_bias")
        for i in range(DEPTH):
            normed = self._rms(x, f"layer{i}.norm1")
            cache = [
                g.op(
                    "Concat",
                    f"past.{i}.{part}",
                    self._heads(normed, f"layer{i}.{part}"),
                    axis=2,
                    out=f"present.{i}.{part}",
                )
                for part in ("key", "value")
            ]
            x = g.op("Add", x, self._attend(normed, *cache, near, f"layer{i}.self"))
            normed = self._rms(x, f"layer{i}.norm2")
            x = g.op("Add", x, self._attend(normed, f"cross.{i}.key", f"cross.{i}.value", absent, f"layer{i}.cross"))
            normed = self._rms(x, f"layer{i}.norm3")
            gate = g.op("Gelu", self._linear(normed, (WIDTH, FEED), f"layer{i}.gate"), approximate="tanh")
            up = g.op("Mul", gate, self._linear(normed, (WIDTH, FEED), f"layer{i}.up"))
            x = g.op("Add", x, self._linear(up, (FEED, WIDTH), f"layer{i}.down"), out=f"layer{i}")
        logits = g.op("MatMul", self._rms(x, "norm"), g.op("Transpose", words, perm=[1, 0]))
        g.op("Mul", logits, g.const(WIDTH**-0.5), out="logits")
        g.output("logits", np.float32, ["batch", 1, VOCABULARY])
        for part in _parts():
            g.output(f"present.{part}", np.float32, ["batch", HEADS, "total", HEAD])
        return g.build()

    def _relative_bias(self) -> str:
        """(1, heads, 1, past + 1): a bias per head for each distance to an earlier token."""
        g, exact = self.g, BUCKETS // 2
        past = g.op("Squeeze", g.op("Shape", "past.0.value", start=2, end=3), out="past")
        keys = g.op("Range", g.const(0), g.op("Add", past, g.const(1)), g.const(1))
        signed = g.op("Sub", g.op("Add", g.const([[0]]), past), g.op("Unsqueeze", keys, g.const([0])))
        distance = g.op("Clip", signed, g.const(0), out="distance")
        ratio = g.op(
            "Div", g.op("Cast", g.op("Clip", distance, g.const(1)), to=onnx.TensorProto.FLOAT), g.const(float(exact))
        )
        steps = g.op("Div", g.op("Log", ratio), g.const(math.log(FAR / exact)))
        steps = g.op("Cast", g.op("Mul", steps, g.const(float(BUCKETS - exact))), to=onnx.TensorProto.INT64)
        far = g.op("Clip", g.op("Add", steps, g.const(exact)), "", g.const(BUCKETS - 1))
        bucket = g.op("Where", g.op("Less", distance, g.const(exact)), distance, far, out="bucket")
        table = g.weight("relative", self.layers.normal(BUCKETS, HEADS, deviation=1.0))
        bias = g.op("Unsqueeze", g.op("Transpose", g.op("Gather", table, bucket, axis=0), perm=[2, 0, 1]), g.const([0]))
        later = g.op("Unsqueeze", g.op("Less", signed, g.const(0)), g.const([0, 1]))
        return g.op("Where", later, g.const(HIDDEN), bias, out="self_bias")

    def _rms(self, x: str, name: str) -> str:
        g = self.g
        mean = g.op("ReduceMean", g.op("Pow", x, g.const(2.0)), g.const([-1]), keepdims=1, noop_with_empty_axes=0)
        scale = g.op("Reciprocal", g.op("Sqrt", g.op("Add", mean, g.const(1e-6))))
        gain = g.weight(f"{name}.weight", self.layers.normal(WIDTH, centre=1.0, deviation=0.1))
        return g.op("Mul", g.op("Mul", x, scale), gain, out=name)

    def _linear(self, x: str, widths: tuple[int, int], name: str) -> str:
        return self.g.op(
            "MatMul", x, self.g.weight(f"{name}.weight", self.layers.uniform(widths[0], *widths)), out=name
        )

    def _heads(self, x: str, name: str) -> str:
        split = self.g.op(
            "Reshape", self._linear(x, (WIDTH, INNER), name), self.g.const([-1, 1, HEADS, HEAD]), allowzero=1
        )
        return self.g.op("Transpose", split, perm=[0, 2, 1, 3])

    def _attend(self, x: str, keys: str, values: str, bias: str, name: str) -> str:
        """T5 does not scale its scores."""
        g = self.g
        scores = g.op("MatMul", self._heads(x, f"{name}.query"), g.op("Transpose", keys, perm=[0, 1, 3, 2]))
        weights = g.op("Softmax", g.op("Add", scores, bias), axis=-1, out=f"{name}.weights")
        merged = g.op("Transpose", g.op("MatMul", weights, values), perm=[0, 2, 1, 3])
        merged = g.op("Reshape", merged, g.const([-1, 1, INNER]), allowzero=1)
        return self._linear(merged, (INNER, WIDTH), f"{name}.output")
