"""Small models with random weights for tasks of transformers.js, in folders as the Hub has them.

Each function writes one folder: models with the inputs and outputs that Optimum gives them, and the files by which transformers.js
makes their inputs. What they give is compared with onnxruntime-web, so nothing is expected here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.zoo import whisper
from tests.zoo.graph import GraphBuilder
from tests.zoo.layers import Layers

PREMISE = "the phone gets hot when I open the app"
LABELS = ("phones", "food", "music")
QUERY = "how many people live in Berlin"
PASSAGES = ("Berlin has many people", "Paris is old", "people in Berlin live long , how they say")
SAMPLES = {"rate": 16000, "count": 16000}  # of a sound, a second
PIXELS = 64  # of an image, along each side
_PLACES = 64  # of words in a text
_MASK = 64  # elements along each side of the mask that transformers.js makes for an image
_CLASSES = ("cat", "dog", "car")


def _configure(folder: Path, name: str = "config.json", **values: Any) -> None:
    (folder / name).write_text(json.dumps(values))


def _save(folder: Path, model: onnx.ModelProto, name: str = "model.onnx") -> None:
    onnx.save(model, folder / "onnx" / name)


def _renamed(model: onnx.ModelProto, names: dict[str, str]) -> onnx.ModelProto:
    """The model with other names of values, in place."""
    for node in model.graph.node:
        node.input[:] = [names.get(it, it) for it in node.input]
        node.output[:] = [names.get(it, it) for it in node.output]
    for value in (*model.graph.input, *model.graph.output):
        value.name = names.get(value.name, value.name)
    return model


# ---- pairs of texts


def zero_shot(folder: Path) -> None:
    """Whether a text entails another one, contradicts it, or neither."""
    labels = ("contradiction", "neutral", "entailment")
    _pairs(folder, labels, [PREMISE, "This example is", ".", *LABELS], seed=31)


def reranking(folder: Path) -> None:
    """How well a passage answers a query: one number."""
    _pairs(folder, ("LABEL_0",), [QUERY, *PASSAGES], seed=32)


def _pairs(folder: Path, labels: Sequence[str], texts: Sequence[str], seed: int) -> None:
    words = sorted({word for text in texts for word in text.split()})
    known = {word: k for k, word in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", *words))}
    _save(folder, _classifier(len(known), len(labels), seed))
    ids = {str(k): name for k, name in enumerate(labels)}
    _configure(
        folder, model_type="bert", architectures=["BertForSequenceClassification"], id2label=ids,
        label2id={name: int(k) for k, name in ids.items()}, hidden_size=32, pad_token_id=0,
    )  # fmt: skip
    special = [_added(known[it], it) for it in ("[PAD]", "[UNK]", "[CLS]", "[SEP]")]
    _configure(
        folder, "tokenizer.json", version="1.0", truncation=None, padding=None, added_tokens=special, normalizer=None,
        pre_tokenizer={"type": "Whitespace"}, decoder=None,
        post_processor={
            "type": "TemplateProcessing",
            "single": _template(("[CLS]", 0), ("A", 0), ("[SEP]", 0)),
            "pair": _template(("[CLS]", 0), ("A", 0), ("[SEP]", 0), ("B", 1), ("[SEP]", 1)),
            "special_tokens": {it: {"id": it, "ids": [known[it]], "tokens": [it]} for it in ("[CLS]", "[SEP]")},
        },
        model={"type": "WordLevel", "vocab": known, "unk_token": "[UNK]"},
    )  # fmt: skip
    _configure(
        folder, "tokenizer_config.json", tokenizer_class="BertTokenizer", model_max_length=_PLACES, pad_token="[PAD]",
        unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
    )  # fmt: skip


def _template(*parts: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"Sequence" if it in "AB" else "SpecialToken": {"id": it, "type_id": kind}} for it, kind in parts]


def _added(number: int, content: str) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": content, "special": True} | flags


def _classifier(words: int, labels: int, seed: int, width: int = 32, heads: int = 4) -> onnx.ModelProto:
    """Inputs `input_ids`, `attention_mask`, `token_type_ids` (batch, sequence), output `logits` (batch, labels)."""
    g = GraphBuilder("classifier")
    layers = Layers(g, seed)
    names = ("input_ids", "attention_mask", "token_type_ids")
    ids, mask, kinds = (g.input(it, np.int64, ["batch_size", "sequence_length"]) for it in names)
    length = g.op("Squeeze", g.op("Shape", ids, start=1, end=2), g.const([0]))
    rows = g.op("Range", g.const(0), length, g.const(1))
    x = _embedded(g, layers, {"words": (words, ids), "kinds": (2, kinds), "places": (_PLACES, rows)}, width)
    hidden = g.op("Unsqueeze", g.op("Sub", g.const(1.0), g.op("Cast", mask, to=g.real)), g.const([1, 2]))
    bias = g.op("Mul", hidden, g.const(-1e9))
    attend = _Heads(g, layers, width, heads)
    for k in range(2):
        attended = attend(x, x, bias, f"layer{k}")
        x = layers.layer_norm(g.op("Add", x, attended), width, f"layer{k}.norm1")
        x = layers.layer_norm(g.op("Add", x, layers.feed_forward(x, width, f"layer{k}")), width, f"layer{k}.norm2")
    first = g.op("Gather", x, g.const(0), axis=1)
    layers.gemm(g.op("Tanh", layers.gemm(first, (width, width), "pooled")), (width, labels), "logits")
    g.output("logits", np.float32, ["batch_size", labels])
    return g.build()


def _embedded(g: GraphBuilder, layers: Layers, tables: dict[str, tuple[int, str]], width: int) -> str:
    """The sum of rows of tables, each with its number of rows and the value that chooses among them. Rows are far apart, so that
    rounding decides on nothing."""
    parts = []
    for name, (rows, chosen) in tables.items():
        table = g.weight(name, layers.normal(rows, width, deviation=1.0))
        parts.append(g.op("Gather", table, chosen, axis=0))
    total = parts[0]
    for it in parts[1:]:
        total = g.op("Add", total, it)
    return total


@dataclass(frozen=True)
class _Heads:
    """Attention of `count` heads in a graph of `width`."""

    g: GraphBuilder
    layers: Layers
    width: int
    count: int

    def split(self, x: str, name: str) -> str:
        """x (batch, sequence, width), multiplied, as (batch, heads, sequence, width of a head)."""
        shape = self.g.const([0, 0, self.count, self.width // self.count])
        projected = self.layers.dense(x, (self.width, self.width), name)
        return self.g.op("Transpose", self.g.op("Reshape", projected, shape, allowzero=0), perm=[0, 2, 1, 3])

    def joined(self, parts: Sequence[str], bias: str | None, name: str) -> str:
        """What a query finds by keys among values, each as `split` makes it; (batch, sequence, width)."""
        g, (query, key, value) = self.g, parts
        scores = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
        scores = g.op("Mul", scores, g.const((self.width // self.count) ** -0.5))
        found = g.op("MatMul", g.op("Softmax", g.op("Add", scores, bias) if bias else scores, axis=-1), value)
        merged = g.op("Reshape", g.op("Transpose", found, perm=[0, 2, 1, 3]), g.const([0, 0, self.width]), allowzero=0)
        return self.layers.dense(merged, (self.width, self.width), f"{name}.output")

    def __call__(self, x: str, context: str, bias: str | None, name: str) -> str:
        """Attention of x (batch, sequence, width) to `context`."""
        key, value = (self.split(context, f"{name}.{part}") for part in ("key", "value"))
        return self.joined([self.split(x, f"{name}.query"), key, value], bias, name)


# ---- speech

_WORDS = 60
_END, _START, _PLAIN = "<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>"


def speech(folder: Path) -> None:
    """A Whisper of two seconds of sound, with words that are numbers."""
    size = whisper.SMALL
    _save(
        folder,
        _renamed(whisper.build(size), {"mel": "input_features", "hidden": "last_hidden_state"}),
        "encoder_model.onnx",
    )
    words = {f"w{k}": k for k in range(_WORDS)} | {it: _WORDS + k for k, it in enumerate((_END, _START, _PLAIN))}
    _save(folder, _decoder(len(words), size.width, size.heads), "decoder_model_merged.onnx")
    end, start, plain = (words[it] for it in (_END, _START, _PLAIN))
    _configure(
        folder, model_type="whisper", architectures=["WhisperForConditionalGeneration"], is_encoder_decoder=True,
        d_model=size.width, encoder_attention_heads=size.heads, encoder_layers=size.depth, num_mel_bins=size.mels,
        decoder_attention_heads=size.heads, decoder_layers=2, max_source_positions=size.frames, max_target_positions=_PLACES,
        vocab_size=len(words), decoder_start_token_id=start, eos_token_id=end, pad_token_id=end,
    )  # fmt: skip
    _configure(
        folder, "generation_config.json", is_multilingual=False, decoder_start_token_id=start, eos_token_id=end,
        pad_token_id=end, no_timestamps_token_id=plain, max_length=_PLACES,
    )  # fmt: skip
    rate, step = SAMPLES["rate"], 160
    _configure(
        folder, "preprocessor_config.json", feature_extractor_type="WhisperFeatureExtractor", processor_class="WhisperProcessor",
        sampling_rate=rate, feature_size=size.mels, n_fft=400, hop_length=step, chunk_length=2 * size.frames * step // rate,
        n_samples=2 * size.frames * step, nb_max_frames=2 * size.frames, padding_value=0.0, return_attention_mask=False,
    )  # fmt: skip
    _configure(
        folder, "tokenizer.json", version="1.0", truncation=None, padding=None, normalizer=None, post_processor=None, decoder=None,
        added_tokens=[_added(words[it], it) for it in (_END, _START, _PLAIN)], pre_tokenizer={"type": "WhitespaceSplit"},
        model={"type": "WordLevel", "vocab": words, "unk_token": _END},
    )  # fmt: skip
    _configure(
        folder, "tokenizer_config.json", tokenizer_class="WhisperTokenizer", processor_class="WhisperProcessor",
        eos_token=_END, bos_token=_END, pad_token=_END, unk_token=_END,
    )  # fmt: skip


def _decoder(words: int, width: int, heads: int, depth: int = 2) -> onnx.ModelProto:
    """Both decoders in one model, as Optimum joins them: inputs `input_ids` (batch, sequence), `encoder_hidden_states` (batch,
    frames, width), caches and `use_cache_branch`, which decides between them; `logits` and caches out."""
    g = GraphBuilder("decoder")
    g.input("input_ids", np.int64, ["batch_size", "decoder_sequence_length"])
    g.input("encoder_hidden_states", np.float32, ["batch_size", "encoder_sequence_length", width])
    chosen = g.input("use_cache_branch", np.bool_, [1])
    names = ["logits"]
    g.output("logits", np.float32, ["batch_size", "decoder_sequence_length", words])
    for cache in _caches(depth):
        of = cache.split(".")[1]
        g.input(
            f"past_key_values.{cache}", np.float32, ["batch_size", heads, f"past_{of}_sequence_length", width // heads]
        )
        g.output(f"present.{cache}", np.float32, [None, heads, None, width // heads])
        names.append(f"present.{cache}")
    bodies = {
        name: _body(name, cached, g.weights, words, width, heads, depth)
        for name, cached in (("then_branch", True), ("else_branch", False))
    }
    g.nodes.append(onnx.helper.make_node("If", [chosen], names, "node.if", **bodies))
    return g.build()


def _caches(depth: int) -> list[str]:
    return [f"{k}.{of}.{part}" for k in range(depth) for of in ("decoder", "encoder") for part in ("key", "value")]


def _body(
    name: str, cached: bool, weights: dict[str, onnx.TensorProto], words: int, width: int, heads: int, depth: int
) -> onnx.GraphProto:
    """The decoder of the first words, or with `cached` of those that follow, whose caches of the sound are those of before."""
    g = GraphBuilder(name)
    g.weights = weights  # both bodies have the same ones
    layers = Layers(g, 33)
    attend = _Heads(g, layers, width, heads)
    one, front = g.const(1), g.const([0])
    before = g.const(0)
    if cached:
        before = g.op("Squeeze", g.op("Shape", "past_key_values.0.decoder.key", start=2, end=3), front)
    total = g.op("Add", before, g.op("Squeeze", g.op("Shape", "input_ids", start=1, end=2), front))
    rows = g.op("Range", before, total, one)
    seen = g.op("LessOrEqual", g.op("Range", g.const(0), total, one), g.op("Unsqueeze", rows, g.const([1])))
    bias = g.op("Where", seen, g.const(0.0), g.const(-1e9))
    x = _embedded(g, layers, {"words": (words, "input_ids"), "places": (_PLACES, rows)}, width)
    made: dict[str, str] = {}
    for k in range(depth):
        own, cross = f"layer{k}.self", f"layer{k}.cross"
        normed = layers.layer_norm(x, width, f"layer{k}.norm1")
        parts, sound = [attend.split(normed, f"{own}.query")], {}
        for part in ("key", "value"):
            cache = f"{k}.decoder.{part}"
            made[cache] = attend.split(normed, f"{own}.{part}")
            if cached:
                made[cache] = g.op("Concat", f"past_key_values.{cache}", made[cache], axis=2)
            parts.append(made[cache])
        x = g.op("Add", x, attend.joined(parts, bias, own))
        normed = layers.layer_norm(x, width, f"layer{k}.norm2")
        parts = [attend.split(normed, f"{cross}.query")]
        for part in ("key", "value"):
            cache = f"{k}.encoder.{part}"
            sound[cache] = f"past_key_values.{cache}"
            if not cached:
                sound[cache] = attend.split("encoder_hidden_states", f"{cross}.{part}")
            parts.append(sound[cache])
        x = g.op("Add", x, attend.joined(parts, None, cross))
        # What nobody reads, because it would be as before, is empty.
        empty = g.weight("empty", np.zeros((0, heads, 1, width // heads), np.float32))
        made |= {cache: empty if cached else it for cache, it in sound.items()}
        x = g.op("Add", x, layers.feed_forward(layers.layer_norm(x, width, f"layer{k}.norm3"), width, f"layer{k}"))
    made["logits"] = layers.dense(layers.layer_norm(x, width, "norm"), (width, words), "chosen")
    outputs = []
    for it in ("logits", *_caches(depth)):
        found, rank = g.op("Identity", made[it], out=f"{name}.{it}"), 3 if it == "logits" else 4
        outputs.append(onnx.helper.make_tensor_value_info(found, onnx.TensorProto.FLOAT, [None] * rank))
    return onnx.helper.make_graph(g.nodes, name, [], outputs)


# ---- images


def objects(folder: Path) -> None:
    """A DETR of a few queries over patches of an image."""
    _save(folder, _detector(len(_CLASSES) + 1))
    _configure(folder, model_type="detr", architectures=["DetrForObjectDetection"], id2label=dict(enumerate(_CLASSES)))
    _configure(
        folder, "preprocessor_config.json", image_processor_type="DetrImageProcessor", do_resize=False, do_rescale=True,
        rescale_factor=1 / 255, do_normalize=True, image_mean=[0.5] * 3, image_std=[0.5] * 3,
    )  # fmt: skip


def _detector(classes: int, queries: int = 6, width: int = 32, heads: int = 4, patch: int = 16) -> onnx.ModelProto:
    """Inputs `pixel_values` (batch, 3, PIXELS, PIXELS), `pixel_mask` (batch, 64, 64); outputs `logits` (batch, queries, classes),
    `pred_boxes` (batch, queries, 4)."""
    g = GraphBuilder("detector")
    layers = Layers(g, 34)
    image = g.input("pixel_values", np.float32, ["batch_size", 3, PIXELS, PIXELS])
    mask = g.input("pixel_mask", np.int64, ["batch_size", _MASK, _MASK])
    x = layers.conv(image, (3, width), patch, "patch", stride=patch, padded=False)
    x = g.op("Transpose", g.op("Reshape", x, g.const([0, width, -1]), allowzero=0), perm=[0, 2, 1])
    # A patch that is outside of the image is not looked at.
    step = g.const([patch, patch])
    inside = g.op("Slice", mask, g.const([0, 0]), g.const([_MASK, _MASK]), g.const([1, 2]), step)
    inside = g.op("Reshape", inside, g.const([0, 1, 1, -1]), allowzero=0)
    bias = g.op("Mul", g.op("Sub", g.const(1.0), g.op("Cast", inside, to=g.real)), g.const(-1e9))
    batch = g.op("Shape", image, start=0, end=1)
    shape = g.op("Concat", batch, g.const([1]), g.const([1]), axis=0)
    asked = g.op("Expand", g.weight("queries", layers.normal(1, queries, width, deviation=1.0)), shape)
    y = g.op("Add", asked, _Heads(g, layers, width, heads)(asked, x, bias, "cross"))
    y = g.op("Add", y, layers.feed_forward(layers.layer_norm(y, width, "norm1"), width, "fed"))
    y = layers.layer_norm(y, width, "norm2")
    g.op("Mul", layers.dense(y, (width, classes), "narrow"), g.const(4.0), out="logits")
    g.op("Sigmoid", layers.dense(y, (width, 4), "boxes"), out="pred_boxes")
    g.output("logits", np.float32, ["batch_size", queries, classes])
    g.output("pred_boxes", np.float32, ["batch_size", queries, 4])
    return g.build()


ALL = (zero_shot, reranking, speech, objects)


def given() -> dict[str, Any]:
    """What the pages give to the models."""
    return {
        "premise": PREMISE,
        "labels": LABELS,
        "query": QUERY,
        "passages": PASSAGES,
        "samples": SAMPLES,
        "pixels": PIXELS,
    }
