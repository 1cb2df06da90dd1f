"""Compares providers on the same models and inputs.

    python -m bench.compare                                          all providers on the zoo, in full size
    python -m bench.compare --save h200                              the same, saved and written into the documents
    python -m bench.compare --providers ours official cpu --models minilm vit_f32 --rounds 5 --chart chart.png
    python -m bench.compare --models model.onnx --dim batch=4
    python -m bench.compare --models folder                          its .onnx files, inputs from the .npz beside them

Each measurement is its own process. Providers alternate, in reverse order every other round, so that a slowdown of the machine
affects all of them. The first round starts with empty caches (cold), and later ones use its caches (warm). The official plugin
is the package onnxruntime-ep-webgpu. If it needs environment variables, `--official-env FILE` names a shell file that sets
them, for its processes only. bench/worker.py describes what is timed, and how a run is forced to finish.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import numpy as np

from tests import provider

from . import document, process, show
from .models import Model, find, full, zoo_names
from .process import Row
from .ratios import ratios

PROVIDERS = ("ours", "official", "cpu")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", help=f"files, folders, or of {', '.join(zoo_names())}")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of these models, those of these names")
    parser.add_argument("--providers", nargs="+", choices=PROVIDERS, help="those that are installed")
    parser.add_argument("--rounds", type=int, default=3, help="processes per provider and model (%(default)s)")
    parser.add_argument("--runs", type=int, default=10, help="timed steady runs per process (%(default)s)")
    parser.add_argument("--variation", type=int, default=0, help="which input shape of a zoo model (%(default)s)")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE", help="dynamic dim of a model file")
    parser.add_argument("--no-gpu-time", action="store_true", help="leave out GPU time by timestamp queries")
    parser.add_argument(
        "--official-env", type=Path, metavar="FILE", help="shell file to source for the official plugin"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--save", metavar="NAME", help="write bench/results/NAME.json, docs/benchmarks.md and README.md"
    )
    parser.add_argument("--chart", type=Path, help="bar chart of steady runs, a .png or .svg (needs matplotlib)")
    arguments = parser.parse_args()
    arguments.providers = arguments.providers or [name for name in PROVIDERS if provider.installed(name)]
    if arguments.save:
        arguments.json = document.RESULTS / f"{arguments.save}.json"
    missing = [p for p in arguments.providers if not provider.installed(p)]
    if missing:
        parser.error(f"not installed: {', '.join(provider.PACKAGES[p] for p in missing)}")
    dims = {name: int(size) for name, size in (d.split("=", 1) for d in arguments.dim)}
    try:
        models = find(arguments.models or full(), arguments.variation, dims)
    except FileNotFoundError as error:
        parser.error(str(error))
    if arguments.only:
        models = [model for model in models if model.name in arguments.only]

    environments = process.environments(arguments.providers, arguments.official_env)
    settings = {"rounds": arguments.rounds, "runs": arguments.runs, "variation": arguments.variation, "dims": dims}
    report: Row = {"host": host(), "settings": settings, "rows": []}
    for model in models:
        job = {"model": model.data(), "runs": arguments.runs}
        report["rows"] += compare(model, job, environments, arguments.rounds, not arguments.no_gpu_time)
        report["ratios"] = ratios(report["rows"])
        if arguments.json:  # after every model, so that an interruption loses nothing
            arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    show.tables(report)
    if arguments.save:
        document.main()
    if arguments.chart:
        show.chart(report, arguments.chart)
    return 1 if any(r.get("error") for r in report["rows"]) else 0


def compare(
    model: Model, job: Row, environments: dict[str, dict[str, str]], rounds: int, gpu_time: bool = True
) -> list[Row]:
    """Returns one summary per provider for one model, with the largest difference from the CPU provider's outputs."""
    measured: dict[str, list[Row]] = {name: [] for name in environments}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds):
            order = list(environments)[:: -1 if turn % 2 else 1]
            for name in order:
                show.note(f"{model.name}: {name}, process {turn + 1} of {rounds}")
                cache = Path(folder) / f"shaders-{name}"
                cache.mkdir(exist_ok=True)
                own = environments[name] | _caches(cache)
                one = job | {"provider": name, "outputs": str(Path(folder) / f"{name}.npz")}
                rows = process.run("bench.worker", one | {"gpu": gpu_time and turn == rounds - 1}, own)
                measured[name].append({key: value for row in rows for key, value in row.items()})
        outputs = {name: Path(folder) / f"{name}.npz" for name in environments}
        return [_summary(model.name, name, runs, _difference(outputs, name)) for name, runs in measured.items()]


