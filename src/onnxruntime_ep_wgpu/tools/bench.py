"""Measure a model on every provider of this machine, in one table: WebGPU, the CPU, and what else ONNX Runtime has."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..writing import errors_about
from ._model import (
    add_input_arguments,
    add_model_arguments,
    check_file,
    given_sizes,
    make_feeds,
    open_session,
    register_custom_ops,
    whole,
)
from ._output import progress, show_json, show_note, show_table

CPU = "CPUExecutionProvider"
_OF_OTHERS = ("AzureExecutionProvider",)
"""Providers that do not run models on this machine."""


@dataclass
class Measured:
    """The measurements of one provider: seconds of session creation and of runs.

    `difference` is the largest difference from the CPU provider's results, relative to their largest value. `problem` is the
    reason if there are no measurements."""

    provider: str
    session_s: float | None = None
    first_run_s: float | None = None
    median_s: float | None = None
    min_s: float | None = None
    max_s: float | None = None
    difference: float | None = None
    problem: str = ""
    times: list[float] = field(default_factory=list)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    add_input_arguments(parser)
    parser.add_argument("--runs", type=whole(1), default=10, metavar="N", help="timed runs of each provider (10)")


def main(args: argparse.Namespace) -> int:
    """Returns 1 if a provider could not run the model. Providers take turns, so a slowdown of the machine affects all of
    them."""
    check_file(args.model)
    makers: dict[str, Callable[[], Any]] = {"WebGPU": lambda: open_session(args, step, allow_cpu_only=True)}
    makers |= {name: lambda name=name: _stock(args, name) for name in _others()}  # type: ignore[misc]
    rows, sessions = {name: Measured(name) for name in makers}, {}
    feeds: dict[str, Any] = {}
    results: dict[str, list[Any]] = {}
    with progress("sessions", 2 * len(makers) + args.runs) as step:
        for name, make in makers.items():
            step(f"session of {name}")
            start = time.perf_counter()
            try:
                made = make()
                rows[name].session_s = time.perf_counter() - start
                feeds = feeds or make_feeds(made, args)
                start = time.perf_counter()
                results[name] = made.run(None, feeds)
                rows[name].first_run_s = time.perf_counter() - start
                sessions[name] = made
            except Exception as error:
                if name == "WebGPU":  # the file or an input is wrong
                    raise
                rows[name].problem = " ".join(str(error).split())[:160]
        for k in range(args.runs):
            step(f"run {k + 1} of {args.runs}")
            for name, session in sessions.items():
                start = time.perf_counter()
                session.run(None, feeds)
                rows[name].times.append(time.perf_counter() - start)
    for name in sessions:
        row = rows[name]
        row.median_s, row.min_s, row.max_s = statistics.median(row.times), min(row.times), max(row.times)
        row.difference = _difference(results[name], results.get(CPU))
    _show(args, list(rows.values()), {name: list(np.shape(value)) for name, value in feeds.items()})
    return int(any(row.problem for row in rows.values()))


def _others() -> list[str]:
    """Returns the providers built into this ONNX Runtime, the CPU provider last."""
    import onnxruntime as ort

    return [name for name in ort.get_available_providers() if name not in _OF_OTHERS]


def _stock(args: argparse.Namespace, provider: str) -> Any:
    import onnxruntime as ort

    from ..api.free_dimensions import fix

    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    register_custom_ops(settings, args.custom_ops)
    fixed = fix(str(args.model), given_sizes(args), settings, "--override")
    return ort.InferenceSession(fixed.model, settings, providers=list(dict.fromkeys((provider, CPU))))


def _difference(found: list[Any], right: list[Any] | None) -> float | None:
    """Returns the largest difference of two runs' results relative to the largest value; None if they are not comparable."""
    from ..api.differences import errors

    if right is None:
        return None
    most = 0.0
    for ours, theirs in zip(found, right, strict=True):
        if not isinstance(ours, np.ndarray) or np.shape(ours) != np.shape(theirs) or ours.dtype.kind not in "biuf":
            return None
        if ours.size:
            apart, _ = errors(ours.astype(np.float64), theirs.astype(np.float64))
            most = max(most, float(apart.max()))
    return most


def _show(args: argparse.Namespace, rows: list[Measured], shapes: dict[str, list[int]]) -> None:
    if args.json:
        show_json(
            {"model": str(args.model), "inputs": shapes, "runs": args.runs, "providers": [asdict(it) for it in rows]}
        )
        return
    with errors_about("standard output"):
        print(
            f"{args.model}: {', '.join(f'{name} {shape}' for name, shape in shapes.items())}, {args.runs} runs in turns\n"
        )
    columns = ("provider", "session s", "first run s", "median s", "min s", "max s", "difference")
    cells = [
        (
            it.provider,
            *(_text(v) for v in (it.session_s, it.first_run_s, it.median_s, it.min_s, it.max_s, it.difference)),
        )
        for it in rows
    ]
    show_table(columns, cells)
    for it in rows:
        if it.problem:
            show_note(f"warning: {it.provider}: {it.problem}")


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 1e-3 else f"{value:.4f}"
