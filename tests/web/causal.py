"""A small causal language model with random weights and a KV cache, with the inputs and outputs that Optimum gives one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from tests.zoo.graph import GraphBuilder
from tests.zoo.layers import Layers

# The token that ends a text, as a tokenizer.json lists it.
END = {
    "id": 0,
    "content": "</s>",
    "single_word": False,
    "lstrip": False,
    "rstrip": False,
    "normalized": False,
    "special": True,
}


@dataclass(frozen=True)
class Size:
    words: int = 64
    positions: int = 128
    width: int = 32
    heads: int = 4
    layers: int = 2

    @property
    def head(self) -> int:
        return self.width // self.heads


def build(size: Size = Size(), cache: bool = True) -> onnx.ModelProto:
    """Inputs `input_ids`, `position_ids` (batch, sequence), `attention_mask` (batch, total) and caches; `logits` and caches out.

    Without a cache: `input_ids` alone, and logits for every position, as models for a loop without state are.
    """
    g = GraphBuilder("causal")
    layers = Layers(g, 21)
    width, heads, head = size.width, size.heads, size.head
    ids = g.input("input_ids", np.int64, ["batch_size", "sequence_length"])
    length = g.op("Shape", ids, start=1, end=2)
    zero, one = g.const(0), g.const(1)
    if cache:
        mask = g.input("attention_mask", np.int64, ["batch_size", "total_sequence_length"])
        positions = g.input("position_ids", np.int64, ["batch_size", "sequence_length"])
        total = g.op("Squeeze", g.op("Shape", mask, start=1, end=2), g.const([0]))
    else:
        total = g.op("Squeeze", length, g.const([0]))
        positions = g.op("Unsqueeze", g.op("Range", zero, total, one), g.const([0]))
    # By place and not by position, so that a text may begin with padding that the mask hides.
    columns = g.op("Range", zero, total, one)
    rows = g.op("Range", g.op("Sub", total, g.op("Squeeze", length, g.const([0]))), total, one)
    seen = g.op("LessOrEqual", columns, g.op("Unsqueeze", rows, g.const([0, 2])))
    if cache:
        here = g.op("Equal", g.op("Unsqueeze", mask, g.const([1])), one)
        seen = g.op("And", seen, here)
    bias = g.op("Unsqueeze", g.op("Where", seen, g.const(0.0), g.const(-1e9)), g.const([1]))

    # Logits far apart, so that rounding decides on no token.
    words = g.weight("words", layers.normal(size.words, width, deviation=1.0))
    places = g.weight("places", layers.normal(size.positions, width, deviation=1.0))
    x = g.op("Add", g.op("Gather", words, ids, axis=0), g.op("Gather", places, positions, axis=0))
    split, merged = g.const([0, 0, heads, head]), g.const([0, 0, width])
    for i in range(size.layers):
        normed = layers.layer_norm(x, width, f"layer{i}.norm1")
        parts = []
        for part in ("query", "key", "value"):
            projected = layers.dense(normed, (width, width), f"layer{i}.{part}")
            parts.append(g.op("Transpose", g.op("Reshape", projected, split, allowzero=0), perm=[0, 2, 1, 3]))
        if cache:
            for k, part in ((1, "key"), (2, "value")):
                past = g.input(
                    f"past_key_values.{i}.{part}", np.float32, ["batch_size", heads, "past_sequence_length", head]
                )
                parts[k] = g.op("Concat", past, parts[k], axis=2, out=f"present.{i}.{part}")
        query, key, value = parts
        scores = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = g.op("Add", g.op("Mul", scores, g.const(head**-0.5)), bias)
        joined = g.op("MatMul", g.op("Softmax", scores, axis=-1), value)
        joined = g.op("Reshape", g.op("Transpose", joined, perm=[0, 2, 1, 3]), merged, allowzero=0)
        x = g.op("Add", x, layers.dense(joined, (width, width), f"layer{i}.output"))
        x = g.op("Add", x, layers.feed_forward(layers.layer_norm(x, width, f"layer{i}.norm2"), width, f"layer{i}"))
    layers.dense(layers.layer_norm(x, width, "norm"), (width, size.words), "logits")
    g.output("logits", np.float32, ["batch_size", "sequence_length", size.words])
    if cache:
        for i in range(size.layers):
            for part in ("key", "value"):
                g.output(f"present.{i}.{part}", np.float32, ["batch_size", heads, "total_sequence_length", head])
    return g.build()


def continued(session: ort.InferenceSession, prompt: list[int], count: int) -> list[int]:
    """The `count` tokens that follow `prompt`, each the likeliest, by the CPU provider."""
    inputs = {it.name: it for it in session.get_inputs()}
    caches = [it for it in inputs.values() if it.name.startswith("past")]
    state: dict[str, Any] = {}
    for it in caches:
        _, heads, _, width = it.shape
        state[it.name] = np.zeros((1, heads, 0, width), np.float32)
    out: list[int] = []
    tokens, total = prompt, 0
    for _ in range(count):
        total += len(tokens)
        feeds = {
            "input_ids": np.array([tokens], np.int64),
            "position_ids": np.arange(total - len(tokens), total, dtype=np.int64)[None],
            "attention_mask": np.ones((1, total), np.int64),
        }
        found = session.run(None, {name: it for name, it in feeds.items() if name in inputs} | state)
        results = dict(zip((it.name for it in session.get_outputs()), found, strict=True))
        state = {it.name: results[it.name.replace("past_key_values", "present")] for it in caches}
        out.append(int(results["logits"][0, -1].argmax()))
        tokens = out[-1:]
    return out
