"""Every value that this provider calculates in every model, against the CPU provider.

    python -m bench.verify_zoo                               all models of the zoo, in the size of the tests
    python -m bench.verify_zoo --models folder --official    a folder's, and how many nodes the official plugin runs

Prints per model, each in its own process:

- nodes on WebGPU, and on the CPU with the reasons
- how many values the kernels store, and how many of them are values of the model, which can be compared
- the largest error
- the first kernel in execution order with an error above the tolerance that float64 does not clear

An error is relative to the value's scale; integers and bools must be equal. The exit code is 1 if a model fails or differs.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import sys
from pathlib import Path

from onnxruntime_ep_wgpu.tools._output import show_table

from . import process, show
from .models import Model, find, small, zoo_names
from .process import Row


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.verify_zoo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", help=f"files, folders, or of {', '.join(zoo_names())}")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of these models, those of these names")
    parser.add_argument("--variation", type=int, default=0, help="which input shape of a zoo model (%(default)s)")
    parser.add_argument("--device", help="number or a part of the name of the adapter")
    parser.add_argument("--tolerance", type=float, help="largest error of every type (by default 1e-3, 4e-3 for f16)")
    parser.add_argument("--official", action="store_true", help="count the nodes that the official plugin runs, too")
    parser.add_argument("--official-env", type=Path, metavar="FILE", help="shell file to source for it")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    try:
        models = find(arguments.models or small(), arguments.variation)
    except FileNotFoundError as error:
        parser.error(str(error))
    environments = process.environments(["ours", "official"], arguments.official_env)
    rows = []
    for model in models:
        if arguments.only and model.name not in arguments.only:
            continue
        show.note(model.name)
        job = {"model": model.data(), "device": arguments.device, "tolerance": arguments.tolerance}
        (row,) = process.run(__spec__.name, job, environments["ours"])
        row["model"] = model.name
        if arguments.official:
            (there,) = process.run(__spec__.name, job | {"placement": "official"}, environments["official"])
            row["official"] = there
        rows.append(row)
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    _show(rows)
    return int(any("error" in row or row["first_differing"] for row in rows))


def _show(rows: list[Row]) -> None:
    print("\n".join(dict.fromkeys(row["device"] for row in rows if "device" in row)))
    columns = [
        "model",
        "on WebGPU",
        "on the CPU",
        "kernels",
        "values",
        "compared",
        "largest error",
        "there",
        "first differing kernel",
    ]
    official = any("official" in row for row in rows)
    if official:
        columns.insert(3, "official: WebGPU, CPU")
    show_table(columns, [_cells(row, official) for row in rows])
    reasons = collections.Counter((row["model"], op, reason) for row in rows for _, op, reason in row.get("on_cpu", ()))
    if reasons:
        shown = [[model, op, count, reason] for (model, op, reason), count in reasons.items()]
        show_table(("model", "operator", "nodes", "reason"), shown, "\nnodes on the CPU")


def _cells(row: Row, official: bool) -> list[object]:
    there = row.get("official", {})
    counts = there.get("error") or f"{there.get('on_webgpu', '')}, {there.get('on_cpu', '')}"
    if "error" in row:
        return [row["model"], "failed", *[""] * (6 + official), row["error"]]
    first, worst = row["first_differing"], row["worst"]
    cells: list[object] = [row["model"], row["nodes"] - len(row["on_cpu"]), len(row["on_cpu"])]
    if official:
        cells.append(counts)
    cells += [
        row["kernels"],
        row["stored"],
        row["values"],
        f"{worst['error']:.1e}" if worst else "",
        worst["kernel"] if worst else "",
    ]
    place = f"{first['kernel']} ({', '.join(first['nodes'][:3])})" if first else ""
    cells.append(
        f"{place}: {first['value']} {first['shape']}, {first['error']:.1e} ({first['elements']} elements)"
        if first
        else ""
    )
    return cells


def work(job: Row) -> Row:
    """Verifies one model, in the job's process."""
    model = Model(**job["model"])
    if "placement" in job:
        from tests import provider

        placed = provider.placement(provider.open_session(model.file(), job["placement"]))
        return {"on_webgpu": len(placed.on_gpu), "on_cpu": len(placed.on_cpu), "cpu_operators": placed.cpu_operators()}
    import onnxruntime_ep_wgpu as webgpu_ep
    from onnxruntime_ep_wgpu.api.verify import compared

    path, feeds = model.file(), model.feeds()
    found = compared(
        lambda: webgpu_ep.session(path, device=job["device"]), lambda _: feeds, lambda _: None, job["tolerance"]
    )

    bad = [row for row in found.kernels if row.differs(job["tolerance"])]
    worst = max(found.kernels, key=lambda row: row.error if row.error == row.error else float("inf"), default=None)
    return {
        "device": found.device,
        "nodes": len(found.nodes),
        "on_cpu": [(node.name, node.op_type, node.reason) for node in found.on_cpu],
        "kernels": found.dispatches,
        "stored": found.stored,
        "values": len(found.kernels),
        "kernels_differing": len({row.kernel for row in bad}),
        "first_differing": vars(bad[0]) if bad else None,
        "worst": vars(worst) if worst else None,
    }


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("{"):
        process.give(work(json.loads(sys.argv[1])))
        sys.stdout.flush()
        os._exit(0)
    sys.exit(main())
