"""Results from scores of `ai.onnx.ml` models: transforms of rows of scores, and labels of the best ones.

The conventions are the CPU provider's: a single score for two classes is extended to two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ..builder import Builder, Operand
from .reduction import reduce_axes
from .selection import best_of_rows
from .softmax import softmax_along

PostTransform = Literal["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]
TRANSFORMS: tuple[PostTransform, ...] = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
MOST_LABELS = 1 << 20

# The inverse of the normal distribution in the CPU provider's approximation. For x = 2 * score - 1, `l` is
# log((1 - x) * (1 + x)).
_HALF = "(4.3307503 + 0.5 * l)"
_ROOT = f"sqrt(sqrt({_HALF} * {_HALF} - 6.802721 * l) - {_HALF})"


def transformed(b: Builder, scores: Operand, transform: PostTransform) -> Operand:
    """Transforms rows of two or more scores, (rows, classes)."""
    if transform == "LOGISTIC":
        return b.pointwise("sigmoid(x)", {"x": scores}, scores.dtype, cost=8)
    if transform == "PROBIT":
        return probit(b, scores)
    if transform == "SOFTMAX":
        return softmax_along(b, scores, 1)
    if transform == "SOFTMAX_ZERO":
        highest = reduce_axes(b, "ReduceMax", scores, [1], True)
        operands = {"x": scores, "m": highest}
        counted = b.pointwise("where(abs(x) > 1e-7, exp(x - m), 0.0)", operands, scores.dtype, cost=8)
        total = reduce_axes(b, "ReduceSum", counted, [1], True)
        expression = "where(abs(x) > 1e-7, exp(x - m), x * exp(-m)) / total"
        return b.pointwise(expression, {**operands, "total": total}, scores.dtype, cost=12)
    return scores


def probit(b: Builder, scores: Operand) -> Operand:
    """The inverse of the normal distribution; NaN outside its domain."""
    log = b.pointwise("log((1 - (2 * x - 1)) * (1 + (2 * x - 1)))", {"x": scores}, scores.dtype, cost=8)
    expression = f"where(2 * x - 1 < 0, -1.4142135, 1.4142135) * {_ROOT}"
    return b.pointwise(expression, {"x": scores, "l": log}, scores.dtype, cost=8)


def of_one(b: Builder, score: Operand, first: str, second: str) -> Operand:
    """Returns two scores computed from one, (rows, 1), each by an expression of s."""
    column = b.constant(np.arange(2, dtype=np.int32))
    operands = {"s": score, "c": column}
    return b.pointwise(f"where(c == 0, {first}, {second})", operands, score.dtype, (score.shape[0], 2), cost=8)


def labels_of(labels: Sequence[int] | None, texts: Sequence[str] | None, least: int) -> np.ndarray:
    """Returns the labels of at least `least` classes. Raises UnsupportedError for strings, and for fewer labels."""
    if texts:
        raise UnsupportedError("the labels are strings, which cannot be stored on a device")
    if not labels or not least <= len(labels) <= MOST_LABELS:
        raise UnsupportedError(f"{len(labels or ())} labels for {least} classes")
    return np.array(labels, np.int64)


def label_of_best(b: Builder, scores: Operand, labels: np.ndarray) -> Operand:
    """Returns the label of the first of the largest scores of each row."""
    place = best_of_rows(b, scores)
    operands = {"place": (place, (1,)), "labels": (b.constant(labels), (1,))}
    body = "return labels_at(u32(place_at(row)));"
    return b.map(body, DType.INT64, (scores.shape[0],), ("row",), (1,), operands)


def label_by_sign(b: Builder, score: Operand, limit: float, no: int, yes: int) -> Operand:
    """Returns one of two labels by a score, (rows, 1): `yes` above the limit."""
    above = b.pointwise("s > limit", {"s": score}, DType.BOOL, limit=limit)
    operands = {
        "a": b.reshape(above, (score.shape[0],)),
        "no": b.constant(np.array([no])),
        "yes": b.constant(np.array([yes])),
    }
    return b.pointwise("where(a, yes, no)", operands, DType.INT64, (score.shape[0],))
