"""This web runtime and onnxruntime-web, on WebGPU and on WebAssembly, in one Chromium on the same models.

    python -m bench.web                          small models, on the software adapter
    python -m bench.web --full --gpu             MiniLM 8 x 128, the detector at 640 x 480, on the machine's GPU
    python -m bench.web --save NAME              writes bench/results/web/NAME.json and the tables of docs/web_performance.md

Each library, model and round has its own page, in turns, with empty caches. Columns:

- *First result*: from the start of the navigation to the result in memory.
- *Steady run*: runs with inputs and results in memory.
- *CPU* of both: of all processes of the browser, including a software adapter's calculation; on Linux.
- *Call of run*: until `run` resolves, between GPU buffers. It does not wait for the GPU.
- *Page's thread*: its CPU time for that and for the notification that the GPU is done, including the browser's work on it.
- *Nothing to calculate*: the same with dispatches of no workgroups, so that a software adapter leaves the cores to the thread.
- *Library*: its scripts and WebAssembly, unpacked.
- *Model*: the fetched files, unpacked.

*Call of run*, *page's thread* and *nothing to calculate* are also measured without a library: `web/bench/bare.js` gives as many
dispatches directly to WebGPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.helper import make_node

import onnxruntime_ep_wgpu as webgpu_ep
from tests.support import make_model
from tests.web import causal
from tests.zoo import minilm, ocr, resnet

ROOT = Path(__file__).parents[1]
WEB = ROOT / "web"
RESULTS = ROOT / "bench" / "results" / "web"
DOCUMENT = ROOT / "docs" / "web_performance.md"
BEGIN, END = "<!-- written by bench.web -->", "<!-- end -->"
LIBRARIES = {"ours": "ours", "webgpu": "onnxruntime-web, WebGPU", "wasm": "onnxruntime-web, WebAssembly"}
MEASURES = {
    "first": "first result", "firstCpu": "first result, CPU", "steady": "steady run", "steadyCpu": "steady run, CPU",
    "cpu": "call of run", "bare": "the same calls without a library", "thread": "page's thread",
    "bareThread": "the same without a library", "idle": "page's thread, nothing to calculate",
    "bareIdle": "the same without a library, nothing to calculate",
}  # fmt: skip
CALLS = ("cpu", "bare", "thread", "bareThread", "idle", "bareIdle")  # only for a model with negligible dispatches
DISPATCHES = 200  # as in web/bench/page.js
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.web", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="sizes that people use")
    parser.add_argument("--gpu", action="store_true", help="the machine's GPU instead of SwiftShader")
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--models", nargs="+", metavar="NAME", help="only these")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    parser.add_argument("--save", metavar="NAME")
    parser.add_argument(
        "--document", action="store_true", help="only write docs/web_performance.md from what was saved"
    )
    arguments = parser.parse_args()
    if arguments.document:
        document()
        return
    subprocess.run(["node", "build.mjs"], cwd=WEB, check=True)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), arguments)
    report = {
        "host": f"{platform.system()} {platform.machine()}", "load": round(load, 1),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "full": arguments.full, "runs": arguments.runs, "rounds": arguments.rounds, "rows": rows,
        "onnxruntime-web": json.loads((WEB / "node_modules/onnxruntime-web/package.json").read_text())["version"],
    }  # fmt: skip
    print("\n".join(table(report)))
    if arguments.save:
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{arguments.save}.json").write_text(json.dumps(report, indent=1) + "\n")
        document()


# ---- models


def models(full: bool) -> dict[str, tuple[onnx.ModelProto, dict[str, np.ndarray]]]:
    rng = np.random.default_rng(1)
    size = causal.Size(words=8000, positions=512, width=256, heads=8, layers=4)
    empty = np.zeros((1, size.heads, 0, size.head), np.float32)
    tokens = {
        "input_ids": rng.integers(0, size.words, (1, 32)), "attention_mask": np.ones((1, 32), np.int64),
        "position_ids": np.arange(32, dtype=np.int64)[None],
        **{f"past_key_values.{k}.{part}": empty for k in range(size.layers) for part in ("key", "value")},
    }  # fmt: skip
    cnn = onnx.load(ocr.model_path("ocr_det")) if full else resnet.build(resnet.SMALL)
    picture = (1, 3, 480, 640) if full else (4, 3, 64, 64)
    return {
        "minilm": (minilm.build(), minilm.inputs(*((8, 128) if full else (2, 32)), rng)),
        "detector" if full else "resnet": (cnn, {cnn.graph.input[0].name: np.zeros(picture, np.float32)}),
        "llm": (causal.build(size), tokens),
        "chain": _chain(),
    }


def _chain() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Returns a model with 200 dispatches of negligible duration."""
    names = [f"v{k}" for k in range(DISPATCHES)]
    nodes = [make_node("MatMul", [a, "w"], [b]) for a, b in zip(["x", *names], names, strict=False)]
    return make_model(nodes, {"x": (np.float32, [4, 4])}, {"w": np.eye(4, dtype=np.float32)}), {
        "x": np.zeros((4, 4), np.float32)
    }


