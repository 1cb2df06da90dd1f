"""Measure which forms of kernels are fastest on an adapter, and write a table for the option tuningTable."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import OptionError
from ._model import (
    adapter_of,
    add_custom_ops_argument,
    add_override_argument,
    given_device,
    open_session,
    whole,
)
from ._output import progress, show_json, show_note, show_table
from ._places import check_files

if TYPE_CHECKING:
    from ..device import Device

OUT = Path("tuning.json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="what to measure: names of docs/tuning.md (all)")
    parser.add_argument("--model", type=Path, metavar="MODEL", help="measure only the kernels of this ONNX file")
    add_override_argument(parser)
    add_custom_ops_argument(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--device", metavar="D", help="number or part of the name of a device (see wgpu-ep info)")
    which.add_argument("--adapter", type=whole(0), metavar="N", help="number of the adapter (0; see wgpu-ep info)")
    parser.add_argument(
        "--output", "--out", type=Path, default=OUT, metavar="FILE", help=f"where the table goes ({OUT})"
    )
    parser.add_argument(
        "--seconds", type=whole(0), default=120, metavar="S", help="approximate seconds of measurements (120)"
    )


def _kernels(args: argparse.Namespace, device: Device) -> list[str]:
    """Returns the kernels to measure: the named ones, limited to the model's if there is a model; [] means all."""
    from ..api.tuning import kernels_of

    if args.model is None:
        if args.override:
            raise OptionError(
                f"--override {args.override[0]} fixes a dimension of a model, and none is named: add --model"
            )
        return list(args.kernels)
    args.device, args.option = None, [f"adapterIndex={device.adapter.index}"]
    with progress("session", 1) as step:
        found = kernels_of(lambda: open_session(args, step), device.target)
    kept = [it for it in found if not args.kernels or it in args.kernels]
    if not kept:
        raise OptionError(f"{args.model} has none of the kernels {', '.join(args.kernels)}; it has {', '.join(found)}")
    return kept


def main(args: argparse.Namespace) -> int:
    from ..api.sessions import adapter_index
    from ..api.tuning import Outcome, choices_of, opened, tuned, wanted
    from ..program.tuning import write_choices

    wanted(args.kernels)
    check_files("--output", args.output)
    named = given_device(args)
    device = opened(adapter_of((args.adapter or 0) if named is None else adapter_index(named)))
    kernels = _kernels(args, device)
    classes = wanted(kernels)
    outcomes: list[Outcome] = []
    with progress(classes[0].kernel, len(classes)) as step:
        for outcome in tuned(device, kernels, args.seconds):
            outcomes.append(outcome)
            step(outcome.shapes.kernel)
    choices, name = choices_of(outcomes), device.target.name
    for problem in dict.fromkeys(it for outcome in outcomes for it in outcome.refused):
        show_note(f"note: not chosen: {problem}")
    if args.json:
        show_json({"adapter": name, "file": str(args.output), "kernels": [_data(it) for it in outcomes]})
    else:
        columns = ["kernel", "type", "shapes", "tried", "chosen", "times as fast"]
        show_table(columns, [_row(it) for it in outcomes], f"{name}\n")
    write_choices(choices, args.output, name)
    if not args.json:
        print(f"\n{args.output}: {len(choices)} choices; use it with the option tuningTable={args.output}")
    return 0


def _row(outcome: Any) -> list[Any]:
    from ..api.tuning import shown, shown_bounds

    shapes, dtype = outcome.shapes, outcome.shapes.dtype
    where = shown_bounds(shapes.bounds) or "all"
    kind = dtype.label if dtype else "any"
    return [shapes.kernel, kind, where, outcome.tried, shown(outcome.chosen), f"{outcome.ratio:.2f}"]


def _data(outcome: Any) -> dict[str, Any]:
    shapes = outcome.shapes
    return {
        "kernel": shapes.kernel,
        "dtype": shapes.dtype.label if shapes.dtype else "",
        "where": {b.quantity: {"least": b.least, "most": b.most} for b in shapes.bounds},
        "tried": outcome.tried,
        "chosen": asdict(outcome.chosen) if outcome.chosen else None,
        "ratio": outcome.ratio,
        "shipped_ms": outcome.milliseconds,
    }
