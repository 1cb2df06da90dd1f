"""Session creation with and without the compiled model in the cache: the table of docs/cache.md.

    python -m bench.kept [MODEL ...] [--runs N] [--other SRC]

A MODEL is one of tests/zoo, a path, or a model of realistic size: `resnet50` (with BatchNormalization), `gpt2` (with tied
embeddings), `vit_b16`. Each run is its own process, and the kinds take turns. Values are medians in milliseconds:

- `thread`: the CPU time of the thread that calls `session()`
- `cpu`: the CPU time of all threads
- `wall`: the duration of the call
- `ended`: the time from the end of the call to the end of the process

The kinds: `model` opens the model, with claims and Programs from the cache; `kept` opens the compiled model. `first` and `bare`
start with an empty cache; `first` leaves a compiled model there, `bare` does not. `--other` is the folder of another version of
this package, measured as `other kept` and `other first`. The last line is a row of the table, with the size of the compiled
model in the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests import zoo
from tests.zoo import resnet, vit
from tests.zoo.graph import GraphBuilder, save
from tests.zoo.layers import Layers

SCRIPT = """
import json, os, sys, time
import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.api import sessions
if sys.argv[2] == "bare":
    sessions.kept_models = lambda *_: None
webgpu_ep.devices()
wall, thread, cpu = time.perf_counter(), time.thread_time(), time.process_time()
session = webgpu_ep.session(sys.argv[1])
wall, thread, cpu = time.perf_counter() - wall, time.thread_time() - thread, time.process_time() - cpu
kept = webgpu_ep.api.reports.state_of(session)._model.kept is not None
print(json.dumps({"thread": thread, "cpu": cpu, "wall": wall, "made": time.time(), "kept": kept}), flush=True)
"""


def gpt2(
    layers: int = 12, width: int = 768, heads: int = 12, words: int = 50257, positions: int = 512
) -> onnx.ModelProto:
    """Returns a GPT-2. Input `ids` (1, positions), output `logits` (1, positions, words).

    The word embeddings are also the last product's weights, transposed. Each layer has one product for queries, keys and
    values, as `torch.onnx.export` writes GPT-2."""
    g = GraphBuilder("gpt2")
    made, size = Layers(g, 7), width // heads
    table = g.weight("words", made.normal(words, width))
    x = g.op("Gather", table, g.input("ids", np.int64, [1, positions]))
    x = g.op("Add", x, g.weight("positions", made.normal(1, positions, width)))
    mask = g.weight("mask", np.triu(np.full((1, 1, positions, positions), np.finfo(np.float32).min, np.float32), 1))
    split, merged = g.const([1, positions, heads, size]), g.const([1, positions, width])

    def product(x: str, wide: int, to: int, name: str) -> str:
        flat = g.op("Reshape", x, g.const([-1, wide]))
        flat = g.op("Gemm", flat, g.weight(f"{name}.w", made.normal(wide, to)), g.weight(f"{name}.b", made.normal(to)))
        return g.op("Reshape", flat, g.const([1, positions, to]))

    for number in range(layers):
        parts = g.split(
            product(made.layer_norm(x, width, f"{number}.one"), width, 3 * width, f"{number}.qkv"), 3, 2, f"{number}.p"
        )
        q, k, v = (g.op("Reshape", it, split) for it in parts)
        q, v = (g.op("Transpose", it, perm=[0, 2, 1, 3]) for it in (q, v))
        scores = g.op("Mul", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 2, 3, 1])), g.const(size**-0.5))
        read = g.op("MatMul", g.op("Softmax", g.op("Add", scores, mask), axis=-1), v)
        read = g.op("Reshape", g.op("Transpose", read, perm=[0, 2, 1, 3]), merged)
        x = g.op("Add", x, product(read, width, width, f"{number}.out"))
        inner = product(made.layer_norm(x, width, f"{number}.two"), width, 4 * width, f"{number}.up")
        x = g.op("Add", x, product(g.op("Gelu", inner, approximate="tanh"), 4 * width, width, f"{number}.down"))
    g.op("MatMul", made.layer_norm(x, width, "end"), g.op("Transpose", table, perm=[1, 0]), out="logits")
    g.output("logits", np.float32, [1, positions, words])
    return g.build()


LARGE: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": lambda: resnet.build(resnet.Size(64, (3, 4, 6, 3), 1000, 224)),
    "gpt2": gpt2,
    "vit_b16": lambda: vit.build(vit.Size(768, 12, 224, 1000, depth=12)),
}
MODELS = [*LARGE, "minilm", "cnn_int8_qdq", "minilm_dynquant", "t5_decoder_step"]


def model_of(name: str, folder: Path) -> Path:
    """Returns the file of a model."""
    if name in LARGE:
        path = folder / f"{name}.onnx"
        save(LARGE[name](), path)
        return path
    return Path(name) if os.path.exists(name) else zoo.load(name).path


def once(model: Path, cache: str, source: str, way: str) -> dict[str, Any]:
    """Runs one process. Returns times in milliseconds, and whether its session used a compiled model."""
    path = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"WGPU_EP_CACHE": cache, "PYTHONPATH": path}
    command = [sys.executable, "-c", SCRIPT, str(model), way]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found = json.loads(done.stdout.splitlines()[-1])
    found["ended"] = time.time() - found.pop("made")
    return {name: it if name == "kept" else 1e3 * it for name, it in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.kept", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--runs", type=int, default=7, metavar="N", help="processes of each kind (7)")
    parser.add_argument("--other", metavar="SRC", help="folder of another version of the package")
    given = parser.parse_args()
    own = str(Path(__file__).parents[1] / "src")
    for name in given.models:
        with tempfile.TemporaryDirectory() as folder:
            path = model_of(name, Path(folder))
            size = os.path.getsize(path)
            filled, other = os.path.join(folder, "filled"), os.path.join(folder, "other")
            once(path, filled, own, "bare")  # fills the driver's cache too
            entry = -_bytes_in(filled)
            once(path, filled, own, "first")
            entry += _bytes_in(filled)
            if given.other:
                once(path, other, given.other, "first")
            rows: dict[str, list[dict[str, Any]]] = {}
            for _ in range(given.runs):
                ways = [("model", "bare", filled, own), ("kept", "kept", filled, own)]
                ways += [("bare", "bare", "", own), ("first", "first", "", own)]
                if given.other:
                    ways += [("other kept", "kept", other, given.other), ("other first", "first", "", given.other)]
                for way, mode, cache, source in ways:
                    empty = os.path.join(folder, "empty")
                    rows.setdefault(way, []).append(once(path, cache or empty, source, mode))
                    shutil.rmtree(empty, ignore_errors=True)
        middle = {
            way: {key: statistics.median(it[key] for it in found) for key in found[0]} for way, found in rows.items()
        }
        for way, times in middle.items():
            kept = "  of a compiled model" if times.pop("kept") else ""
            print(f"{name:16s} {way:12s}", *(f"{key} {it:7.0f}" for key, it in times.items()), kept, flush=True)
        before, after = (middle[it]["thread"] for it in ("model", "kept"))
        print(f"| `{name}`, {size / 1e6:.0f} MB | {before:,.0f} / {after:,.0f} | {entry / 1e6:.1f} |", flush=True)


def _bytes_in(folder: str) -> int:
    """Returns the bytes of all files below a folder."""
    return sum(os.path.getsize(os.path.join(root, it)) for root, _, names in os.walk(folder) for it in names)


if __name__ == "__main__":
    main()
