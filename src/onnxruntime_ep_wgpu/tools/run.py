"""Run a model on WebGPU once or more, on given or made-up inputs."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..writing import atomic_file, errors_about
from ._model import add_input_arguments, add_model_arguments, make_feeds, open_session, whole
from ._output import progress, show_json, show_note, show_pairs, show_table
from ._places import check_folder, file_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    add_input_arguments(parser)
    parser.add_argument("--runs", type=whole(0), default=5, metavar="N", help="runs after the first one (5)")
    parser.add_argument("--output", type=Path, metavar="DIR", help="write every output to DIR/NAME.npy")


def main(args: argparse.Namespace) -> int:
    from ..api.reports import report

    if args.output is not None:
        check_folder("--output", args.output)
    with progress("session", 2 + args.runs) as step:
        start = time.perf_counter()
        session = open_session(args, step)
        created = time.perf_counter() - start
        feeds = make_feeds(session, args)
        step("first run")
        start = time.perf_counter()
        results = session.run(None, feeds)
        first = time.perf_counter() - start
        times = []
        for k in range(args.runs):
            step(f"run {k + 1} of {args.runs}")
            start = time.perf_counter()
            results = session.run(None, feeds)
            times.append(time.perf_counter() - start)
    names = [value.name for value in session.get_outputs()]
    placed = report(session)
    data: dict[str, Any] = {
        "model": str(args.model),
        "device": placed.device,
        "nodes": len(placed.nodes),
        "nodes_on_cpu": len(placed.on_cpu),
        "session_s": created,
        "first_run_s": first,
        "run_s": {"median": statistics.median(times), "min": min(times), "max": max(times)} if times else None,
        "inputs": [_summary(name, array) for name, array in feeds.items()],
        "outputs": [_summary(name, array) for name, array in zip(names, results, strict=True)],
    }
    files = _files(names, results) if args.output is not None else {}
    for row in data["outputs"]:
        if row["name"] in files:
            row["file"] = files[row["name"]]
    _show(args, data)
    if args.output is not None:
        with errors_about(args.output):
            args.output.mkdir(exist_ok=True)
        for name, value in zip(names, results, strict=True):
            if name in files:
                text = value.dtype.kind == "O"
                with atomic_file(args.output / files[name]) as file:
                    np.save(file, value.astype(str) if text else value, allow_pickle=False)
    return 0


def _files(names: Sequence[str], results: Sequence[Any]) -> dict[str, str]:
    """Returns the file of each output. An output that is not a tensor has no .npy form; a note on stderr says so."""
    tensors = [name for name, value in zip(names, results, strict=True) if isinstance(value, np.ndarray)]
    for name in names:
        if name not in tensors:
            show_note(f"note: output {name!r} is not a tensor and is not written")
    return file_names(tensors, ".npy")


def _show(args: argparse.Namespace, data: dict[str, Any]) -> None:
    if args.json:
        show_json(data)
        return
    times = data["run_s"]
    steady = times and f"{times['median']:.4f} s (median of {args.runs}, {times['min']:.4f} to {times['max']:.4f})"
    show_pairs({
        **{key: data[key] for key in ("model", "device", "nodes", "nodes_on_cpu")},
        "session": f"{data['session_s']:.3f} s", "first run": f"{data['first_run_s']:.3f} s",
        **({"later runs": steady} if steady else {}),
    })  # fmt: skip
    columns = ("name", "type", "shape", "min", "mean", "max")
    for title in ("inputs", "outputs"):
        shown = (*columns, *(["file"] if any("file" in row for row in data[title]) else []))
        show_table(shown, [[row.get(c, "") for c in shown] for row in data[title]], f"\n{title}")


def _summary(name: str, array: Any) -> dict[str, Any]:
    """Returns type, shape and range of an array for display; None where it is empty or not numeric."""
    array = np.asarray(array)
    row: dict[str, Any] = {"name": name, "type": array.dtype.name, "shape": "x".join(map(str, array.shape)) or "scalar"}
    if array.size == 0 or array.dtype.kind not in "fiub":
        return {**row, "min": None, "mean": None, "max": None}
    numbers = array.astype(np.float64)
    return {**row, **{k: float(f"{getattr(numbers, k)():.6g}") for k in ("min", "mean", "max")}}
