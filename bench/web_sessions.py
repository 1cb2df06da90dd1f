"""The parts of a session's creation in a page: milliseconds of each, in Node with Dawn, of models at sizes that people use.

    python -m bench.web_sessions                              on the adapter that Dawn finds, SwiftShader where it names none
    python -m bench.web_sessions --dawn backend=null          without a driver: the library and the parsing of kernels alone
    python -m bench.web_sessions --models resnet50_f16 --sessions 5
    python -m bench.web_sessions --exports FOLDER ...         exports that exist

Models have random weights. `web/bench/session.mjs` measures, and prints the adapter. VK_DRIVER_FILES names a driver of Vulkan where
there are several. A driver keeps what it compiled: the first session of a model is cold only if its cache is empty.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import onnx

import onnxruntime_ep_wgpu as webgpu_ep
from tests.zoo import minilm, ocr, resnet

WEB = Path(__file__).parents[1] / "web"
BERT = minilm.Size(hidden=768, heads=12, layers=12, positions=512)
RESNET = resnet.Size(width=64, blocks=(3, 4, 6, 3), classes=1000, image=224)
Sizes = dict[str, int]
MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], Sizes]] = {
    "resnet50_f16": (lambda: resnet.build(RESNET, folded=True, half=True), {"batch": 1}),
    "resnet50_f32": (lambda: resnet.build(RESNET, folded=True), {"batch": 1}),
    "bert_base_f16": (lambda: minilm.build(BERT, half=True), {"batch": 1, "sequence": 128}),
    "detector_f32": (lambda: onnx.load(ocr.model_path("ocr_det")), {}),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.web_sessions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--exports", nargs="+", type=Path, help="exports instead of these models")
    parser.add_argument("--sessions", type=int, default=3, help="of each model, one process each")
    parser.add_argument("--dawn", default="", help="options of the package `webgpu`, as one text")
    arguments = parser.parse_args()
    subprocess.run(["node", "build.mjs"], cwd=WEB, check=True)
    with tempfile.TemporaryDirectory() as folder:
        exports = arguments.exports or [exported(Path(folder), name) for name in arguments.models]
        for export in exports:
            print(export.name, flush=True)
            command = ["node", "bench/session.mjs", str(export.resolve()), str(arguments.sessions)]
            environment = os.environ | ({"DAWN": arguments.dawn} if arguments.dawn else {})
            subprocess.run(command, cwd=WEB, env=environment, check=True)


def exported(folder: Path, name: str) -> Path:
    build, sizes = MODELS[name]
    onnx.save(build(), folder / f"{name}.onnx")
    webgpu_ep.export(folder / f"{name}.onnx", overrides=sizes)
    return folder / f"{name}.onnx.wgpu"


if __name__ == "__main__":
    main()
