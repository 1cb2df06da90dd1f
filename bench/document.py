"""Writes measurements into the documentation: `python -m bench.document`.

In: the reports of `bench.compare --json` in bench/results, one file per machine. Out: docs/benchmarks.md, and the table in
README.md between its two markers. Invariant: no number in either is typed by hand; a test compares them with the reports.
"""

from __future__ import annotations

import argparse
import json
import statistics
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .ratios import MEASURES
from .ratios import ratios as ratios_to
from .show import PANELS, ms

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
README, DOCUMENT = ROOT / "README.md", ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- written by bench.document -->", "<!-- end -->"
WIDTH = 125  # of lines outside tables
Row = dict[str, Any]

HEAD = """# Benchmarks

`python -m bench.document` writes this page from the reports in `bench/results`, which `python -m bench.compare --save NAME`
measures. All providers run the same models on the same inputs in alternating processes: this one (ours), the official plugin
(onnxruntime-ep-webgpu) and ONNX Runtime's CPU provider on the same machine (CPU).

* *With copies* is `session.run` on numpy arrays.
* *Without copies* is a run on values that stay on the device. Its smallest output is read at the end, to be sure that the GPU is
  done.
* *GPU* is the sum of the dispatches from timestamp queries, where a provider has them.
* *Start* is everything before the first result: loading the provider, creating the session and the first run. *Cold* is with
  empty caches, of the driver and of Programs.

Times are medians in milliseconds. Ratios are theirs / ours: above 1 ours is faster. The error is the largest difference to the
CPU provider as a part of the output's scale. A column without measurements is left out.
"""


