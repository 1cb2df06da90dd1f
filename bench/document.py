"""Writes what was measured into the documentation: `python -m bench.document`.

In: the reports of `bench.compare --json` in bench/results, one file per machine. Out: docs/benchmarks.md, and the table in
README.md between its two marks. Invariant: no figure in either is typed by hand; a test compares them with the reports.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .ratios import MEASURES
from .show import PANELS, ms

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
README, DOCUMENT = ROOT / "README.md", ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- written by bench.document -->", "<!-- end -->"
Row = dict[str, Any]

HEAD = """# Benchmarks

Written by `python -m bench.document` from the reports in `bench/results`, which `python -m bench.compare` measured. Both
providers run the same models on the same inputs in processes that alternate.

*With copies* is `session.run` on numpy arrays, *without copies* a run on values that stay on the device, at whose end the
smallest output is read, so that the GPU is known to be done. *GPU* is the sum of the dispatches from timestamp queries,
where both have them. *Start* is everything before the first result: loading the provider, creating the session, the first
run; *cold* with empty shader caches of the driver. Times are medians in milliseconds, ratios are official / ours: above 1
ours is faster. The error is the largest difference to the CPU provider as a part of the output's scale.
"""


def reports() -> list[Row]:
    """One per machine, in the order of the files' names."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]


def document(found: Sequence[Row]) -> str:
    """docs/benchmarks.md."""
    return "\n".join([HEAD, *(_machine(report) for report in found)])


def readme(found: Sequence[Row]) -> str:
    """The table of README.md: nodes that each leaves to the CPU, and runs with copies, a group of columns per machine."""
    names = sorted({model for report in found for model in report["ratios"]["models"]})
    lines = [
        "| model | nodes on the CPU, ours / official |" + " ours | official | ratio |" * len(found),
        "| --- | ---: |" + " ---: | ---: | ---: |" * len(found),
        "| | |" + "".join(f" *{_adapter(report)}* | | |" for report in found),
    ]
    for name in names:
        report = next(report for report in found if name in report["ratios"]["models"])
        left = " / ".join(str(_row(report, name, who)["nodes"]["cpu"]) for who in WHO)
        lines.append(f"| {name} | {left} |" + "".join(_cells(report, name) for report in found))
    for title, key in (("geometric mean", "geometric_mean"), ("least", "least")):
        values = [report["ratios"][key].get("with_copies") for report in found]
        shown = [value[0] if isinstance(value, list) else value for value in values]
        lines.append(f"| *{title}* | |" + "".join(f" | | {_ratio(value)} |" for value in shown))
    machines = "\n".join(f"* {_adapter(report)}: {_setting(report)}" for report in found)
    return "\n".join([*lines, "", machines])


def with_table(text: str, table: str) -> str:
    """README.md with its table replaced. Raises ValueError when it lacks the marks."""
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:begin]}\n{table}\n{text[end:]}"


def _machine(report: Row) -> str:
    measures = [m for m in MEASURES if m in report["ratios"]["geometric_mean"]]
    lines = [f"## {_adapter(report)}", "", _setting(report), ""]
    lines += _table(
        ["model", *(f"{title} {who}" for title in ("with copies", "without copies", "GPU") for who in ("ours", "official")),
         "error ours", "official"],
        [[name, *(ms(_row(report, name, who)[m]) for m in ("with_copies", "without_copies", "gpu") for who in WHO),
          *(_error(_row(report, name, who)) for who in WHO)] for name in report["ratios"]["models"]],
    )  # fmt: skip
    lines += ["", "Ratios:", ""]
    ratios = report["ratios"]
    rows = [[name, *(_ratio(of.get(m)) for m in measures)] for name, of in ratios["models"].items()]
    rows.append(["*geometric mean*", *(_ratio(ratios["geometric_mean"][m]) for m in measures)])
    rows.append(["*least*", *(_ratio(ratios["least"][m][0]) for m in measures)])
    lines += _table(["model", *(MEASURES[m] for m in measures)], rows)
    lines += ["", "Start in milliseconds, peak memory in MB, nodes on WebGPU of all:", ""]
    keys = ("creation", "start_cold", "start_warm")
    columns = [
        "model",
        *(f"{t} {who}" for t in ("create", "start, cold", "start, warm") for who in ("ours", "official")),
    ]
    columns += ["host ours", "official", "device ours", "nodes ours", "official"]
    rows = []
    for name in ratios["models"]:
        ours, official = (_row(report, name, who) for who in WHO)
        cells = [ms(row[key]) for key in keys for row in (ours, official)]
        rows.append([name, *cells, _mb(ours["peak_host_bytes"]), _mb(official["peak_host_bytes"]),
                     _mb(ours["device_bytes"]), _nodes(ours), _nodes(official)])  # fmt: skip
    return "\n".join([*lines, *_table(columns, rows), ""])


WHO = ("ours", "official")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(columns)} |",
        "| --- |" + " ---: |" * (len(columns) - 1),
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _row(report: Row, model: str, provider: str) -> Row:
    row: Row = next(r for r in report["rows"] if (r["model"], r["provider"]) == (model, provider))
    return row


def _cells(report: Row, model: str) -> str:
    ratio = report["ratios"]["models"].get(model, {}).get("with_copies")
    if ratio is None:
        return " | | |"
    ours, official = (_row(report, model, who)["with_copies"] for who in WHO)
    return f" {ms(ours)} | {ms(official)} | {_ratio(ratio)} |"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _error(row: Row) -> str:
    return "" if row["difference"] is None else f"{row['difference']:.0e}"


def _mb(nbytes: int | None) -> str:
    return "" if nbytes is None else f"{nbytes / 1e6:.0f}"


def _nodes(row: Row) -> str:
    return f"{row['nodes']['webgpu']}/{sum(row['nodes'].values())}"


def _adapter(report: Row) -> str:
    device: str = next(r["device"] for r in report["rows"] if r["provider"] == "ours" and "device" in r)
    return device.split(",")[0].split(" (")[0]


def _setting(report: Row) -> str:
    """Everything that the figures depend on."""
    device = next(r["device"] for r in report["rows"] if r["provider"] == "ours" and "device" in r)
    host, settings = report["host"], report["settings"]
    machine = "; ".join([device, *(host[key] for key in ("system", "load", "versions") if key in host)])
    processes = f"{settings['rounds']} processes of at most {settings['runs']} runs"
    return f"{machine}; {processes}, {host['date']}. {_spread(report)}"


def _spread(report: Row) -> str:
    """How far the middle half of the runs reaches from the median."""
    rows = [r for r in report["rows"] if r["provider"] in WHO and "error" not in r]
    reach = [max(abs(q / r[kind] - 1) for q in r[f"{kind}_spread"]) for r in rows for kind in PANELS]
    most = max(zip(reach, (r["model"] for r in rows for _ in PANELS), strict=True))
    return (
        f"The middle half of the runs lies within {statistics.median(reach):.0%} of the median for half of the figures, within "
        f"{most[0]:.0%} for all (most for {most[1]})."
    )


def main() -> None:
    found = reports()
    DOCUMENT.write_text(document(found))
    README.write_text(with_table(README.read_text(), readme(found)))


if __name__ == "__main__":
    main()
