"""Errors of pointwise operators on an adapter: `python -m bench.numbers`.

    python -m bench.numbers                       every operator, about two million inputs each
    python -m bench.numbers Log Pow --points 24   some, with 2^24 inputs
    python -m bench.numbers --json FILE --document

In: f32 inputs of every magnitude, densely around the places where functions change.

Out, for each operator:

- the largest difference from f64 in units in the last place (ulp) of the f32 result, and its input
- the same for all 65,536 inputs of f16, in ulp of f16
- how often the sign of a zero is lost

The exit status is 1 if an operator exceeds its bound. First, the adapter's treatment of subnormal numbers is measured. If it
flushes them to zero, inputs and results may be zeros, and smaller errors do not count. `--document` writes the table of
docs/numbers.md from the reports in bench/results/numbers.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

from onnxruntime_ep_wgpu.tools._output import show_table
from tests import support

from .truth import TRUTH, Array

ROOT = Path(__file__).parents[1]
RESULTS, DOCUMENT = ROOT / "bench" / "results" / "numbers", ROOT / "docs" / "numbers.md"
BEGIN, END = "<!-- written by bench.numbers -->", "<!-- end -->"
LEAST_NORMAL = 2.0**-126
Row = dict[str, Any]


@dataclass(frozen=True)
class Operator:
    """A node, its f64 reference and its error bound in ulp."""

    name: str
    bound: float = 4.0
    inputs: int = 1
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        given = ", ".join(f"{k}={v}" for k, v in self.attributes.items())
        return f"{self.name} ({given})" if given else self.name

    def truth(self, *xs: Array) -> Array:
        with np.errstate(all="ignore"):
            return TRUTH[self.name](*xs, **self.attributes)


# One rounding, so half an ulp.
EXACT = [Operator(n, 0.5) for n in ("Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "Relu", "ThresholdedRelu")]
OPERATORS = [
    *EXACT,
    *(
        Operator(n)
        for n in (
            *("Sqrt", "Reciprocal", "Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh"),
            *("Asinh", "Acosh", "Atanh", "Erf", "Sigmoid", "Softplus", "Softsign", "HardSwish", "HardSigmoid", "Mish"),
            *("Elu", "Celu", "Selu", "LeakyRelu", "Shrink", "Swish", "Gelu"),
        )
    ),
    Operator("Swish", attributes={"alpha": 1.702}),
    Operator("Celu", attributes={"alpha": 0.3}),
    Operator("Gelu", attributes={"approximate": "tanh"}),
    *(Operator(n, 0.5, 2) for n in ("Add", "Sub", "Mul", "Max", "Min")),
    Operator("Mod", 0.5, 2, {"fmod": 1}),
    Operator("Div", inputs=2),
    Operator("Pow", inputs=2),
]
OPSETS = {"Swish": 24}
# Points where functions or their implementations change; inputs are dense around these.
PLACES = (0.25, 0.5, 0.6, 0.70710678, 1.0, 1.41421356, 1.5707963, 2.0, 2.5, 3.0, 3.1415927, 4.0, 5.5, 8.0, 9.5, 10.0, 11.0,
          13.0, 14.0, 16.6, 20.0, 24.0, 30.0, 87.33, 88.72, 89.41, 103.97, 1e5, 1e9, 1e15, 1e18, 3.4e38)  # fmt: skip


def points(count: int, seed: int = 0) -> Array:
    """Returns about `count` f32 numbers: over all bit patterns, evenly over small values, and around PLACES."""
    generator = np.random.default_rng(seed)
    patterns = (np.linspace(0, 0x7F7FFFFF, count // 4).astype(np.int64) + generator.integers(0, 500, count // 4)).clip(
        0, 0x7F7FFFFF
    )
    positive = patterns.astype(np.uint32).view(np.float32)
    near = np.float32(PLACES).view(np.uint32).astype(np.int64)[:, None] + np.arange(-2000, 2000)
    edges = near.clip(0, 0x7F7FFFFF).astype(np.uint32).ravel().view(np.float32)
    even = [generator.uniform(-limit, limit, count // 16).astype(np.float32) for limit in (1, 4, 20, 110)]
    special = np.float32([0, 1e-45, 1e-40, LEAST_NORMAL, np.inf, np.nan])
    return np.concatenate([positive, -positive, edges, -edges, *even, special, -special])


def pairs(name: str, count: int, seed: int = 1) -> tuple[Array, Array]:
    """Returns two operands. For Pow, they are chosen so that the results cover the range."""
    generator = np.random.default_rng(seed)
    x, y = (points(count, k).copy() for k in (seed, seed + 1))
    n = min(len(x), len(y))
    x, y = generator.permutation(x)[:n], generator.permutation(y)[:n]
    if name == "Pow":
        with np.errstate(all="ignore"):
            wanted = generator.uniform(-150, 130, n)
            y = np.where(generator.random(n) < 0.8, wanted / np.log2(np.abs(x.astype(np.float64))), y).astype(
                np.float32
            )
            y = np.where(generator.random(n) < 0.2, np.round(y), y).astype(np.float32)
            x = np.where(generator.random(n) < 0.7, np.abs(x), x)
    elif name != "Mod":
        with np.errstate(all="ignore"):
            near = x * generator.choice(np.float32([1.0000001, -1.0000001]), n)
            y = np.where(generator.random(n) < 0.3, near, y).astype(np.float32)
    return x, y


class Adapter:
    """The adapter of the tests, and its treatment of subnormal numbers."""

    def __init__(self) -> None:
        self.name = support.device().adapter.name
        tiny = np.float32([1e-40, -3e-42])
        self.flushes = bool(np.any(self.run(Operator("Mul"), tiny, np.float32([0.5, 0.5])) == 0))
        half = halves(Operator("Relu"))[0]
        self.reads_halves = bool(np.array_equal(self.run(Operator("Neg"), half), -half, equal_nan=True))

    def run(self, operator: Operator, *xs: Array) -> Array:
        names = [f"x{k}" for k in range(len(xs))]
        node = helper.make_node(operator.name, names, ["y"], **operator.attributes)
        inputs = {n: (x.dtype, ["n"]) for n, x in zip(names, xs, strict=True)}
        built = support.make_model([node], inputs, opset=OPSETS.get(operator.name, 20))
        result: Array = support.Runner(support.compile_model(built))(*xs)[0]
        return result


@cache
def measured() -> Adapter:
    return Adapter()


def errors(got: Array, truth: Array) -> Array:
    """Returns differences in ulp of got's type; infinite if exactly one of both is NaN or infinite."""
    limits = np.finfo(got.dtype)
    least, digits = int(limits.minexp), int(limits.nmant)
    beyond = 2.0 ** int(limits.maxexp)
    with np.errstate(all="ignore"):
        exponent = np.maximum(np.floor(np.log2(np.abs(truth))), least)
        unit = 2.0 ** (np.minimum(exponent, limits.maxexp - 1) - digits)
        mine = got.astype(np.float64)
        # An infinity stands for the first number that is too large.
        mine = np.where(np.isinf(mine) & np.isfinite(truth), np.copysign(beyond, mine), mine)
        wanted = np.where(np.isfinite(truth), np.clip(truth, -beyond, beyond), truth)
        off = np.abs(mine - wanted) / unit
    off = np.where(np.isnan(truth) | np.isinf(truth), np.where(_same(got, truth), 0, np.inf), off)
    return np.where(np.isnan(off), np.inf, off)