def reports() -> list[Row]:
    """Returns one report per machine, in the order of file names."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]


def document(found: Sequence[Row]) -> str:
    """Returns docs/benchmarks.md."""
    return "\n".join([HEAD, *(_machine(report) for report in found)])


def readme(found: Sequence[Row]) -> str:
    """Returns the generated part of README.md.

    It has per model the inputs, the nodes that each plugin leaves to the CPU provider, and runs with copies on every machine
    with a GPU. A line compares software rendering."""
    with_gpu = [report for report in found if not _is_software(report)]
    names = sorted({model for report in with_gpu for model in report["ratios"]["models"]})
    lines = [
        "| model | inputs | nodes on the CPU, ours / official |" + " ours | official | CPU |" * len(with_gpu),
        "| --- | --- | ---: |" + " ---: | ---: | ---: |" * len(with_gpu),
        "| | | |" + "".join(f" *{_adapter(report)}* | | |" for report in with_gpu),
    ]
    for name in names:
        report = next(report for report in with_gpu if name in report["ratios"]["models"])
        left = " / ".join(str(_row(report, name, who)["nodes"]["cpu"]) for who in PLUGINS)
        inputs = _inputs(_row(report, name, "ours"), named=False)
        lines.append(f"| {name} | {inputs} | {left} |" + "".join(_cells(report, name) for report in with_gpu))
    lines.append("")
    for report in found:
        lines.append(_wrapped(f"* {_adapter(report)}: {_summary(report)} {_setting(report)}"))
    return "\n".join(lines)


def with_table(text: str, table: str) -> str:
    """Returns README.md with a new table. Raises ValueError if the markers are missing."""
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:begin]}\n{table}\n{text[end:]}"


def _machine(report: Row) -> str:
    measures = [m for m in MEASURES if m in report["ratios"]["geometric_mean"]]
    lines = [f"## {_adapter(report)}", "", _wrapped(f"{_setting(report)} {_summary(report)}"), ""]
    times = [(title, who) for title in ("with_copies", "without_copies") for who in WHO]
    times += [("gpu", who) for who in PLUGINS]
    lines += _table(
        ["model", *(f"{TITLES[title]} {who}" for title, who in times), "error ours", "official"],
        [[name, *(ms(_row(report, name, who).get(title)) for title, who in times),
          *(_error(_row(report, name, who)) for who in PLUGINS)] for name in report["ratios"]["models"]],
    )  # fmt: skip
    missing = dict.fromkeys(row["gpu_missing"] for row in report["rows"] if row.get("gpu_missing"))
    lines += ["", *(_wrapped(f"No GPU times: {reason}.") + "\n" for reason in missing), "Inputs:", ""]
    lines += [_wrapped(f"* {name}: {_inputs(_row(report, name, 'ours'))}") for name in report["ratios"]["models"]]
    lines += ["", "Ratios, official / ours and, in the last two columns, CPU / ours:", ""]
    ratios, cpu = report["ratios"], ratios_to(report["rows"], "cpu")
    steady = ("with_copies", "without_copies")

    def cells(official: Row, other: Row) -> list[str]:
        return [*(_ratio(official.get(m)) for m in measures), *(_ratio(other.get(m)) for m in steady)]

    rows = [[name, *cells(of, cpu["models"].get(name, {}))] for name, of in ratios["models"].items()]
    rows.append(["*geometric mean*", *cells(ratios["geometric_mean"], cpu["geometric_mean"])])
    least = [{m: of for m, (of, _) in found["least"].items()} for found in (ratios, cpu)]
    rows.append(["*least*", *cells(*least)])
    columns = ["model", *(MEASURES[m] for m in measures), *(f"CPU, {MEASURES[m]}" for m in steady)]
    lines += _table(columns, rows)
    lines += ["", "Start in milliseconds, peak memory in MB, nodes on WebGPU of all:", ""]
    keys = ("creation", "start_cold", "start_warm")
    columns = [
        "model",
        *(f"{t} {who}" for t in ("create", "start, cold", "start, warm") for who in PLUGINS),
    ]
    columns += ["host ours", "official", "device ours", "nodes ours", "official"]
    rows = []
    for name in ratios["models"]:
        ours, official = (_row(report, name, who) for who in PLUGINS)
        cells = [ms(row[key]) for key in keys for row in (ours, official)]
        rows.append([name, *cells, _mb(ours["peak_host_bytes"]), _mb(official["peak_host_bytes"]),
                     _mb(ours["device_bytes"]), _nodes(ours), _nodes(official)])  # fmt: skip
    return "\n".join([*lines, *_table(columns, rows), ""])


PLUGINS = ("ours", "official")
WHO = ("ours", "official", "CPU")
TITLES = {"with_copies": "with copies", "without_copies": "without copies", "gpu": "GPU"}


def _wrapped(text: str) -> str:
    """Wraps text to WIDTH. Continuation lines of a list item are indented."""
    indent = "  " if text.startswith("* ") else ""
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a Markdown table without the columns that have no measurement."""
    kept = [k for k in range(len(columns)) if not rows or any(row[k] for row in rows)]
    columns, rows = [columns[k] for k in kept], [[row[k] for k in kept] for row in rows]
    return [
        f"| {' | '.join(columns)} |",
        "| --- |" + " ---: |" * (len(columns) - 1),
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def _row(report: Row, model: str, who: str) -> Row:
    """Returns the row of a provider; {} if it was not measured."""
    wanted = (model, who.lower())
    return next((r for r in report["rows"] if (r["model"], r["provider"]) == wanted), {})


def _cells(report: Row, model: str) -> str:
    return "".join(f" {ms(_row(report, model, who).get('with_copies'))} |" for who in WHO)


def _inputs(row: Row, named: bool = True) -> str:
    """Returns the shapes of a model's inputs. Equal shapes appear once, with the inputs' names or their number."""
    by_shape: dict[str, list[str]] = {}
    for name, shape in row["shapes"].items():
        by_shape.setdefault("x".join(map(str, shape)) or "scalar", []).append(name)
    if named:
        return "; ".join(f"{', '.join(names)} {shape}" for shape, names in by_shape.items())
    return ", ".join(shape if len(names) == 1 else f"{len(names)} of {shape}" for shape, names in by_shape.items())


def _is_software(report: Row) -> bool:
    return _adapter(report).startswith(("llvmpipe", "SwiftShader"))


def _summary(report: Row) -> str:
    """Returns the comparison of runs with copies to the two other providers, in words."""
    official, cpu = report["ratios"], ratios_to(report["rows"], "cpu")
    texts = []
    for title, found in (("the official plugin", official), ("the CPU provider", cpu)):
        of = {model: ratio["with_copies"] for model, ratio in found["models"].items() if "with_copies" in ratio}
        if not of:
            continue
        slower = sorted((model for model, ratio in of.items() if ratio < 1), key=lambda model: of[model])
        if len(slower) == len(of):
            factors = [1 / ratio for ratio in of.values()]
            texts.append(f"{title} is {min(factors):.1f} to {max(factors):.0f} times faster on all {len(of)} models")
            continue
        mean = found["geometric_mean"]["with_copies"]
        text = f"{mean:.2f} times as fast as {title} on geometric mean"
        texts.append(text + (f", slower on {len(slower)} of {len(of)} ({', '.join(slower)})" if slower else ""))
    last = " Software rendering is for tests." if _is_software(report) else ""
    return f"{'; '.join(texts)}.{last}"


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
    """Returns the conditions of the measurement: device, machine, versions, processes, date and spread."""
    device = next(r["device"] for r in report["rows"] if r["provider"] == "ours" and "device" in r)
    host, settings = report["host"], report["settings"]
    machine = "; ".join([device, *(host[key] for key in ("system", "load", "versions") if key in host)])
    processes = f"{settings['rounds']} processes of at most {settings['runs']} runs"
    return f"{machine}; {processes}, {host['date']}. {_spread(report)}"


def _spread(report: Row) -> str:
    """Returns how far the interquartile range of the runs extends from the median, in words."""
    rows = [r for r in report["rows"] if r["provider"] in ("ours", "official", "cpu") and "error" not in r]
    reach = [max(abs(q / r[kind] - 1) for q in r[f"{kind}_spread"]) for r in rows for kind in PANELS]
    most = max(zip(reach, (r["model"] for r in rows for _ in PANELS), strict=True))
    return (
        f"The middle half of the runs lies within {statistics.median(reach):.0%} of the median for half of the figures, within "
        f"{most[0]:.0%} for all (most for {most[1]})."
    )


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m bench.document", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    found = reports()
    DOCUMENT.write_text(document(found))
    README.write_text(with_table(README.read_text(), readme(found)))


if __name__ == "__main__":
    main()
