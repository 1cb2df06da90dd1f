"""Runs all node cases and writes the conformance table.

    python -m tests.conformance.table [--provider ours|official|cpu] [--out docs/conformance.md] [--json FILE]

A case counts as on WebGPU when onnxruntime gave every node of its graph to the provider, after onnxruntime's own graph
optimisations, as in a user's session. Exit code 1 when a case that touched WebGPU is wrong.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tests import provider

from . import batches, cases, page
from .worker import Row, Setup

RIGHT = ("right", "random")
DIFFERENCES = f"""\
{page.DIFFERENCES}

* **MaxUnpool with `output_shape`**: indices count through the result that the node would have without it, and zeros are added at
  the ends of that. The ONNX reference says so, and the suite. The CPU provider counts through the larger result, which puts the
  same elements elsewhere. Without `output_shape` both agree.
* **Pools with `auto_pad` SAME and steps that leave out more than two elements**: the first window begins at the first element, as
  that of a convolution does. Of the CPU provider it begins behind, because the padding is less than nothing.
* **Resize with `align_corners` and scales that make a fraction of an element**: corners are those of whole elements, here and from
  the CPU provider. The suite aligns the fraction, in two cases.
* **Resize with `antialias` of int8**: elements below 0 are numbers as others. The CPU provider gives 0 for them. Of an axis that
  keeps its extent with a scale other than 1, or with a region of interest, it copies the elements; ONNX resizes it, and so do we.
* **Resize with `tf_crop_and_resize`**: the region of interest counts along every axis, as the ONNX reference has it. The CPU
  provider and a case of onnxruntime-web's suite leave it out along axes whose scale is 1.
* **Shrink of f64** keeps all digits. The CPU provider calculates it with f32.
* **MultiHeadAttention with past keys and without present keys as results**: queries look at the past ones as well. Two cases of
  onnxruntime-web's suite leave these out. The CPU provider of onnxruntime 1.32.0 gives 2.731 in the one and leaves them out in
  the other.
* **QuickGelu**: a suite's two cases have a positive result for a negative number, and no provider calculates that.
* **SplitToSequence with a number as `split`**: the parts keep the axis, as ONNX says. Without `keepdims` the CPU provider drops it.
* **DFT and STFT**: transforms are those of ONNX, to the rounding of f32. The CPU provider is wrong in the suite's cases.
* **Unique of NaN**: all NaN are one element, as the ONNX reference has it. The CPU provider takes elements for equal that are not.
* **BatchNormalization in training**: a run changes none of its inputs. The CPU provider stores running statistics that are no
  outputs of the model over those that it reads, so that constants, and results with them, differ from run to run.
* **GreedySearch, Sampling and `scores` of BeamSearch**: what is behind the end of all texts is the padding, or zero, here. The CPU
  provider leaves it as its memory was.
* **Sampling with `presence_mask`**: `presence_penalty` is taken from the score of each token of which the mask is not 0. The CPU
  provider of onnxruntime 1.32.0 takes it from the first token of the first text alone.
* **TreeEnsemble**: `post_transform` 1 is SOFTMAX and 2 is LOGISTIC, and a fraction is no member of a set of integers, as ONNX
  says. The CPU provider takes 1 for LOGISTIC and 2 for SOFTMAX, and cuts the fraction.
* **Binarizer and OneHotEncoder**: NaN is 0, and a category that is unknown a row of zeros, also where the CPU provider raises an
  error. With validationMode full an unknown category is an error here too, where `zeros` is 0.
* **Searches with decoders that calculate in f16**, or whose past and present share a buffer, run here; the CPU provider has no
  kernel for them.
"""
"""What those who compare results with the CPU provider's want to know; `tests/ops/test_scatter.py` holds it."""
MOST_NOTES = 8


@dataclass(frozen=True)
class Line:
    """One operator of the table; counts are cases."""

    operator: str
    cases: int
    on_gpu: int
    mixed: int
    gpu_right: int
    right: int
    notes: tuple[str, ...]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--provider", default=provider.DEFAULT, choices=("ours", "official", "cpu"))
    parser.add_argument("--int64", default="native", choices=("native", "pair"))
    parser.add_argument("--out", type=Path, default=Path("docs/conformance.md"))
    parser.add_argument("--json", type=Path, help="all rows, for programs")
    parser.add_argument("--only", nargs="+", metavar="OPERATOR")
    arguments = parser.parse_args()

    index = cases.index()
    names = [n for n, info in index.items() if not arguments.only or info.operator in arguments.only]
    rows = run(names, Setup(arguments.provider, int64=arguments.int64, optimize=True))
    if arguments.json:
        arguments.json.write_text(json.dumps(list(rows.values()), indent=1))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    older = arguments.out.read_text() if arguments.out.exists() else ""
    arguments.out.write_text(page.with_suites_of(render(rows, arguments.provider), older))
    print(f"{arguments.out}: {summary(list(rows.values()))}")
    return wrong(rows)


def wrong(rows: Mapping[str, Row]) -> int:
    """Prints the cases that touched WebGPU and are wrong; the exit code."""
    found = [r for r in rows.values() if r["gpu"] and r["status"] in ("wrong", "error", "abort", "hang")]
    for row in found:
        print(f"{row['status']}: {row['name']}: {row['detail']}")
    return 1 if found else 0