def _summary(model: str, name: str, runs: list[Row], difference: float | None) -> Row:
    """Returns medians in seconds. `..._spread` is the interquartile range of the steady runs: (first, third quartile)."""
    errors = [r["error"] for r in runs if "error" in r]
    if errors:
        return {"model": model, "provider": name, "error": errors[0]}
    warm = runs[1:]
    median = statistics.median
    row: Row = {
        "model": model,
        "provider": name,
        **{key: runs[0][key] for key in ("shapes", "nodes", "cpu_operators", "device", "read_bytes")},
        "registration": median(r["registration"] for r in runs),
        "creation": median(r["creation"] for r in runs),
        "first_run_cold": runs[0]["first_run"],
        "first_run_warm": median(r["first_run"] for r in warm) if warm else None,
        "start_cold": _start(runs[0]),
        "start_warm": median(map(_start, warm)) if warm else None,
    }
    for kind in ("with_copies", "without_copies"):
        steady = sorted(seconds for r in runs for seconds in r[kind])
        row[kind] = median(steady)
        row[f"{kind}_spread"] = [float(q) for q in np.quantile(steady, (0.25, 0.75))]
        row[f"{kind}_runs"] = len(steady)
    peaks = [r["peak_host_bytes"] for r in runs if r["peak_host_bytes"]]
    return row | {
        "gpu": runs[-1].get("gpu"),
        "gpu_missing": runs[-1].get("gpu_missing"),
        "peak_host_bytes": max(peaks, default=None),
        "device_bytes": runs[0]["device_bytes"],
        "difference": difference,
    }


def _start(run: Row) -> float:
    """Returns the time from loading the provider to the first result."""
    return float(run["registration"] + run["creation"] + run["first_run"])


def _difference(outputs: dict[str, Path], name: str) -> float | None:
    """Returns the largest error relative to the output's scale; None without the CPU provider's outputs."""
    if "cpu" not in outputs or not (outputs["cpu"].exists() and outputs[name].exists()):
        return None
    with np.load(outputs["cpu"]) as want, np.load(outputs[name]) as got:
        pairs = [(want[k].astype(np.float64), got[k].astype(np.float64)) for k in want.files]
    if any(w.shape != g.shape for w, g in pairs):
        return float("inf")
    return max((float(np.abs(w - g).max() / max(np.abs(w).max(), 1e-30)) for w, g in pairs if w.size), default=0.0)


def _caches(folder: Path) -> dict[str, str]:
    """Returns environment variables that place the shader caches of Mesa and NVIDIA, and this package's cache, in a folder."""
    drivers = {"MESA_SHADER_CACHE_DIR": str(folder), "__GL_SHADER_DISK_CACHE_PATH": str(folder)}
    return {**drivers, "WGPU_EP_CACHE": str(folder)}


def host() -> dict[str, str]:
    """Returns the machine, the date and the versions of all participants."""
    versions = {"Python": platform.python_version()}
    for package in ("onnxruntime", "onnxruntime-ep-wgpu", "onnxruntime-ep-webgpu", "wgpu"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs{_processor()}",
        "load": _load(),
        "versions": ", ".join(f"{k} {v}" for k, v in versions.items()),
    }


def _load() -> str:
    """Returns the load average, because other work on the machine distorts the measurement."""
    try:
        return f"load average {os.getloadavg()[0]:.1f} at the start"
    except (AttributeError, OSError):
        return "load average unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return f", {name}" if name else ""


if __name__ == "__main__":
    sys.exit(main())
