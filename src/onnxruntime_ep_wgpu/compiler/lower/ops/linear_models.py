"""LinearRegressor and LinearClassifier of `ai.onnx.ml`: a product with the coefficients, and transforms of the scores."""

from __future__ import annotations

import numpy as np

from ....errors import UnsupportedError
from ..builder import Builder, Operand
from .features import LEARNT, rows_of, weights
from .learnt_scores import PostTransform, label_by_sign, label_of_best, labels_of, of_one, probit, transformed
from .matmul import matrix_product
from .registry import SINGLES, op


@op("LinearRegressor", domain=LEARNT, types=SINGLES)
def linear_regressor(
    b: Builder,
    x: Operand,
    *,
    coefficients: list[float] | None = None,
    intercepts: list[float] | None = None,
    targets: int = 1,
    post_transform: PostTransform = "NONE",
) -> Operand:
    """Returns (rows, targets). With one target, no transform except PROBIT has an effect, as on the CPU provider."""
    scores = scores_of(b, x, coefficients or [], intercepts, targets)
    if targets == 1:
        return probit(b, scores) if post_transform == "PROBIT" else scores
    return transformed(b, scores, post_transform)


@op("LinearClassifier", domain=LEARNT, types=SINGLES)
def linear_classifier(
    b: Builder,
    x: Operand,
    *,
    coefficients: list[float],
    intercepts: list[float] | None = None,
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    post_transform: PostTransform = "NONE",
    multi_class: int = 0,
) -> tuple[Operand, Operand]:
    """Returns labels (rows) and scores (rows, classes). There are as many classes as intercepts, except that one intercept is
    for two labels."""
    count = len(intercepts or ())
    labels = labels_of(classlabels_ints, classlabels_strings, max(2, count))
    scores = scores_of(b, x, coefficients, intercepts, count)
    if count > 1:
        return label_of_best(b, scores, labels), transformed(b, scores, post_transform)
    if labels.size != 2 or post_transform == "PROBIT":
        raise UnsupportedError(
            f"one score for {labels.size} labels, with the transform {post_transform}, is not supported"
        )
    logistic = post_transform == "LOGISTIC"
    both = of_one(b, scores, *(("sigmoid(-s)", "sigmoid(s)") if logistic else ("1 - s", "s")))
    return label_by_sign(b, scores, 0.0, int(labels[0]), int(labels[1])), both


def scores_of(
    b: Builder, x: Operand, coefficients: list[float], intercepts: list[float] | None, targets: int
) -> Operand:
    """Returns x times the coefficients, which are ordered by target, plus the intercepts."""
    if targets < 1 or not coefficients or len(coefficients) % targets:
        raise UnsupportedError(f"{len(coefficients)} coefficients for {targets} targets")
    if intercepts and len(intercepts) != targets:
        raise UnsupportedError(f"{len(intercepts)} intercepts for {targets} targets")
    matrix = np.ascontiguousarray(weights(coefficients).reshape(targets, -1).T)
    rows = rows_of(b, x)
    shape = (rows.shape[0], targets)
    result = matrix_product(b, rows, (0, 1, 1), b.constant(matrix), (0, 1, 1), shape, (0, 1, 1), rows.dtype)
    if not intercepts:
        return result
    return b.pointwise("x + c", {"x": result, "c": b.constant(weights(intercepts))}, rows.dtype, shape)