def run(names: Sequence[str], setup: Setup) -> dict[str, Row]:
    from rich.progress import track

    steps = iter(track(names, description=f"node cases, {setup.provider}", disable=not sys.stderr.isatty()))
    next(steps, None)

    def advance(_: Row) -> None:
        next(steps, None)

    return batches.run(names, setup, advance)


def on_gpu(row: Row) -> bool:
    return bool(row["gpu"]) and not row["cpu"]


def summary(rows: Sequence[Row]) -> str:
    some, every = [r for r in rows if r["gpu"]], [r for r in rows if on_gpu(r)]
    right = [r for r in rows if r["status"] in RIGHT]
    return (
        f"{len(rows)} cases; right by any mix of providers {len(right)}; "
        f"all nodes on WebGPU {len(every)}, of which right {sum(r['status'] in RIGHT for r in every)}; "
        f"at least one node on WebGPU {len(some)}, of which right {sum(r['status'] in RIGHT for r in some)}"
    )


def lines(index: Mapping[str, cases.Info], rows: Mapping[str, Row]) -> list[Line]:
    """Cases by the operator they are about, expanded function bodies beside the operator itself."""
    by_operator: dict[str, list[Row]] = {}
    for name, row in rows.items():
        by_operator.setdefault(index[name].operator, []).append(row)
    return [_line(operator, part) for operator, part in sorted(by_operator.items())]


def _line(operator: str, rows: list[Row]) -> Line:
    every = [r for r in rows if on_gpu(r)]
    return Line(
        operator,
        len(rows),
        len(every),
        sum(bool(r["gpu"] and r["cpu"]) for r in rows),
        sum(r["status"] in RIGHT for r in every),
        sum(r["status"] in RIGHT for r in rows),
        tuple(_notes(rows)),
    )


def _notes(rows: list[Row]) -> list[str]:
    """Why cases are not on WebGPU or not right, most frequent first, each with the number of cases."""
    found: Counter[str] = Counter()
    for row in rows:
        if row["status"] == "refused":
            found[f"onnxruntime refuses the model ({_why_refused(row['detail'])})"] += 1
        elif row["status"] == "unfed":
            found["types that onnxruntime's Python binding cannot pass"] += 1
        elif row["status"] not in RIGHT:
            where = "WebGPU" if on_gpu(row) else "CPU" if not row["gpu"] else "mixed"
            found[f"{row['status']} on {where}: `{row['name']}`"] += 1
        if row["cpu"]:
            found.update(
                set(map(_without_name, row["reasons"])) or {f"{operator} on the CPU" for operator in row["cpu"]}
            )
        elif not row["gpu"] and row["status"] in RIGHT:
            found["onnxruntime folded every node away"] += 1
    ordered = sorted(found.items(), key=lambda note: (-note[1], note[0]))
    notes = [text if count == 1 else f"{text} ({count})" for text, count in ordered]
    return notes if len(notes) <= MOST_NOTES else [*notes[:MOST_NOTES], f"and {len(notes) - MOST_NOTES} more"]


def _without_name(reason: str) -> str:
    """`Add node7: held by ...` as `Add: held by ...`."""
    node, colon, why = reason.partition(": ")
    return f"{node.split(' ')[0]}{colon}{why}"


def _why_refused(detail: str) -> str:
    known = {
        "only *guarantees* support": "opset",
        "IR version": "opset",
        "Could not find an implementation": "no kernel on the CPU either",
        "node_provider_type.empty()": "no kernel on the CPU either",
        "not a registered function": "unknown operator",
        "NOT_IMPLEMENTED": "no kernel on the CPU either",
        "Type Error": "types",
        "INVALID_GRAPH": "invalid for it",
    }
    return next((short for text, short in known.items() if text in detail), "error when it is opened")


def render(rows: dict[str, Row], which: str) -> str:
    head = [
        "# Conformance",
        "",
        "The node cases of the ONNX backend suite through stock onnxruntime, written by `python -m tests.conformance.table`.\n"
        "*On WebGPU*: onnxruntime gave every node of the case to this provider; *mixed*: only some of them. *Right*: the results\n"
        "are the suite's expected outputs, whichever providers ran the case.",
        "",
        textwrap.fill(f"{summary(list(rows.values()))}.", 125),
        "",
        textwrap.fill(
            f"onnx {metadata.version('onnx')}, onnxruntime {metadata.version('onnxruntime')}, {device_words(which)}, "
            f"{platform.system()} {platform.machine()}. Cases of opsets newer than {cases.NEWEST_OPSET} run as opset "
            f"{cases.NEWEST_OPSET} where the operator is the same there.",
            125,
        ),
        "",
        "| operator | cases | on WebGPU | mixed | right on WebGPU | right | why not |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    body = [
        f"| {x.operator} | {x.cases} | {x.on_gpu} | {x.mixed} | {x.gpu_right} | {x.right} | {cell(x.notes)} |"
        for x in lines(cases.index(), rows)
    ]
    return "\n".join([*head, *body, "", DIFFERENCES])


def cell(notes: Sequence[str]) -> str:
    return "; ".join(notes).replace("|", "\\|").replace("\n", " ")


def device_words(which: str) -> str:
    return "CPU only" if which == "cpu" else provider.describe(which)


if __name__ == "__main__":
    raise SystemExit(main())
