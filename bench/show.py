"""The comparison as a terminal table and as a bar chart."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

CAPTION = (
    "Times in ms: creation of the session, first run with cold and with warm shader caches, median of the steady runs "
    "and their middle half. Peak memory of the host and memory of the device in MB. Nodes on WebGPU of all. Error: "
    "largest difference to the CPU provider, as a part of the output's scale."
)
COLOURS = {"ours": "#1b6ca8", "official": "#d1602f", "cpu": "#8a8a8a"}


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(report: dict[str, Any]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=110)
    for key, value in report["host"].items():
        console.print(f"{key}: {value}", highlight=False)
    for device in dict.fromkeys(f"{r['provider']}: {r['device']}" for r in report["rows"] if "device" in r):
        console.print(device, highlight=False)
    shown = Table(box=box.SIMPLE, padding=(0, 1), caption=CAPTION, caption_justify="left")
    for name in ("model", "provider"):
        shown.add_column(name, no_wrap=True)
    for name in ("nodes", "create", "cold", "warm", "steady", "middle half", "host", "device", "error"):
        shown.add_column(name, justify="right", no_wrap=True)
    last = None
    for row in report["rows"]:
        if last not in (None, row["model"]):
            shown.add_section()
        model = "" if row["model"] == last else Path(row["model"]).name
        last = row["model"]
        shown.add_row(model, row["provider"], *_cells(row))
    console.print(shown)
    for row in report["rows"]:
        if "error" in row:
            console.print(f"{row['model']}, {row['provider']}: {row['error']}", style="red", highlight=False)


def _cells(row: dict[str, Any]) -> list[str]:
    if "error" in row:
        return ["failed"]
    low, high = row["spread"]
    total = row["nodes"]["webgpu"] + row["nodes"]["cpu"]
    return [
        f"{row['nodes']['webgpu']}/{total}",
        _ms(row["creation"]),
        _ms(row["first_run_cold"]),
        _ms(row["first_run_warm"]),
        _ms(row["steady"]),
        f"{_ms(low)} - {_ms(high)}",
        f"{row['peak_host_bytes'] / 1e6:.0f}",
        "" if row["device_bytes"] is None else f"{row['device_bytes'] / 1e6:.0f}",
        "" if row["difference"] is None else f"{row['difference']:.1e}",
    ]


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def chart(report: dict[str, Any], path: Path) -> None:
    """Steady runs per model, one bar per provider, on a logarithmic axis."""
    try:
        import matplotlib
    except ImportError:
        note("no chart: pip install matplotlib")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [r for r in report["rows"] if "error" not in r]
    models, providers = list(dict.fromkeys(r["model"] for r in rows)), list(dict.fromkeys(r["provider"] for r in rows))
    figure, axes = pyplot.subplots(figsize=(1.5 + 1.4 * len(models), 4.2), layout="constrained")
    width = 0.8 / len(providers)
    for index, name in enumerate(providers):
        mine = [r for r in rows if r["provider"] == name]
        places = [models.index(r["model"]) + (index - (len(providers) - 1) / 2) * width for r in mine]
        steady = [r["steady"] * 1e3 for r in mine]
        low = [s - r["spread"][0] * 1e3 for s, r in zip(steady, mine, strict=True)]
        high = [r["spread"][1] * 1e3 - s for s, r in zip(steady, mine, strict=True)]
        axes.bar(places, steady, width, label=name, color=COLOURS[name], yerr=[low, high], capsize=2)
    axes.set_yscale("log")
    axes.set_ylabel("steady run, ms (log)")
    axes.set_xticks(range(len(models)), [Path(m).name for m in models])
    devices = dict.fromkeys(r["device"] for r in rows if r["provider"] != "cpu")
    axes.set_title("\n".join([report["host"]["date"], *devices]), fontsize=8)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    note(f"chart: {path}")
