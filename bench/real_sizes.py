"""Models of realistic size, with data on the device: `python -m bench.real_sizes export DIR`, then `... run DIR`.

`export` writes ResNet-50 (batch 16), ViT-B/16 (batch 8), BERT-base (32 x 128) and GPT-2 (1 x 512) from torch, or the models of
`--models`, which has further ones. They have random weights, in f32 and f16, with inputs beside them (`NAME.npz`). If torch has
a GPU, its own time of a pass is stored in `torch.json` (eager; f32 without TF32). Needs torch, torchvision, transformers and
onnxscript.

`run` times every model of a folder: one process per provider and turn, providers in turns. GPU providers have inputs and
outputs on the device. A pass ends when a value that was calculated after it is read, because a provider's own synchronisation
may not wait for the GPU. That read is also timed alone and subtracted. Milliseconds are medians over turns, of the best of
three series in each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from tests import provider

MODELS = ("resnet50_b16", "vit_b16_b8", "bert_base_b32s128", "gpt2_b1s512")
IMAGES = {  # models of torchvision, with the batch size of a pass
    "vgg11": 4, "mobilenet_v3_large": 16, "efficientnet_b0": 16, "densenet121": 8, "convnext_tiny": 8, "regnet_y_1_6gf": 8,
    "shufflenet_v2_x1_0": 16,
}  # fmt: skip
MORE = tuple(f"{name}_b{batch}" for name, batch in IMAGES.items())
SERIES = 3
SERIES_SECONDS = 0.3


def export(folder: Path, names: list[str], types: list[str]) -> None:
    """Writes the models. Imports torch, which `run` does not need."""
    import torch
    import torchvision
    from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False

    class First(torch.nn.Module):  # type: ignore[misc]
        """Returns only the first result of a language model, without its cache."""

        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, ids: Any) -> Any:
            return self.inner(input_ids=ids, use_cache=False, return_dict=False)[0]

    made: dict[str, tuple[Callable[[], Any], Any]] = {
        "resnet50_b16": (torchvision.models.resnet50, torch.randn(16, 3, 224, 224)),
        "vit_b16_b8": (torchvision.models.vit_b_16, torch.randn(8, 3, 224, 224)),
        "bert_base_b32s128": (lambda: First(BertModel(BertConfig())), torch.randint(0, 30000, (32, 128))),
        "gpt2_b1s512": (lambda: First(GPT2LMHeadModel(GPT2Config())), torch.randint(0, 50000, (1, 512))),
    }
    for name, batch in IMAGES.items():
        made[f"{name}_b{batch}"] = getattr(torchvision.models, name), torch.randn(batch, 3, 224, 224)
    times: dict[str, float] = {}
    for name in names:
        make, given = made[name]
        for half in [kind == "f16" for kind in types]:
            model, x = make().eval(), given
            if half:
                model, x = model.half(), x.half() if x.is_floating_point() else x
            path = folder / f"{name}_{'f16' if half else 'f32'}"
            with torch.no_grad():
                torch.onnx.export(model, (x,), f"{path}.onnx", dynamo=True, external_data=False, verbose=False)
            np.savez(f"{path}.npz", x.numpy())
            print(f"{path}.onnx", flush=True)
            if torch.cuda.is_available():
                times[path.name] = _torch_seconds(torch, model.cuda(), x.cuda())
    if times:
        known = folder / "torch.json"
        before = json.loads(known.read_text()) if known.exists() else {}
        known.write_text(json.dumps(before | times))


def _torch_seconds(torch: Any, model: Any, x: Any) -> float:
    best = float("inf")
    with torch.no_grad():
        for series in range(1 + SERIES):
            begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
            begin.record()
            for _ in range(10):
                model(x)
            end.record()
            end.synchronize()
            best = min(best, begin.elapsed_time(end) / 1e4) if series else best
    return best


def measured(path: Path, name: str) -> dict[str, Any]:
    """Times one model with one provider in this process. Returns the seconds of a pass and the nodes on the CPU."""
    session = provider.open_session(path, name)
    arrays = np.load(path.with_suffix(".npz"))
    feeds = {it.name: arrays[key] for it, key in zip(session.get_inputs(), arrays.files, strict=True)}
    results = session.run(None, feeds)
    once: Callable[[], Any] = lambda: session.run(None, feeds)  # noqa: E731
    wait: Callable[[], Any] = lambda: None  # noqa: E731
    if name != "cpu":
        binding = session.io_binding()
        for key, array in feeds.items():
            binding.bind_ortvalue_input(key, ort.OrtValue.ortvalue_from_numpy(array, "webgpu", 0))
        for output, array in zip(session.get_outputs(), results, strict=True):
            value = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), array.dtype, "webgpu", 0)
            binding.bind_ortvalue_output(output.name, value)
        once = lambda: session.run_with_iobinding(binding)  # noqa: E731
        small = provider.open_session(_negative(), name)
        wait = lambda: small.run(None, {"x": np.ones(1, np.float32)})  # noqa: E731
    once()
    reading = min(_seconds(wait, lambda: None, 1) for _ in range(20))
    count = max(1, min(100, int(SERIES_SECONDS / max(_seconds(once, wait, 1), 1e-4))))
    times = [(_seconds(once, wait, count) - reading) / count for _ in range(SERIES)]
    np.save(path.with_suffix(f".{name}.npy"), results[0])
    return {"seconds": min(times), "on_cpu": len(provider.placement(session).on_cpu) if name != "cpu" else 0}


def _seconds(once: Callable[[], Any], wait: Callable[[], Any], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        once()
    wait()
    return time.perf_counter() - begin


def _negative() -> bytes:
    values = [helper.make_tensor_value_info(it, TensorProto.FLOAT, [1]) for it in "xy"]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "reading", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()


def run(folder: Path, providers: list[str], turns: int) -> None:
    known = folder / "torch.json"
    torch_times = json.loads(known.read_text()) if known.exists() else {}
    print(" | ".join(["model", *(f"{it} ms" for it in providers), "torch ms", "spread", "error", "nodes on the CPU"]))
    for path in sorted(folder.glob("*.onnx")):
        found: dict[str, list[dict[str, Any]]] = {it: [] for it in providers}
        notes = []
        for _ in range(turns):
            for name in providers:
                command = [sys.executable, "-m", "bench.real_sizes", "one", str(path), name]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    notes.append(f"{path.stem} {name}: {(done.stderr.strip().splitlines() or ['?'])[-1][:200]}")
                else:
                    found[name].append(json.loads(done.stdout.splitlines()[-1]))
        times = {name: [it["seconds"] for it in rows] for name, rows in found.items() if rows}
        medians = {name: f"{statistics.median(them) * 1e3:.2f}" for name, them in times.items()}
        spread = max(((max(them) - min(them)) / statistics.median(them) for them in times.values()), default=0.0)
        by_torch = f"{torch_times[path.stem] * 1e3:.2f}" if path.stem in torch_times else "-"
        cells = [
            path.stem,
            *(medians.get(it, "-") for it in providers),
            by_torch,
            f"{spread:.0%}",
            _error(path, providers),
        ]
        print(" | ".join([*cells, str(found[providers[0]][0]["on_cpu"] if found[providers[0]] else "-")]))
        for note in dict.fromkeys(notes):
            print(f"  {note}")


def _error(path: Path, providers: list[str]) -> str:
    """Returns the largest difference of the first output from the CPU provider's, relative to its largest value."""
    both = [path.with_suffix(f".{it}.npy") for it in (providers[0], "cpu")]
    if not all(it.exists() for it in both):
        return "-"
    got, want = (np.load(it).astype(np.float64) for it in both)
    return f"{np.abs(got - want).max() / np.abs(want).max():.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    one = actions.add_parser("export", help="write the models with torch")
    one.add_argument("folder", type=Path)
    one.add_argument("--models", nargs="+", choices=[*MODELS, *MORE], default=list(MODELS))
    one.add_argument("--types", nargs="+", choices=["f32", "f16"], default=["f32", "f16"])
    many = actions.add_parser("run", help="time the models of a folder")
    many.add_argument("folder", type=Path)
    many.add_argument(
        "--providers", nargs="+", choices=["ours", "official", "cpu"], default=["ours", "official", "cpu"]
    )
    many.add_argument("--turns", type=int, default=3)
    single = actions.add_parser("one", help="one model with one provider, as `run` does it")
    single.add_argument("model", type=Path)
    single.add_argument("provider")
    args = parser.parse_args()
    if args.action == "export":
        args.folder.mkdir(parents=True, exist_ok=True)
        export(args.folder, args.models, args.types)
    elif args.action == "run":
        run(args.folder, args.providers, args.turns)
    else:
        print(json.dumps(measured(args.model, args.provider)))


if __name__ == "__main__":
    main()