def _same(got: Array, truth: Array) -> Array:
    return np.where(np.isnan(truth), np.isnan(got), got == truth)


def flushed(x: Array) -> Array:
    return np.where(np.abs(x) < LEAST_NORMAL, np.copysign(np.zeros_like(x), x), x)


def measure(operator: Operator, adapter: Adapter, xs: Sequence[Array]) -> tuple[float, list[float], int, int]:
    """Returns (largest error, its inputs, lost signs of zeros, number of inputs)."""
    got = adapter.run(operator, *xs)
    truth = operator.truth(*(x.astype(np.float64) for x in xs))
    off = errors(got, truth)
    if adapter.flushes and got.dtype == np.float32:
        instead = operator.truth(*(flushed(x).astype(np.float64) for x in xs))
        off = np.minimum(off, errors(got, instead))
        with np.errstate(all="ignore"):
            off = np.where(np.abs(got.astype(np.float64) - truth) <= 2 * LEAST_NORMAL, 0, off)
    worst = int(np.argmax(off))
    zeros = (truth == 0) & (got == 0)
    # Max and Min may return either zero. Where f64 underflows, the reference's zero is not exact.
    if operator.name in ("Max", "Min") or not np.any(zeros):
        signs = 0
    else:
        exact = zeros & np.any([x == 0 for x in xs], axis=0)
        signs = int(np.sum(np.signbit(got[exact]) != np.signbit(truth[exact])))
    return float(off[worst]), [float(x[worst]) for x in xs], signs, len(got)


