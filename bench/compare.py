"""Compares providers on the same models and inputs.

    python -m bench.compare                                          ours and the CPU on all models of the zoo
    python -m bench.compare --providers ours official cpu --models minilm vit_f32 --rounds 5
    python -m bench.compare --models model.onnx --dim batch=4

Each measurement is a process of its own; providers alternate, so that a machine that slows down slows all of them. The
first round starts with empty shader caches (cold), the later ones find what it left (warm). The official plugin is the
package onnxruntime-ep-webgpu; where it needs environment variables, `--official-env FILE` names a shell file that sets
them, for its processes only.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from tests import provider, zoo

from . import show

ROOT = Path(__file__).parents[1]
TIMEOUT = 600.0
Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default_models = [name for name in zoo.NAMES if name != "tiny"]
    parser.add_argument("--models", nargs="+", default=default_models, help=f"of {', '.join(zoo.NAMES)}, or files")
    parser.add_argument("--providers", nargs="+", default=["ours", "cpu"], choices=("ours", "official", "cpu"))
    parser.add_argument("--rounds", type=int, default=3, help="processes per provider and model (%(default)s)")
    parser.add_argument("--runs", type=int, default=10, help="timed steady runs per process (%(default)s)")
    parser.add_argument("--variation", type=int, default=0, help="which input shape of a zoo model (%(default)s)")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=SIZE", help="dynamic dim of a model file")
    parser.add_argument(
        "--official-env", type=Path, metavar="FILE", help="shell file to source for the official plugin"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--chart", type=Path, help="bar chart of steady runs, a .png or .svg (needs matplotlib)")
    arguments = parser.parse_args()
    missing = [p for p in arguments.providers if not provider.installed(p)]
    if missing:
        parser.error(f"not installed: {', '.join(provider.PACKAGES[p] for p in missing)}")
    dims = {name: int(size) for name, size in (d.split("=", 1) for d in arguments.dim)}

    environments = {p: dict(os.environ) for p in arguments.providers}
    if arguments.official_env and "official" in environments:
        environments["official"] = _sourced(arguments.official_env)
    rows = []
    for model in arguments.models:
        job = {"model": model, "variation": arguments.variation, "runs": arguments.runs, "dims": dims}
        rows += compare(job, environments, arguments.rounds)
    report = {"host": host(), "rows": rows}
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    show.table(report)
    if arguments.chart:
        show.chart(report, arguments.chart)
    return 1 if any(r.get("error") for r in rows) else 0


def compare(job: Row, environments: dict[str, dict[str, str]], rounds: int) -> list[Row]:
    """One summary per provider for one model, with the largest difference to the CPU provider's outputs."""
    measured: dict[str, list[Row]] = {name: [] for name in environments}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds):
            for name, environment in environments.items():
                show.note(f"{job['model']}: {name}, process {turn + 1} of {rounds}")
                cache = Path(folder) / f"shaders-{name}"
                cache.mkdir(exist_ok=True)
                own = environment | _shader_caches(cache)
                one = job | {"provider": name, "outputs": str(Path(folder) / f"{name}.npz")}
                measured[name].append(_measure(one, own))
        outputs = {name: Path(folder) / f"{name}.npz" for name in environments}
        return [_summary(job["model"], name, runs, _difference(outputs, name)) for name, runs in measured.items()]


def _measure(job: Row, environment: dict[str, str]) -> Row:
    command = [sys.executable, "-m", "bench.worker", json.dumps(job)]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no end after {TIMEOUT:.0f} s"}
    found = [line for line in result.stdout.splitlines() if line.startswith("ROW ")]
    if not found:
        last = [line for line in result.stderr.splitlines() if line.strip()][-1:]
        return {"error": f"exit code {result.returncode}: {' '.join(last)[:300]}"}
    row: Row = json.loads(found[-1][4:])
    return row


def _summary(model: str, name: str, runs: list[Row], difference: float | None) -> Row:
    """Medians in seconds; `spread` is the middle half of the steady runs, (first quartile, third quartile)."""
    errors = [r["error"] for r in runs if "error" in r]
    if errors:
        return {"model": model, "provider": name, "error": errors[0]}
    steady = sorted(seconds for r in runs for seconds in r["steady_runs"])
    warm = runs[1:]
    return {
        "model": model,
        "provider": name,
        "shapes": runs[0]["shapes"],
        "nodes": runs[0]["nodes"],
        "device": runs[0]["device"],
        "registration": statistics.median(r["registration"] for r in runs),
        "creation": statistics.median(r["creation"] for r in runs),
        "first_run_cold": runs[0]["first_run"],
        "first_run_warm": statistics.median(r["first_run"] for r in warm) if warm else None,
        "steady": statistics.median(steady),
        "spread": [float(q) for q in np.quantile(steady, (0.25, 0.75))],
        "steady_runs": len(steady),
        "peak_host_bytes": max(r["peak_host_bytes"] for r in runs),
        "device_bytes": runs[0]["device_bytes"],
        "difference": difference,
    }


def _difference(outputs: dict[str, Path], name: str) -> float | None:
    """Largest error as a part of the output's scale; None without the CPU provider's outputs."""
    if "cpu" not in outputs or not (outputs["cpu"].exists() and outputs[name].exists()):
        return None
    with np.load(outputs["cpu"]) as want, np.load(outputs[name]) as got:
        pairs = [(want[k].astype(np.float64), got[k].astype(np.float64)) for k in want.files]
        return max(float(np.abs(w - g).max() / max(np.abs(w).max(), 1e-30)) for w, g in pairs if w.size)


def _shader_caches(folder: Path) -> dict[str, str]:
    """Where the Mesa and NVIDIA drivers keep compiled shaders."""
    return {"MESA_SHADER_CACHE_DIR": str(folder), "__GL_SHADER_DISK_CACHE_PATH": str(folder)}


def _sourced(file: Path) -> dict[str, str]:
    command = ["bash", "-c", 'set -a; . "$1" >&2; env -0', "bash", str(file)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return dict(entry.split("=", 1) for entry in printed.split("\0") if "=" in entry)


def host() -> dict[str, str]:
    versions = {"Python": platform.python_version()}
    for package in ("onnxruntime", "onnxruntime-ep-wgpu", "onnxruntime-ep-webgpu", "wgpu"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "versions": ", ".join(f"{k} {v}" for k, v in versions.items()),
    }


if __name__ == "__main__":
    sys.exit(main())
