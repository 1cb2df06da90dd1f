"""Sizes of exports for browsers beside their models: `python -m bench.export_sizes [MODEL ...]`.

Out: bench/results/exports/sizes.json, and from it the table in docs/web_performance.md between its two markers. Columns: the
size of the model file; the size of the export without weights; and the difference from the model of three sizes. These are the
files that a page fetches on a GPU, those that it fetches without a GPU, and all files. With names, only these models are
measured again. Needs no adapter.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import onnx

import onnxruntime_ep_wgpu as webgpu_ep
from tests import zoo

from .web import models

ROOT = Path(__file__).parents[1]
RESULTS, DOCUMENT = ROOT / "bench" / "results" / "exports" / "sizes.json", ROOT / "docs" / "web_performance.md"
BEGIN, END = "<!-- written by bench.export_sizes -->", "<!-- end of sizes -->"
# Models of tests.zoo, and of bench.web.
NAMES = {
    "minilm": "MiniLM", "minilm_f16": "small MiniLM, f16", "minilm_dynquant": "MiniLM, dynamically quantised",
    "resnet_f32": "small ResNet", "resnet_folded": "the same, folded", "resnet_f16": "the same, f16",
    "cnn_int8_qdq": "CNN, int8 (QDQ)", "cnn_int8_qoperator": "CNN, int8 (QOperator)", "vit_f32": "small ViT",
    "vit_f16": "the same, f16", "whisper_encoder": "small Whisper encoder", "unet": "small UNet", "unet_f16": "the same, f16",
    "t5_decoder_step": "T5 decoder", "lstm_gru": "LSTM and GRU", "llm": "LLM of four layers", "ocr_det": "OCR, detection",
    "ocr_rec": "OCR, recognition", "ocr_cls": "OCR, orientation", "chain": "200 products", "tiny": "three layers",
}  # fmt: skip
Sizes = dict[str, int]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.export_sizes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"one of {', '.join(NAMES)}; default: all")
    asked = parser.parse_args().models or list(NAMES)
    if unknown := [it for it in asked if it not in NAMES]:
        parser.error(f"no such model: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    found: dict[str, Sizes] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in asked:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = measured(path_of(name, Path(folder)), Path(folder) / "export")
        print(name, found[name], flush=True)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    text = DOCUMENT.read_text()
    begin = text.index(BEGIN) + len(BEGIN)
    DOCUMENT.write_text(text[:begin] + "\n" + "\n".join(table(found)) + "\n" + text[text.index(END) :])


def path_of(name: str, folder: Path) -> Path:
    if name in zoo.NAMES:
        return zoo.load(name).path
    path = folder / f"{name}.onnx"
    onnx.save(models(False)[name][0], path)
    return path


def measured(model: Path, output: Path) -> Sizes:
    exported = webgpu_ep.export(model, output)
    manifest = json.loads((output / "manifest.json").read_text())
    shared = (output / "manifest.json").stat().st_size + sum(it["bytes"] for it in manifest["weights"]["chunks"])
    # A page fetches one file of Programs: the one for browsers without a GPU, or the other one.
    software, gpu = (
        shared + it["bytes"] for it in sorted(manifest["programs"], key=lambda it: "software" not in it["file"])
    )
    whole = sum(it.stat().st_size for it in output.iterdir())
    return {"model": model.stat().st_size, "code": exported.programs, "gpu": gpu, "software": software, "all": whole}


def table(found: dict[str, Sizes]) -> list[str]:
    lines = [
        "| | model | but for weights | a page fetches, on a GPU | without one | all files |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, title in NAMES.items():
        if sizes := found.get(name):
            more = (f"{sizes[part] - sizes['model']:+,}" for part in ("gpu", "software", "all"))
            lines.append(f"| {title} | {sizes['model']:,} | {sizes['code']:,} | {' | '.join(more)} |")
    return lines


if __name__ == "__main__":
    main()
