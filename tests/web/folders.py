"""Model folders as the Hub has them, exported for transformers.js, and what its pipelines should give there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from onnxruntime_ep_wgpu.api.transformers_export import export_transformers
from tests.zoo import minilm, vit

from . import causal, tasks

SENTENCES = ("A man is eating food.", "Someone is having a meal of pasta in the kitchen.")
WORDS = 8  # of the prompt
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def write(folder: Path) -> None:
    """Exports NAME for each of embeddings, images and text to `folder`/NAME, with what is expected in NAME.json; and the folders of
    `tasks`, whose inputs are in tasks.json. What was exported is in `folder`/hub."""
    for make in (_embeddings, _images, text):
        name = make.__name__.removeprefix("_")
        source = folder / "hub" / name
        (source / "onnx").mkdir(parents=True)
        expected = make(source)
        (folder / f"{name}.json").write_text(json.dumps(expected))
        export_transformers(source, folder / name, with_onnx=name == "embeddings")
    for write_folder in tasks.ALL:
        source = folder / "hub" / write_folder.__name__
        (source / "onnx").mkdir(parents=True)
        write_folder(source)
        export_transformers(source, folder / write_folder.__name__)
    (folder / "tasks.json").write_text(json.dumps(tasks.given()))


def _save(folder: Path, model: onnx.ModelProto) -> ort.InferenceSession:
    onnx.save(model, folder / "onnx" / "model.onnx")
    return _cpu(model)


def _cpu(model: onnx.ModelProto) -> ort.InferenceSession:
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def _configure(folder: Path, name: str = "config.json", **values: Any) -> None:
    (folder / name).write_text(json.dumps(values))


def _embeddings(folder: Path) -> Any:
    """MiniLM's real weights, up to the last layer: pooling is the pipeline's. Expected: its vectors in Python."""
    from tokenizers import Tokenizer

    weights = minilm.weights_folder()
    for name in ("config.json", *TOKENIZER):
        shutil.copyfile(weights / name, folder / name)
    model = minilm.build()
    whole = _cpu(model)
    last = next(it.output[0] for it in reversed(model.graph.node) if it.op_type == "LayerNormalization")
    part = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(model)).extract_model(list(minilm.INPUTS), [last])
    part.graph.node.append(onnx.helper.make_node("Identity", [last], ["last_hidden_state"]))
    part.graph.output[0].name = "last_hidden_state"
    onnx.save(part, folder / "onnx" / "model.onnx")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_padding()
    tokenizer.no_truncation()
    tokens = tokenizer.encode_batch(list(SENTENCES))
    feeds = {
        "input_ids": np.array([it.ids for it in tokens], np.int64),
        "attention_mask": np.array([it.attention_mask for it in tokens], np.int64),
        "token_type_ids": np.array([it.type_ids for it in tokens], np.int64),
    }
    (vectors,) = whole.run(None, feeds)
    return {"sentences": SENTENCES, "vectors": vectors.tolist()}


def _images(folder: Path) -> Any:
    size = vit.SMALL
    model = vit.build(size)
    for it in (*model.graph.input, *(node for node in model.graph.node)):
        if isinstance(it, onnx.NodeProto):
            it.input[:] = ["pixel_values" if name == "image" else name for name in it.input]
        elif it.name == "image":
            it.name = "pixel_values"
    _configure(folder, model_type="vit", id2label={str(k): f"class {k}" for k in range(size.classes)})
    _configure(
        folder, "preprocessor_config.json", image_processor_type="ViTImageProcessor", do_resize=False, do_rescale=True,
        rescale_factor=1 / 255, do_normalize=True, image_mean=[0.5] * 3, image_std=[0.5] * 3,
        size={"height": size.image, "width": size.image},
    )  # fmt: skip
    pixels = np.random.default_rng(5).integers(0, 256, (size.image, size.image, 3), np.uint8)
    values = (pixels.astype(np.float32) / 255 - 0.5) / 0.5
    (logits,) = _save(folder, model).run(None, {"pixel_values": values.transpose(2, 0, 1)[None].astype(np.float32)})
    scores = np.exp(logits[0] - logits[0].max())
    return {"pixels": pixels.ravel().tolist(), "size": size.image, "scores": (scores / scores.sum()).tolist()}


def text(folder: Path) -> Any:
    """A vocabulary of words that are numbers; token 0 ends a text."""
    size = causal.Size()
    session = _save(folder, causal.build(size))
    words = {"</s>": 0, **{f"w{k}": k for k in range(1, size.words)}}
    _configure(
        folder, "tokenizer.json", version="1.0", truncation=None, padding=None, added_tokens=[causal.END], normalizer=None,
        pre_tokenizer={"type": "WhitespaceSplit"}, post_processor=None, decoder=None,
        model={"type": "WordLevel", "vocab": words, "unk_token": "</s>"},
    )  # fmt: skip
    _configure(
        folder, "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast", eos_token="</s>", pad_token="</s>"
    )
    _configure(
        folder, model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=size.width, vocab_size=size.words,
        num_attention_heads=size.heads, num_key_value_heads=size.heads, num_hidden_layers=size.layers, eos_token_id=0,
        **{"transformers.js_config": {"use_external_data_format": True}},
    )  # fmt: skip
    _configure(folder, "generation_config.json", eos_token_id=0, pad_token_id=0)
    prompt = list(range(5, 5 + WORDS))
    return {"prompt": prompt, "tokens": causal.continued(session, prompt, 12)}
