"""Small decoder models in the folder layout of onnxruntime-genai, as its model builder exports Llama and Qwen: random weights,
written without torch.

In: a `Decoder`. Out: a folder with model.onnx, genai_config.json and a tokenizer of bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

MICROSOFT = "com.microsoft"
SPECIAL = ("<|pad|>", "<|bos|>", "<|eos|>")


@dataclass(frozen=True)
class Decoder:
    """`kind`: fp32, fp16, int4 or int4-fp32 (activations in f32). `captured`: lengths are calculated on the device, as
    `enable_webgpu_graph` asks for. Without `positions` a growing model counts what its mask has."""

    kind: str = "fp32"
    captured: bool = False
    layers: int = 2
    heads: int = 4
    groups: int = 2
    size: int = 16
    inner: int = 96
    vocabulary: int = 320
    length: int = 128
    seed: int = 0
    positions: bool = True

    @property
    def hidden(self) -> int:
        return self.heads * self.size

    @property
    def float_type(self) -> Any:
        return np.float16 if self.kind in ("fp16", "int4") else np.float32

    @property
    def quantised(self) -> bool:
        return self.kind.startswith("int4")


class _Graph:
    """Appends the nodes of a model."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(decoder.seed)

    def node(self, op: str, inputs: Sequence[str], outputs: Sequence[str] | str, domain: str = "", **more: Any) -> str:
        outputs = [outputs] if isinstance(outputs, str) else list(outputs)
        self.nodes.append(helper.make_node(op, list(inputs), outputs, name=outputs[0], domain=domain, **more))
        return outputs[0]

    def weight(self, name: str, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def floats(self, name: str, *shape: int, scale: float = 1.0) -> str:
        return self.weight(name, (self.random.standard_normal(shape) * scale).astype(self.decoder.float_type))

    def gain(self, name: str, size: int) -> str:
        return self.weight(name, (1 + 0.2 * self.random.standard_normal(size)).astype(self.decoder.float_type))

    def product(self, x: str, name: str, k: int, n: int, scale: float = 1.0) -> str:
        """x times random weights (k, n), in blocks of 4 bits when the model is quantised."""
        matrix = self.random.standard_normal((k, n)) * (scale / np.sqrt(k))
        if not self.decoder.quantised:
            return self.node("MatMul", [x, self.weight(name, matrix.astype(self.decoder.float_type))], f"{name}.y")
        block = 32
        blocks = matrix.T.reshape(n, k // block, block)
        scales = np.abs(blocks).max(-1) / 7
        levels = np.clip(np.round(blocks / scales[..., None]) + 8, 0, 15).astype(np.uint8)
        packed = levels[..., ::2] | levels[..., 1::2] << 4
        inputs = [
            x, self.weight(f"{name}.q", packed), self.weight(f"{name}.s", scales.astype(self.decoder.float_type)),
        ]  # fmt: skip
        how = {"K": k, "N": n, "bits": 4, "block_size": block, "accuracy_level": 4}
        return self.node("MatMulNBits", inputs, f"{name}.y", MICROSOFT, **how)


def graph_of(decoder: Decoder) -> onnx.ModelProto:
    """The model: ids, a mask and caches in, logits and caches out."""
    g, d = _Graph(decoder), decoder
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(d.float_type))
    _lengths(g)
    table = g.floats("embeddings", d.vocabulary, d.hidden)
    x = g.node("Gather", [table, "input_ids"], "embedded")
    angles = np.arange(d.length)[:, None] / 100.0 ** (np.arange(d.size // 2) / (d.size // 2))
    cosines = g.weight("cosines", np.cos(angles).astype(d.float_type))
    sines = g.weight("sines", np.sin(angles).astype(d.float_type))
    wide = (d.heads + 2 * d.groups) * d.size
    normed = g.node(
        "SimplifiedLayerNormalization", [x, g.gain("first", d.hidden)], "normed", axis=-1, epsilon=1e-5, stash_type=1
    )
    for k in range(d.layers):
        attended = f"layer{k}.attended"
        qkv = g.product(normed, f"layer{k}.qkv", d.hidden, wide)
        inputs = [
            qkv, "", "", f"past_key_values.{k}.key", f"past_key_values.{k}.value", "seqlens", "total", cosines, sines,
        ]  # fmt: skip
        g.node(
            "GroupQueryAttention", inputs, [attended, f"present.{k}.key", f"present.{k}.value"], MICROSOFT,
            num_heads=d.heads, kv_num_heads=d.groups, scale=d.size**-0.5, local_window_size=-1, softcap=0.0, do_rotary=1,
            rotary_interleaved=0,
        )  # fmt: skip
        added = g.product(attended, f"layer{k}.o", d.hidden, d.hidden)
        normed, x = _skip_norm(g, x, added, f"layer{k}.middle", last=False)
        gate = g.product(normed, f"layer{k}.gate", d.hidden, d.inner)
        up = g.product(normed, f"layer{k}.up", d.hidden, d.inner)
        sigmoid = g.node("Sigmoid", [gate], f"layer{k}.sigmoid")
        silu = g.node("Mul", [gate, sigmoid], f"layer{k}.silu")
        product = g.node("Mul", [silu, up], f"layer{k}.product")
        down = g.product(product, f"layer{k}.down", d.inner, d.hidden)
        normed, x = _skip_norm(g, x, down, f"layer{k}.end", last=k == d.layers - 1)
    g.product(normed, "head", d.hidden, d.vocabulary, scale=8.0)
    g.nodes[-1].output[0] = "logits"
    cache = ["batch_size", d.groups, "past_sequence_length", d.size]
    present = ["batch_size", d.groups, "total_sequence_length", d.size]
    names = [f"{k}.{x}" for x in ("key", "value") for k in range(d.layers)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        g.nodes,
        "decoder",
        [
            value("input_ids", 7, ["batch_size", "sequence_length"]),
            value("attention_mask", 7, ["batch_size", "total_sequence_length"]),
            *(value(f"past_key_values.{n}", kind, cache) for n in names),
        ],
        [
            value("logits", kind, ["batch_size", "sequence_length", d.vocabulary]),
            *(value(f"present.{n}", kind, present) for n in names),
        ],
        g.weights,
    )
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _lengths(g: _Graph) -> None:
    """`seqlens` and `total` of the mask."""
    one = g.weight("one", np.array(1, np.int64))
    if g.decoder.captured:
        mask = g.node("Cast", ["attention_mask"], "mask32", to=6)
        axes, one32 = g.weight("axes", np.array([1], np.int64)), g.weight("one32", np.array(1, np.int32))
        lengths = g.node("ReduceSum", [mask, axes], "lengths", keepdims=0)
        g.node("Sub", [lengths, one32], "seqlens")
        g.node("ReduceMax", [lengths], "total", keepdims=0)
        return
    axes = g.weight("axes", np.array([1], np.int64))
    lengths = g.node("ReduceSum", ["attention_mask", axes], "lengths", keepdims=0)
    g.node("Cast", [g.node("Sub", [lengths, one], "before")], "seqlens", to=6)
    extents = g.node("Shape", ["attention_mask"], "extents")
    g.node("Cast", [g.node("Gather", [extents, one], "total64", axis=0)], "total", to=6)


def _skip_norm(g: _Graph, x: str, added: str, name: str, last: bool) -> tuple[str, str]:
    outputs = [name] if last else [name, "", "", f"{name}.sum"]
    inputs = [x, added, g.gain(f"{name}.gain", g.decoder.hidden)]
    g.node("SkipSimplifiedLayerNormalization", inputs, outputs, MICROSOFT, epsilon=1e-5)
    return name, outputs[-1]


def config_of(decoder: Decoder) -> dict[str, Any]:
    d = decoder
    return {
        "model": {
            "bos_token_id": 1,
            "context_length": d.length,
            "decoder": {
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "filename": "model.onnx",
                "head_size": d.size,
                "hidden_size": d.hidden,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
                "num_attention_heads": d.heads,
                "num_hidden_layers": d.layers,
                "num_key_value_heads": d.groups,
            },
            "eos_token_id": 2,
            "pad_token_id": 0,
            "type": "llama",
            "vocab_size": d.vocabulary,
        },
        "search": {
            "diversity_penalty": 0.0,
            "do_sample": False,
            "early_stopping": True,
            "length_penalty": 1.0,
            "max_length": d.length,
            "min_length": 0,
            "no_repeat_ngram_size": 0,
            "num_beams": 1,
            "num_return_sequences": 1,
            "past_present_share_buffer": True,
            "repetition_penalty": 1.0,
            "temperature": 1.0,
            "top_k": 1,
            "top_p": 1.0,
        },
    }


def write(decoder: Decoder, folder: Path) -> Path:
    """Writes the folder; gives it back."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(graph_of(decoder), folder / "model.onnx")
    return write_beside(decoder, folder)


def write_beside(decoder: Decoder, folder: Path) -> Path:
    """Writes what such a folder has beside the model; gives it back."""
    (folder / "genai_config.json").write_text(json.dumps(config_of(decoder), indent=1))
    _write_tokenizer(decoder, folder)
    return folder


def growing_graph_of(d: Decoder) -> onnx.ModelProto:
    """A model as optimum exports GPT-2: learned positions, caches that are one step longer afterwards, any number of heads."""
    g = _Graph(d)
    tokens = g.node("Gather", [g.floats("embeddings", d.vocabulary, d.hidden), "input_ids"], "tokens")
    table = g.floats("places", d.length, d.hidden, scale=0.5)
    places = g.node("Gather", [table, "position_ids" if d.positions else _counted(g)], "at")
    x = g.node("Add", [tokens, places], "embedded")
    g.node("Cast", ["attention_mask"], "mask", to=6)
    for k in range(d.layers):
        normed = g.node(
            "SimplifiedLayerNormalization", [x, g.gain(f"layer{k}.gain", d.hidden)], f"layer{k}.normed", axis=-1
        )
        parts = [g.product(normed, f"layer{k}.{n}", d.hidden, d.hidden) for n in "qkv"]
        inputs = [*parts, "", "mask", "", f"past_key_values.{k}.key", f"past_key_values.{k}.value"]
        outputs = [f"layer{k}.attended", f"present.{k}.key", f"present.{k}.value"]
        attended = g.node("MultiHeadAttention", inputs, outputs, MICROSOFT, num_heads=d.heads, unidirectional=1)
        x = g.node("Add", [x, g.product(attended, f"layer{k}.o", d.hidden, d.hidden)], f"layer{k}.sum")
        inner = g.node("Tanh", [g.product(x, f"layer{k}.up", d.hidden, d.inner)], f"layer{k}.inner")
        x = g.node("Add", [x, g.product(inner, f"layer{k}.down", d.inner, d.hidden)], f"layer{k}.end")
    g.product(x, "head", d.hidden, d.vocabulary, scale=2.0)
    g.nodes[-1].output[0] = "logits"
    value, names = helper.make_tensor_value_info, [f"{k}.{x}" for k in range(d.layers) for x in ("key", "value")]
    cache = ["batch_size", d.heads, "past_sequence_length", d.size]
    present = ["batch_size", d.heads, "past_sequence_length + sequence_length", d.size]
    given = ("input_ids", "position_ids") if d.positions else ("input_ids",)
    ids = [value(n, 7, ["batch_size", "sequence_length"]) for n in given]
    mask = value("attention_mask", 7, ["batch_size", "past_sequence_length + sequence_length"])
    graph = helper.make_graph(
        g.nodes, "decoder", [*ids, mask, *(value(f"past_key_values.{n}", 1, cache) for n in names)],
        [value("logits", 1, ["batch_size", "sequence_length", d.vocabulary]), *(value(f"present.{n}", 1, present) for n in names)],
        g.weights,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _counted(g: _Graph) -> str:
    """Positions of the last ids, by the mask."""
    one, zero, last = (g.weight(f"number{k}", np.array([k], np.int64)) for k in (1, 0, np.iinfo(np.int64).max))
    axis = g.weight("axis", np.array(1, np.int64))
    before = g.node("Sub", [g.node("CumSum", ["attention_mask", axis], "counted"), one], "all positions")
    steps = g.node("Shape", ["input_ids"], "steps", start=1)
    there = g.node("Slice", [before, g.node("Neg", [steps], "first"), last, one], "last positions")
    return g.node("Max", [there, zero], "positions")


def write_growing(decoder: Decoder, folder: Path) -> Path:
    """Writes a folder in optimum's layout; gives it back."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(growing_graph_of(decoder), folder / "model.onnx")
    config = {"eos_token_id": 2, "n_positions": decoder.length, "vocab_size": decoder.vocabulary}
    (folder / "config.json").write_text(json.dumps(config))
    _write_tokenizer(decoder, folder)
    return folder


def _write_tokenizer(decoder: Decoder, folder: Path) -> None:
    """Bytes, and special tokens before them."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: k for k, token in enumerate((*SPECIAL, *alphabet))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(it, special=True) for it in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|bos|>", "eos_token": "<|eos|>",
        "pad_token": "<|pad|>", "chat_template": template, "model_max_length": decoder.length,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