def halves(operator: Operator) -> list[Array]:
    x = np.arange(65536).astype(np.uint16).view(np.float16)
    if operator.inputs == 1:
        return [x]
    return [x, np.random.default_rng(2).permutation(x)]


def row(operator: Operator, adapter: Adapter, count: int) -> Row:
    xs = [points(count)] if operator.inputs == 1 else list(pairs(operator.name, count))
    worst, at, signs, inputs = measure(operator, adapter, xs)
    half = measure(operator, adapter, halves(operator))[0] if adapter.reads_halves else None
    ok = worst <= operator.bound and signs == 0 and (half is None or half <= HALF_BOUND)
    return {"operator": operator.label, "ulp": worst, "at": at, "bound": operator.bound, "signs": signs, "f16": half,
            "inputs": inputs, "ok": ok}  # fmt: skip


HALF_BOUND = 0.51  # an f32 result that is rounded to f16


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.numbers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("operators", nargs="*", help="names of operators, all by default")
    parser.add_argument("--points", type=int, default=21, metavar="N", help="about 2^N inputs for each (21)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--document", action="store_true", help="write docs/numbers.md from bench/results/numbers")
    arguments = parser.parse_args()
    known = {o.name for o in OPERATORS}
    if unknown := [n for n in arguments.operators if n not in known]:
        parser.error(f"no operator {unknown[0]!r}; there are {', '.join(sorted(known))}")
    adapter = measured()
    print(f"{adapter.name}: numbers below the normal ones are {'taken for zero' if adapter.flushes else 'kept'}")
    if not adapter.reads_halves:
        print("f16 is not measured: the adapter does not read and write all of its numbers, infinities for example")
    rows = [
        row(o, adapter, 1 << arguments.points)
        for o in OPERATORS
        if not arguments.operators or o.name in arguments.operators
    ]
    show_table(("operator", "ulp", "bound", "at", "zero signs lost", "f16 ulp", ""), [_cells(r) for r in rows])
    report = {
        "adapter": adapter.name,
        "driver": support.device().adapter.driver,
        "flushes": adapter.flushes,
        "f16": adapter.reads_halves,
        "rows": rows,
    }
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    if arguments.document:
        DOCUMENT.write_text(with_table(DOCUMENT.read_text(), document()))
    wrong = [r["operator"] for r in rows if not r["ok"]]
    print(f"beyond their bounds: {', '.join(wrong)}" if wrong else f"all {len(rows)} within their bounds")
    return 1 if wrong else 0


def _cells(r: Row) -> tuple[object, ...]:
    at = ", ".join(f"{x:.9g}" for x in r["at"])
    return (
        r["operator"],
        f"{r['ulp']:.2f}",
        r["bound"],
        at,
        r["signs"],
        "" if r["f16"] is None else f"{r['f16']:.3f}",
        "" if r["ok"] else "WRONG",
    )


def reports() -> list[Row]:
    """Returns one report per adapter, in the order of file names."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))]


def document() -> str:
    """Returns the table of docs/numbers.md: each operator's bound, and the largest error on each adapter."""
    found = reports()
    lines = [
        "| operator | bound |" + "".join(f" {r['adapter']} |" for r in found),
        "| --- | ---: |" + " ---: |" * len(found),
    ]
    for operator in OPERATORS:
        cells = [
            next((f"{r['ulp']:.2f}" for r in report["rows"] if r["operator"] == operator.label), "") for report in found
        ]
        lines.append(f"| {operator.label} | {operator.bound:g} |" + "".join(f" {c} |" for c in cells))
    for r in found:
        below = "flushed to zero" if r["flushes"] else "kept"
        halves = (
            "" if r["f16"] else " It does not store all numbers of f16 (infinities become NaN), which are not measured."
        )
        lines += [
            "",
            textwrap.fill(
                f"{r['adapter']}{r['driver'] and ', '}{r['driver']}: subnormal numbers are {below}.{halves}", 125
            ),
        ]
    return "\n".join(lines)


def with_table(text: str, table: str) -> str:
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:begin]}\n{table}\n{text[end:]}"


if __name__ == "__main__":
    sys.exit(main())
