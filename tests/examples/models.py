"""Small models with random weights in the folder layouts that examples/ reads: an encoder and a decoder as optimum exports T5 and
Whisper, and a vision-language model as transformers.js has them. Attention is written out, and caches grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.zoo.graph import GraphBuilder

F = np.float32
HEADS, SIZE, LAYERS, WORDS = 4, 8, 2, 60
HIDDEN = HEADS * SIZE
MELS, FRAMES = 80, 60
IMAGE, SIDE, PATCH = 5, 12, 4


class Network(GraphBuilder):
    """A graph whose weights are random numbers, by name the same in every graph."""

    def random(self, name: str, *shape: int, scale: float = 1.0) -> str:
        seed = np.frombuffer(name.encode(), np.uint8)
        return self.weight(name, (np.random.default_rng(seed).standard_normal(shape) * scale).astype(F))

    def linear(self, x: str, name: str, inner: int = HIDDEN, outer: int = HIDDEN, scale: float = 1.0) -> str:
        return self.op("MatMul", x, self.random(name, inner, outer, scale=scale / np.sqrt(inner)))

    def norm(self, x: str, name: str) -> str:
        gain, bias = self.weight(f"{name}.gain", np.ones(HIDDEN, F)), self.random(f"{name}.bias", HIDDEN, scale=0.1)
        return self.op("LayerNormalization", x, gain, bias, axis=-1, epsilon=1e-5)

    def heads(self, x: str) -> str:
        """(batch, steps, hidden) as (batch, heads, steps, size)."""
        return self.op("Transpose", self.op("Reshape", x, self.const([0, 0, HEADS, SIZE])), perm=[0, 2, 1, 3])

    def attended(self, q: str, k: str, v: str, mask: str | None, name: str) -> str:
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.op("Mul", scores, self.const(SIZE**-0.5, F))
        if mask is not None:
            scores = self.op("Add", scores, mask)
        mixed = self.op("Transpose", self.op("MatMul", self.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        return self.linear(self.op("Reshape", mixed, self.const([0, 0, HIDDEN])), f"{name}.o")

    def added(self, x: str, name: str) -> str:
        """x and two layers of it."""
        inner = self.op("Relu", self.linear(self.norm(x, f"{name}.ffn"), f"{name}.up", HIDDEN, 2 * HIDDEN))
        return self.op("Add", x, self.linear(inner, f"{name}.down", 2 * HIDDEN, HIDDEN))

    def hidden_from(self, mask: str) -> str:
        """A mask (batch, keys) of 0 and 1 as what is added to scores."""
        four = self.op("Unsqueeze", self.op("Cast", mask, to=1), self.const([1, 2]))
        return self.op("Mul", self.op("Sub", four, self.const(1.0, F)), self.const(1e9, F))

    def causal(self, steps_of: str, total_of: str) -> str:
        """What is added to scores of the last steps (axis 1 of one value) against all keys (axis 2 of the other)."""
        steps = self.op("Squeeze", self.op("Shape", steps_of, start=1, end=2))
        total = self.op("Squeeze", self.op("Shape", total_of, start=2, end=3))
        zero, one = self.const(0), self.const(1)
        rows = self.op("Unsqueeze", self.op("Range", self.op("Sub", total, steps), total, one), self.const([1]))
        columns = self.op("Unsqueeze", self.op("Range", zero, total, one), self.const([0]))
        seen = self.op("LessOrEqual", columns, rows)
        return self.op("Where", seen, self.const(0.0, F), self.const(-1e9, F))

    def cached(self, x: str, kind: str, name: str, layer: int, past: bool, where: str) -> str:
        """Keys or values of x behind those of the cache."""
        new = self.heads(self.linear(x, f"{name}.{kind}"))
        out = f"present.{layer}.{where}{kind}"
        self.output(out, F, ["batch", HEADS, f"{where}all", SIZE])
        if not past:
            return self.op("Identity", new, out=out)
        given = self.input(f"past_key_values.{layer}.{where}{kind}", F, ["batch", HEADS, f"{where}past", SIZE])
        return self.op("Concat", given, new, out=out, axis=2)

    def logits(self, x: str) -> None:
        self.linear(self.norm(x, "end"), "head", HIDDEN, WORDS, scale=4.0)
        self.nodes[-1].output[0] = "logits"
        self.output("logits", F, ["batch", "steps", WORDS])


def encoder(speech: bool) -> onnx.ModelProto:
    g = Network("encoder")
    mask = None
    if speech:
        x = g.input("input_features", F, ["batch", MELS, FRAMES])
        for k, (inner, stride) in enumerate(((MELS, 1), (HIDDEN, 2))):
            weight = g.random(f"conv{k}", HIDDEN, inner, 3, scale=(3 * inner) ** -0.5)
            x = g.op("Relu", g.op("Conv", x, weight, pads=[1, 1], strides=[stride], kernel_shape=[3]))
        x = g.op("Transpose", x, perm=[0, 2, 1])
    else:
        x = g.op("Gather", g.random("words", WORDS, HIDDEN), g.input("input_ids", np.int64, ["batch", "source"]))
        mask = g.hidden_from(g.input("attention_mask", np.int64, ["batch", "source"]))
    for layer in range(LAYERS):
        name = f"encoder{layer}"
        normed = g.norm(x, name)
        q, k, v = (g.heads(g.linear(normed, f"{name}.{it}")) for it in ("query", "key", "value"))
        x = g.added(g.op("Add", x, g.attended(q, k, v, mask, name)), name)
    g.op("Identity", x, out="last_hidden_state")
    g.output("last_hidden_state", F, ["batch", "source", HIDDEN])
    return g.build()


def decoder(speech: bool, past: bool) -> onnx.ModelProto:
    """As optimum exports it: the first step makes keys and values of what the encoder made, the later ones read them."""
    g = Network("decoder")
    ids = g.input("input_ids", np.int64, ["batch", "steps"])
    hidden = "" if past else g.input("encoder_hidden_states", F, ["batch", "source", HIDDEN])
    mask = None if speech else g.hidden_from(g.input("encoder_attention_mask", np.int64, ["batch", "source"]))
    x = g.op("Gather", g.random("words", WORDS, HIDDEN), ids)
    for layer in range(LAYERS):
        name = f"decoder{layer}"
        normed = g.norm(x, name)
        q = g.heads(g.linear(normed, f"{name}.query"))
        k, v = (g.cached(normed, it, name, layer, past, "decoder.") for it in ("key", "value"))
        x = g.op("Add", x, g.attended(q, k, v, g.causal(x, k), name))
        q = g.heads(g.linear(g.norm(x, f"{name}.cross"), f"{name}.cross.query"))
        if past:
            shape = ["batch", HEADS, "source", SIZE]
            k, v = (g.input(f"past_key_values.{layer}.encoder.{it}", F, shape) for it in ("key", "value"))
        else:
            k, v = (g.cached(hidden, it, f"{name}.cross", layer, False, "encoder.") for it in ("key", "value"))
        x = g.added(g.op("Add", x, g.attended(q, k, v, mask, f"{name}.cross")), name)
    g.logits(x)
    return g.build()


def write_encoder_decoder(folder: Path, speech: bool) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(encoder(speech), folder / "encoder_model.onnx")
    onnx.save(decoder(speech, past=False), folder / "decoder_model.onnx")
    onnx.save(decoder(speech, past=True), folder / "decoder_with_past_model.onnx")
    _configure(folder, decoder_start_token_id=3, eos_token_id=2)
    return folder


def vision_encoder() -> onnx.ModelProto:
    g = Network("vision_encoder")
    pixels = g.input("pixel_values", F, ["batch", 3, SIDE, SIDE])
    patches = g.op("Conv", pixels, g.random("patches", HIDDEN, 3, PATCH, PATCH, scale=0.2), strides=[PATCH, PATCH])
    rows = g.op("Transpose", g.op("Reshape", patches, g.const([0, 0, -1])), perm=[0, 2, 1])
    g.op("Identity", g.added(rows, "vision"), out="image_features")
    g.output("image_features", F, ["batch", (SIDE // PATCH) ** 2, HIDDEN])
    return g.build()


def embeddings() -> onnx.ModelProto:
    g = Network("embed_tokens")
    ids = g.input("input_ids", np.int64, ["batch", "steps"])
    g.op("Gather", g.random("words", WORDS, HIDDEN), ids, out="inputs_embeds")
    g.output("inputs_embeds", F, ["batch", "steps", HIDDEN])
    return g.build()


def language_decoder() -> onnx.ModelProto:
    g = Network("decoder")
    x = g.input("inputs_embeds", F, ["batch", "steps", HIDDEN])
    mask = g.hidden_from(g.input("attention_mask", np.int64, ["batch", "total"]))
    places = g.op(
        "Gather", g.random("places", 64, HIDDEN, scale=0.3), g.input("position_ids", np.int64, ["batch", "steps"])
    )
    x = g.op("Add", x, places)
    for layer in range(LAYERS):
        name = f"language{layer}"
        normed = g.norm(x, name)
        q = g.heads(g.linear(normed, f"{name}.query"))
        k, v = (g.cached(normed, it, name, layer, True, "") for it in ("key", "value"))
        x = g.added(g.op("Add", x, g.attended(q, k, v, g.op("Add", g.causal(x, k), mask), name)), name)
    g.logits(x)
    return g.build()


def write_vision_language(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(vision_encoder(), folder / "vision_encoder.onnx")
    onnx.save(embeddings(), folder / "embed_tokens.onnx")
    onnx.save(language_decoder(), folder / "decoder_model_merged.onnx")
    _configure(folder, image_token_id=IMAGE, eos_token_id=2)
    return folder


def _configure(folder: Path, **settings: Any) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    (folder / "config.json").write_text(json.dumps(settings))
    tokenizer = Tokenizer(models.WordLevel({f"w{k}": k for k in range(WORDS)}, unk_token="w1"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
