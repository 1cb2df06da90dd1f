"""Profile a model: where the time of its runs goes, as a page, a trace for Perfetto and tables."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..writing import write_file
from ._model import add_input_arguments, add_model_arguments, check_file, make_feeds, open_session, whole
from ._output import progress, show_json, show_note, show_pairs, show_table
from ._places import check_files

if TYPE_CHECKING:
    from ..api.profiling import Profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, "an ONNX file to run, or a profile (.json) that ONNX Runtime wrote")
    add_input_arguments(parser)
    parser.add_argument("--runs", type=whole(0), default=3, metavar="N", help="runs after the first one (3)")
    parser.add_argument("--output", type=Path, metavar="PREFIX",
                        help="write PREFIX.html and PREFIX.trace.json (the model's name with .profile, here)")  # fmt: skip
    parser.add_argument("--rows", type=whole(0), default=15, metavar="N", help="how many operators to print (15)")


def main(args: argparse.Namespace) -> int:
    from ..profiles.page import page
    from ..profiles.perfetto import trace
    from ..profiles.tables import summary

    prefix = args.output or Path(f"{args.model.stem}.profile")
    written = {"page": Path(f"{prefix}.html"), "trace": Path(f"{prefix}.trace.json")}
    check_file(args.model)
    check_files("--output", *written.values())
    profile = _read(args) if args.model.suffix == ".json" else _run(args)
    total = summary(profile)
    files = {name: str(path) for name, path in written.items()}
    show(args, profile, total, files)
    write_file(written["page"], page(profile))
    write_file(written["trace"], json.dumps(trace(profile)))
    return 0


def show(args: argparse.Namespace, profile: Profile, total: Mapping[str, Any], files: Mapping[str, str]) -> None:
    """Prints the tables, or all of them as JSON with `args.json`."""
    from ..profiles.tables import (
        BEYOND,
        COLUMNS,
        by_dispatch,
        by_kernel,
        by_operator,
        operator_rows,
        shown_time,
        which_runs,
    )  # fmt: skip

    if args.json:
        tables = {"operators": by_operator, "kernels": by_kernel, "dispatches": by_dispatch}
        rows = {name: [asdict(row) for row in table(profile)] for name, table in tables.items()}
        show_json({**profile.facts, "summary": total, "tables": rows, **files})
        return
    shown = {name: shown_time(total[name]) for name in ("first_run", "run", "gpu") if total[name] is not None}
    show_pairs({**profile.facts, **shown, "dispatches": round(total["dispatches"], 1), **files})
    show_table(COLUMNS, operator_rows(profile)[: args.rows], f"\n{which_runs(len(profile.runs))}")
    if any(row.beyond for row in by_operator(profile)[: args.rows]):
        print(f"\n* {BEYOND}")


def _run(args: argparse.Namespace) -> Profile:
    """Runs the model once and then `--runs` times."""
    from ..api.profiling import profiled
    from .info import versions

    with progress("session", 2 + args.runs) as step:
        profile = profiled(
            lambda attributes: open_session(args, step, **attributes),
            lambda session: make_feeds(session, args),
            step,
            args.model.name,
            args.runs,
        )
    found = versions()
    return _warned(
        replace(
            profile, facts={**profile.facts} | {name: found[name] for name in ("onnxruntime", "onnxruntime-ep-wgpu")}
        )
    )


def _read(args: argparse.Namespace) -> Profile:
    """Returns the profile in a file. If this machine has the same adapter, its peak is measured and added."""
    from ..api.profiling import Profile, beside_peak
    from ..device import adapters, open_device
    from ..profiles.events import from_ort

    check_file(args.model, "a profile of ONNX Runtime")
    events = from_ort(args.model)
    name = next((event.args["device"] for event in events if "device" in event.args), None)
    here = next((adapter for adapter in adapters() if adapter.name == name), None)
    profile = Profile(events, {"model": args.model.name, "device": name or "no event of a GPU"})
    return _warned(beside_peak(profile, open_device(here))) if here is not None else profile


def _warned(profile: Profile) -> Profile:
    if profile.lacks:
        show_note(f"warning: {profile.lacks}")
    return profile
