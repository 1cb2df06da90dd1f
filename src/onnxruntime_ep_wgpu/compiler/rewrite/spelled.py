"""Fuses normalisations and softmax that a graph writes out with reductions, as exporters do that lack the operator.

The reductions are over the last axes. Gain, bias and other maps after them stay maps, and fusion moves them into the store.
Intermediate types do not matter, since all arithmetic is in f32.
"""

from __future__ import annotations

import numpy as np

from ...program.dtypes import DType
from ...program.target import Target
from ...records import dataclass
from ..dims import product
from ..ir import Call, Map, Node, Read, Storage, Tensor, View, Write
from ..nodes import row_kernels
from .pattern import Found, Pattern
from .rule import MatchResult, Replace, Rule, origin_of

_NORMALISATION = Pattern(
    {
        "result": "c / deviation | c * inverse",
        "inverse": "1 / deviation | pow(variance, -0.5)",
        # Sqrt, and Pow with the exponent 0.5.
        "deviation": "sqrt(variance) | where(isinf(variance) or variance == 0, abs(variance), sqrt(variance))",
        "variance": "mean + epsilon | mean",
        "mean": "row_mean(c * c)",
        "c": "x - row_mean(x) | x",
    },
    anchor="mean",
    certain=("inverse", "deviation"),
    reasons={
        "another reader": "the deviation has another reader",
        "result": "the inverse deviation does not multiply the rows",
        "c": "the deviation does not divide the rows it was computed from",
    },
    numbers=("epsilon",),
)
_SOFTMAX = Pattern(
    {"result": "powers / total", "total": "row_sum(powers)", "powers": "exp(x - row_max(x))"},
    anchor="total",
    certain=("total",),
    reasons={
        "another reader": "the sum has another reader than a division",
        "result": "the sum has another reader than a division",
        "powers": "the sum does not divide the values it was computed from",
    },
)


def normalisation(call: Call, target: Target) -> MatchResult:
    """Returns the `layer_norm` that contains a reduction as its mean of squares."""
    rows = _rows(_NORMALISATION, call)
    if not isinstance(rows, _Rows):
        return rows
    one, zero = (Tensor(DType.FLOAT32, (1,), Storage.WEIGHT, data=np.array([v], np.float32)) for v in (1, 0))
    columns = rows.x.view.shape[rows.x.groups[0] :]
    made = row_kernels.layer_norm(
        rows.x,
        View.of(one).expand(columns),
        View.of(zero).expand(columns),
        {"y": rows.y},
        target,
        epsilon=rows.found.numbers.get("epsilon", 0.0),
        centred=rows.found.tensors["c"] is not rows.found.tensors["x"],
        origin=origin_of(rows.found.nodes),
    )
    return Replace(rows.found.nodes, (made, *rows.after))


def softmax(call: Call, target: Target) -> MatchResult:
    """Returns the softmax that contains a reduction as its sum of exponentials."""
    rows = _rows(_SOFTMAX, call)
    if not isinstance(rows, _Rows):
        return rows
    made = row_kernels.softmax(rows.x, rows.y, target, origin=origin_of(rows.found.nodes))
    return Replace(rows.found.nodes, (made, *rows.after))


@dataclass(frozen=True)
class _Rows:
    """The rows `x` that a kernel reads, where it stores them, and the map `after` it that converts to the type of the graph."""

    found: Found
    x: Read
    y: Write
    after: tuple[Node, ...]


def _rows(pattern: Pattern, call: Call) -> _Rows | str | None:
    """Returns the match of a pattern around a reduction, as rows."""
    found = pattern.around(call)
    if not isinstance(found, Found):
        return found
    last, read = found.nodes[-1], call.operands["x"]
    result = last.outputs[0]
    view, kept = View.of(found.tensors["x"]).reshape(read.view.shape), read.groups[0]
    if view is None or result.size != view.size:
        return "the rows and their divisors have different orders"
    rows, columns = product(view.shape[:kept]), product(view.shape[kept:])
    places = range(len(result.shape) + 1)
    at = next((k for k in places if (product(result.shape[:k]), product(result.shape[k:])) == (rows, columns)), None)
    if at is None:
        return "the result has other axes than the rows"
    wide, after = result, tuple[Node, ...]()
    if result.dtype is not DType.FLOAT32:
        wide, rank = Tensor(DType.FLOAT32, result.shape), (len(result.shape),)
        after = (Map(result, {"x": Read(View.of(wide), rank)}, expression="x", origin=last.origin),)
    return _Rows(found, Read(view, read.groups, reuse=True), Write(wide, (at, len(result.shape) - at)), after)


NORMALISATION = Rule("normalisation", "reduce", normalisation)
SOFTMAX = Rule("softmax", "reduce", softmax)
