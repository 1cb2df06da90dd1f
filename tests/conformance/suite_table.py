"""Runs another suite's cases and writes its part of the conformance page.

    python -m tests.conformance.suite_table NAME FOLDER [--provider ours|official|cpu] [--out docs/conformance.md] [--json FILE]

FOLDER has cases as tests.conformance.suites reads them; none of it comes into the repository. The part replaces that of the
same NAME. Exit code 1 when a case that touched WebGPU is wrong.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from tests import provider

from . import page, suites
from .cases import Info
from .table import Line, cell, device_words, lines, on_gpu, run, summary, wrong
from .worker import Row, Setup

NO_DENSE_TENSOR = frozenset(("sequence", "optional", "map", "string", "sparse_tensor"))
"""Types of inputs and outputs without an array of numbers."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the suite's name, a heading of the page")
    parser.add_argument("folder", type=Path, help="the folder with the suite's cases")
    parser.add_argument("--provider", default=provider.DEFAULT, choices=("ours", "official", "cpu"))
    parser.add_argument("--out", type=Path, default=Path("docs/conformance.md"))
    parser.add_argument("--json", type=Path, help="all rows, for programs")
    arguments = parser.parse_args()

    folder = str(arguments.folder.resolve())
    index = suites.index(folder)
    if not index:
        raise SystemExit(f"{arguments.folder} has no case: neither a model.onnx with a test_data_set_0 nor a .jsonc.")
    rows = run(list(index), Setup(arguments.provider, optimize=True, suite=folder))
    if arguments.json:
        arguments.json.write_text(json.dumps(list(rows.values()), indent=1))
    part = render(arguments.name, index, rows, arguments.provider)
    arguments.out.write_text(page.with_suite(arguments.out.read_text(), arguments.name, part))
    print(f"{arguments.out}: {summary(list(rows.values()))}")
    return wrong(rows)


def render(name: str, index: Mapping[str, Info], rows: Mapping[str, Row], which: str) -> str:
    """The part of the page: its heading, a summary, a table."""
    dense = [row for case, row in rows.items() if NO_DENSE_TENSOR.isdisjoint(index[case].types)]
    text = (
        f"{summary(list(rows.values()))}. Of dense tensors alone: {len(dense)} cases, all nodes on WebGPU "
        f"{sum(map(on_gpu, dense))}. onnxruntime {metadata.version('onnxruntime')}, {device_words(which)}."
    )
    head = [
        "| operator | cases | on WebGPU | mixed | right on WebGPU | right | why not |",
        "| --- " + "| ---: " * 5 + "| --- |",
    ]
    return "\n".join([f"### {name}", "", textwrap.fill(text, 125), "", *head, *_table(lines(index, rows)), ""])


def _table(found: Sequence[Line]) -> list[str]:
    whole = [line for line in found if line.gpu_right == line.cases]
    rest = [line for line in found if line.gpu_right != line.cases]
    counted = [sum(getattr(line, it) for line in whole) for it in ("cases", "on_gpu", "mixed", "gpu_right", "right")]
    shared = Line(f"{len(whole)} others" if rest else f"all {len(whole)}", *counted, notes=())
    return [
        f"| {it.operator} | {it.cases} | {it.on_gpu} | {it.mixed} | {it.gpu_right} | {it.right} | {cell(it.notes)} |"
        for it in (*rest, *([shared] if whole else []))
    ]


if __name__ == "__main__":
    raise SystemExit(main())