# ---- measuring


def measure(folder: Path, arguments: argparse.Namespace) -> list[Row]:
    jobs = []
    for name, (model, feeds) in models(arguments.full).items():
        if arguments.models and name not in arguments.models:
            continue
        onnx.save(model, folder / f"{name}.onnx")
        webgpu_ep.export(folder / f"{name}.onnx")
        inputs = {
            key: {"dims": list(array.shape)} | ({"data": array.ravel().tolist()} if array.dtype == np.int64 else {})
            for key, array in feeds.items()
        }
        jobs.append({"name": name, "inputs": inputs, "runs": arguments.runs})
    job = {
        "folder": str(folder), "models": jobs, "libraries": arguments.libraries, "rounds": arguments.rounds,
        "gpu": arguments.gpu, "chromium": arguments.chromium,
    }  # fmt: skip
    (folder / "job.json").write_text(json.dumps(job))
    rows = []
    command = ["node", "bench/measure.mjs", str(folder / "job.json")]
    with subprocess.Popen(command, cwd=WEB, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            row = json.loads(line)
            rows.append(row)
            print({key: value for key, value in row.items() if key != "sample"}, flush=True)
    if process.returncode:
        raise SystemExit(f"node bench/measure.mjs ended with {process.returncode}")
    _compare(rows)
    return rows


def _compare(rows: list[Row]) -> None:
    """Replaces the results of each row by their largest difference from this library's."""
    ours = {row["model"]: row["sample"] for row in rows if row.get("library") == "ours" and "sample" in row}
    for row in rows:
        sample = row.pop("sample", None)
        if sample is not None and row["model"] in ours:
            row["difference"] = float(np.abs(np.subtract(sample, ours[row["model"]])).max())


# ---- output


def table(report: Row) -> list[str]:
    rows = [row for row in report["rows"] if "library" in row and "error" not in row]
    libraries = [it for it in LIBRARIES if any(row["library"] == it for row in rows)]
    out = [
        f"| model | | {' | '.join(LIBRARIES[it] for it in libraries)} |",
        "| --- | --- |" + " ---: |" * len(libraries),
    ]

    def cell(model: str, library: str, measure: str) -> str:
        found = [row.get(measure) for row in rows if (row["model"], row["library"]) == (model, library)]
        known = [it for it in found if it is not None]
        if not known:
            return ""
        spread = f" ({_ms(min(known))} to {_ms(max(known))})" if len(known) > 1 else ""
        return _ms(statistics.median(known)) + spread

    for model in dict.fromkeys(row["model"] for row in rows):
        for measure, title in MEASURES.items():
            cells = [cell(model, library, measure) for library in libraries]
            if any(cells) and (measure not in CALLS or model == "chain"):
                out.append(f"| {model} | {title} | {' | '.join(cells)} |")
        sizes = [
            next((r["modelBytes"] for r in rows if (r["model"], r["library"]) == (model, it)), 0) for it in libraries
        ]
        out.append(f"| {model} | model | {' | '.join(f'{it / 1000:,.0f} KB' for it in sizes)} |")
    library_bytes = [max(row["bytes"] for row in rows if row["library"] == it) for it in libraries]
    out.append(f"| library, unpacked | | {' | '.join(f'{it / 1000:,.0f} KB' for it in library_bytes)} |")
    return out


def _ms(value: float) -> str:
    """Formats milliseconds with three digits, or seconds."""
    if value >= 1000:
        return f"{value / 1000:.3g} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.2g} ms"


def document() -> None:
    parts = []
    for path in sorted(RESULTS.glob("*.json")):
        report = json.loads(path.read_text())
        adapter = next(row["adapter"] for row in report["rows"] if "adapter" in row)
        browser = next(row["browser"] for row in report["rows"] if "browser" in row)
        failed = Counter(
            f"{row['model']} on {LIBRARIES[row['library']]}: {row['error'].rstrip('.')}"
            for row in report["rows"]
            if "error" in row
        )
        differences = [row["difference"] for row in report["rows"] if "difference" in row]
        sizes = "Sizes that people use: " if report["full"] else ""
        parts += [
            f"{sizes}{adapter}, Chromium {browser}, {report['host']},"
            f" onnxruntime-web {report['onnxruntime-web']}, {report['date']}, load average {report['load']} at the start;"
            f" medians of {report['rounds']} page(s) of {report['runs']} runs. Results differ by at most {max(differences):.1g}."
            + "".join(f" {count} page(s) failed, {it}." for it, count in failed.items()),
            "",
            *table(report),
            "",
        ]
    text = DOCUMENT.read_text()
    begin = text.index(BEGIN) + len(BEGIN)
    end = text.index(END, begin)
    DOCUMENT.write_text(text[:begin] + "\n" + "\n".join(parts) + text[end:])


if __name__ == "__main__":
    main()
