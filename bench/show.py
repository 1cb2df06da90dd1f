"""A comparison as tables on a terminal or in a file, and as a bar chart.

    python -m bench.show FILE.json [--chart FILE.png]

In: the report of `compare`, as data or as a file. Out: text, a .png or .svg.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from onnxruntime_ep_wgpu.tools._output import show_table

from .ratios import MEASURES

STEADY = (
    "\nSteady runs: median in ms and the middle half. With copies: session.run on numpy arrays. Without copies: inputs and "
    "outputs\nstay on the device, each run ends by reading the smallest output. GPU: sum of the dispatches, from timestamps. "
    "Nodes: on\nWebGPU of all. Error: largest difference to the CPU provider, as a part of the output's scale."
)
START = (
    "\nBefore the steady state: registering the library, creating the session, first run with empty and with filled shader "
    "caches, in\nms; peak memory of the process and memory on the device, in MB."
)
COLOURS = {"ours": "#1b6ca8", "official": "#d1602f", "cpu": "#8a8a8a"}
PANELS = {"with_copies": "with copies", "without_copies": "without copies"}
Row = dict[str, Any]


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def tables(report: Row) -> None:
    """Prints all measurements."""
    rows = report["rows"]
    for key, value in report["host"].items():
        print(f"{key}: {value}")
    for device in dict.fromkeys(f"{r['provider']}: {r['device']}" for r in rows if "device" in r):
        print(device)
    columns = ("model", "provider", "nodes", "with copies", "", "without copies", "", "GPU", "error")
    show_table(columns, _grouped(rows, _steady_cells), STEADY)
    columns = ("model", "provider", "register", "create", "first, cold", "first, warm", "host", "device")
    show_table(columns, _grouped(rows, _start_cells), START)
    if report["ratios"]["models"]:
        _show_ratios(report["ratios"])
    for text in dict.fromkeys(
        f"{r['provider']}: no GPU time: {r['gpu_missing']}" for r in rows if r.get("gpu_missing")
    ):
        print(text)
    for row in rows:
        if "error" in row:
            print(f"{row['model']}, {row['provider']}: {row['error']}")


def _show_ratios(found: Row) -> None:
    measures = [m for m in MEASURES if m in found["geometric_mean"]]

    def cells(of: Row) -> list[str]:
        return [f"{of[m]:.2f}" if m in of else "" for m in measures]

    rows = [[model, *cells(of)] for model, of in sorted(found["models"].items())]
    rows.append(["geometric mean", *cells(found["geometric_mean"])])
    rows.append(["least", *cells({m: ratio for m, (ratio, _) in found["least"].items()})])
    title = f"\n{found['other']} / ours: above 1 ours is faster. Start: register, create and the first run"
    show_table(("model", *(MEASURES[m] for m in measures)), rows, title)


def _grouped(rows: Sequence[Row], cells: Any) -> list[list[str]]:
    shown, last = [], None
    for row in rows:
        shown.append(["" if row["model"] == last else row["model"], row["provider"], *cells(row)])
        last = row["model"]
    return shown


def _steady_cells(row: Row) -> list[str]:
    if "error" in row:
        return ["failed", *[""] * 6]
    total = row["nodes"]["webgpu"] + row["nodes"]["cpu"]
    steady = (text for kind in PANELS for text in (ms(row[kind]), " - ".join(map(ms, row[f"{kind}_spread"]))))
    error = "" if row["difference"] is None else f"{row['difference']:.1e}"
    return [f"{row['nodes']['webgpu']}/{total}", *steady, ms(row["gpu"]), error]


def _start_cells(row: Row) -> list[str]:
    if "error" in row:
        return ["failed", *[""] * 5]
    times = (ms(row[key]) for key in ("registration", "creation", "first_run_cold", "first_run_warm"))
    return [*times, _mb(row["peak_host_bytes"]), _mb(row["device_bytes"])]


def ms(seconds: float | None) -> str:
    """Returns milliseconds with three digits."""
    if seconds is None:
        return ""
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def _mb(nbytes: int | None) -> str:
    return "" if nbytes is None else f"{nbytes / 1e6:.0f}"


def chart(report: Row, path: Path) -> None:
    """Plots steady runs per model, one bar per provider, with and without copies, on logarithmic axes."""
    try:
        import matplotlib
    except ImportError:
        note("no chart: pip install matplotlib, or the extra `bench` of this package")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [r for r in report["rows"] if "error" not in r]
    models, providers = _unique(r["model"] for r in rows), _unique(r["provider"] for r in rows)
    size = (2 + max(4, 0.28 * len(models) * len(providers)), 6.5)
    figure, panels = pyplot.subplots(len(PANELS), figsize=size, layout="constrained", sharex=True)
    for axes, (kind, title) in zip(panels, PANELS.items(), strict=True):
        width = 0.84 / len(providers)
        for index, name in enumerate(providers):
            mine = [r for r in rows if r["provider"] == name]
            places = [models.index(r["model"]) + (index - (len(providers) - 1) / 2) * width for r in mine]
            steady = [r[kind] * 1e3 for r in mine]
            quartiles = [[q * 1e3 for q in r[f"{kind}_spread"]] for r in mine]
            low = [s - q[0] for s, q in zip(steady, quartiles, strict=True)]
            high = [q[1] - s for s, q in zip(steady, quartiles, strict=True)]
            colour = COLOURS.get(name)
            axes.bar(places, steady, width, label=name, color=colour, yerr=[low, high], error_kw={"lw": 0.8})
        axes.set_yscale("log")
        axes.set_ylabel("ms per run (log)")
        axes.set_title(f"steady run, {title}", loc="left", fontsize=9)
        axes.grid(axis="y", lw=0.4, alpha=0.5)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False, ncols=len(providers), loc="upper right", bbox_to_anchor=(1, 1.12), fontsize=8)
    panels[-1].set_xticks(range(len(models)), models, rotation=35, ha="right", fontsize=8)
    panels[-1].set_xlim(-0.6, len(models) - 0.4)
    devices = _unique(f"{r['provider']}: {r['device']}" for r in rows if r["provider"] != "cpu")
    figure.suptitle("\n".join([report["host"]["date"], *devices]), fontsize=8)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    note(f"chart: {path}")


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.show", description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("--chart", type=Path)
    arguments = parser.parse_args()
    report = json.loads(arguments.report.read_text())
    tables(report)
    if arguments.chart:
        chart(report, arguments.chart)


if __name__ == "__main__":
    main()
