"""A tagger of sequences: embedding, two bidirectional LSTM layers, a GRU with linear_before_reset, seeded random weights."""

from __future__ import annotations

import numpy as np
import onnx

from .graph import GraphBuilder
from .layers import Layers

VOCABULARY, WIDTH, HIDDEN, CLASSES = 200, 48, 64, 32


def build() -> onnx.ModelProto:
    """Input `tokens` (steps, batch) int64; outputs `logits` (steps, batch, classes) and `cell` (2, batch, hidden)."""
    g = GraphBuilder("lstm_gru")
    layers = Layers(g, 10)

    def weights(name: str, gates: int, fan_in: int, directions: int) -> list[str]:
        rows = gates * HIDDEN
        shapes = {"W": (directions, rows, fan_in), "R": (directions, rows, HIDDEN), "B": (directions, 2 * rows)}
        return [g.weight(f"{name}.{kind}", layers.uniform(HIDDEN, *shape)) for kind, shape in shapes.items()]

    tokens = g.input("tokens", np.int64, ["steps", "batch"])
    words = g.weight("words", layers.normal(VOCABULARY, WIDTH, deviation=1.0))
    x, fan_in = g.op("Gather", words, tokens, axis=0, out="embedding"), WIDTH
    for i, cell in enumerate(("", "cell")):
        x, *_ = g.ops("LSTM", x, *weights(f"lstm{i}", 4, fan_in, 2), outs=(f"lstm{i}", f"last{i}", cell or "cell0"),
                      hidden_size=HIDDEN, direction="bidirectional")  # fmt: skip
        x, fan_in = g.op("Reshape", g.op("Transpose", x, perm=[0, 2, 1, 3]), g.const([0, 0, -1])), 2 * HIDDEN
    x = g.op("GRU", x, *weights("gru", 3, fan_in, 1), out="gru", hidden_size=HIDDEN, linear_before_reset=1)
    layers.dense(g.op("Squeeze", x, g.const([1])), (HIDDEN, CLASSES), "logits")
    g.output("logits", np.float32, ["steps", "batch", CLASSES])
    g.output("cell", np.float32, [2, "batch", HIDDEN])
    return g.build()


def inputs(steps: int, batch: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {"tokens": rng.integers(0, VOCABULARY, (steps, batch))}
