"""Profile a model: where the time of its runs goes, as a page, a trace for Perfetto and tables."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..writing import write_file
from ._model import add_input_arguments, add_model_arguments, check_file, make_feeds, open_session, whole
from ._output import progress, show_json, show_pairs, show_table
from ._places import check_files

if TYPE_CHECKING:
    from ..device import Device
    from ..profiles.events import Event, Profile
    from ..profiles.tables import Row

# Providers have profilers of their own from this version of ONNX Runtime on.
ORT_WITH_PROFILERS = 25


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
    """Prints the tables, or with `args.json` all of them as data."""
    from ..profiles.tables import BEYOND, by_dispatch, by_kernel, by_operator

    if args.json:
        tables = {"operators": by_operator, "kernels": by_kernel, "dispatches": by_dispatch}
        rows = {name: [asdict(row) for row in table(profile)] for name, table in tables.items()}
        show_json({**profile.facts, "summary": total, "tables": rows, **files})
        return
    shown = {name: _time(total[name]) for name in ("first_run", "run", "gpu") if total[name] is not None}
    show_pairs({**profile.facts, **shown, "dispatches": round(total["dispatches"], 1), **files})
    columns = ("operator", "on", "calls", "time", "of GPU time", "FLOP/s", "B/s", "of peak")
    operators = by_operator(profile)[: args.rows]
    show_table(columns, [_shown(row) for row in operators], f"\n{_which(len(profile.runs))}")
    if any(row.beyond for row in operators):
        print(f"\n* {BEYOND}")


def _shown(row: Row) -> list[object]:
    share = f"{row.share:.1%}" if row.where == "GPU" else ""
    peak = f"{row.of_peak:.0%} {row.bound}{'*' * row.beyond}" if row.of_peak is not None else ""
    return [row.name, row.where, round(row.calls, 1), _time(row.time), share, _rate(row.flops), _rate(row.bytes), peak]


def _which(runs: int) -> str:
    return "per run, without the first" if runs > 1 else "of the only run" if runs else "no whole run is in the profile"


def _rate(number: float) -> str:
    """A rate with three digits and the prefix of its unit; "" for none."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * factor:
            return f"{number / factor:.3g} {prefix}"
    return f"{number:.3g}" if number else ""


def _time(microseconds: float) -> str:
    return f"{microseconds / 1e3:.3f} ms"


def _run(args: argparse.Namespace) -> Profile:
    """Runs the model once and then `--runs` times."""
    import onnxruntime as ort

    from ..api.reports import report
    from ..profiles.events import RUN, from_ort, from_spans
    from ..trace import Recorder, span
    from .info import versions

    with_profilers = int(ort.__version__.split(".")[1]) >= ORT_WITH_PROFILERS
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as folder, progress("session", 2 + args.runs) as step:
        # Without profilers of providers, runs on this thread are listened to directly.
        with nullcontext() if with_profilers else recorder.listening():
            session = open_session(
                args, step, enable_profiling=with_profilers, profile_file_prefix=str(Path(folder) / "ort")
            )
            feeds = make_feeds(session, args)
            for number in range(1 + args.runs):
                step(f"run {number} of {args.runs}" if number else "first run")
                with span(RUN, args.model.stem):
                    session.run(None, feeds)
        events = from_ort(Path(session.end_profiling())) if with_profilers else from_spans(recorder.finish())
        step("peak of the adapter")
        device = _device(session)
    found = versions()
    facts = {"model": args.model.name, "device": device.adapter.name, "backend": device.adapter.backend}
    facts |= {"driver": device.adapter.driver}
    placed = report(session)
    facts |= {"library": placed.library, "nodes": str(len(placed.nodes)), "nodes_on_cpu": str(len(placed.on_cpu))}
    facts |= {name: found[name] for name in ("onnxruntime", "onnxruntime-ep-wgpu")}
    facts |= {"session": placed.made(), "pipelines": str(placed.pipelines).partition(": ")[2]}
    return _beside_peak(events, facts, device)


def _read(args: argparse.Namespace) -> Profile:
    """The profile in a file. It says which adapter it was; when this machine has that one, its peak is measured."""
    from ..device import adapters, open_device
    from ..profiles.events import Profile, from_ort

    check_file(args.model, "a profile of ONNX Runtime")
    events = from_ort(args.model)
    name = next((event.args["device"] for event in events if "device" in event.args), None)
    here = next((adapter for adapter in adapters() if adapter.name == name), None)
    facts = {"model": args.model.name, "device": name or "no event of a GPU"}
    return _beside_peak(events, facts, open_device(here)) if here is not None else Profile(events, facts)


def _device(session: Any) -> Device:
    from ..api.reports import state_of

    device: Device = state_of(session).device()
    return device


def _beside_peak(events: list[Event], facts: dict[str, str], device: Device) -> Profile:
    """The profile with the adapter's peak; without, and a warning, when that cannot be measured."""
    from ..device.peak import peak
    from ..profiles.events import Profile

    if not device.has_timestamps:
        lacks = f"the adapter {device.adapter.name} has no timestamps (feature timestamp-query)"
        print(f"warning: {lacks}: the profile has times of the CPU only", file=sys.stderr)
        return Profile(events, facts)
    best = peak(device)
    return Profile(events, facts, best.flops, best.bytes)
