"""Errors of providers on f16 models, against f32 results of the same rounded weights and inputs.

    python -m bench.half_error resnet_f16.onnx vit_f16.onnx
    python -m bench.half_error *_f16.onnx --providers ours official cpu --official-env FILE

Models and inputs are given as in bench.compare, and each provider runs in its own process. An error is the largest difference
from the f32 results over all outputs, relative to the output's largest value. `bound` is the error of an f32 computation that
is rounded to f16 where this provider's kernels store. The CPU provider computes f16 models in f32 and rounds little more than
the results.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime as ort
from rich import box
from rich.console import Console
from rich.table import Table

from tests import boundaries, provider, support

from . import process, show
from .compare import PROVIDERS, host
from .models import Model, find
from .process import Row


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.half_error", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="files of models in f16, or folders of them")
    parser.add_argument("--providers", nargs="+", default=["ours", "cpu"], choices=PROVIDERS)
    parser.add_argument("--official-env", type=Path, metavar="FILE", help="as in bench.compare")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    missing = [p for p in arguments.providers if not provider.installed(p)]
    if missing:
        parser.error(f"not installed: {', '.join(provider.PACKAGES[p] for p in missing)}")
    try:
        models = find(arguments.models)
    except FileNotFoundError as error:
        parser.error(str(error))
    environments = process.environments(arguments.providers, arguments.official_env)
    rows = [measure(model, environments) for model in models]
    report: Row = {"host": host(), "rows": rows}
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    _show(report, arguments.providers)
    return 1 if any(row["failed"] for row in rows) else 0


def measure(model: Model, environments: dict[str, dict[str, str]]) -> Row:
    """Returns the error of each provider and the bound, for one model."""
    show.note(f"{model.name}: truth")
    ort.set_default_logger_severity(4)
    judge = boundaries.Judge(boundaries.optimised(model.file()), model.feeds(), support.target())
    row: Row = {"model": model.name, "bound": judge.bound, "errors": {}, "failed": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name, environment in environments.items():
            show.note(f"{model.name}: {name}")
            outputs = str(Path(folder) / f"{name}.npz")
            job = {"provider": name, "model": model.data(), "runs": 1, "outputs": outputs}
            result = process.run("bench.worker", job, environment)[0]
            if "error" in result:
                row["failed"][name] = result["error"]
                continue
            with np.load(outputs) as arrays:
                row["errors"][name] = judge.error([arrays[k] for k in arrays.files])
    return row


def _show(report: Row, providers: list[str]) -> None:
    console = Console() if sys.stdout.isatty() else Console(width=110)
    for key, value in report["host"].items():
        console.print(f"{key}: {value}", highlight=False)
    table = Table(box=box.SIMPLE)
    table.add_column("model", no_wrap=True)
    for title in (*providers, "bound", "ours / bound", "official / ours"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in report["rows"]:
        errors = row["errors"]
        ours, official = errors.get("ours"), errors.get("official")
        table.add_row(
            row["model"],
            *(f"{errors[p]:.1e}" if p in errors else "failed" for p in providers),
            f"{row['bound']:.1e}",
            f"{ours / row['bound']:.2f}" if ours is not None else "",
            f"{official / ours:.1f}" if ours and official is not None else "",
        )
    console.print(table)
    for row in report["rows"]:
        for name, error in row["failed"].items():
            console.print(f"{row['model']}, {name}: {error}", style="red", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
