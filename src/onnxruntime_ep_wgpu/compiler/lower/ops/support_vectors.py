"""SVMRegressor and SVMClassifier of `ai.onnx.ml`: kernels of rows and support vectors, then products with the coefficients.

The sums of a classifier for all pairs of classes are one product: the coefficients of a pair are a column of a matrix.
"""

from __future__ import annotations

from itertools import combinations
from typing import Literal

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import equal
from ..builder import Builder, Operand
from .choices import Flag
from .features import LEARNT, rows_of, weights
from .learnt_scores import PostTransform, label_of_best, labels_of, of_one, transformed
from .matmul import matrix_product
from .reduction import reduce_axes
from .registry import SINGLES, op

Kernel = Literal["LINEAR", "POLY", "RBF", "SIGMOID"]
MOST_CLASSES = 256  # each pair of classes has a score
MOST_COUPLED = 12  # classes with probabilities: an invocation has their matrix in private memory
_STEPS = 100  # the limit of the CPU provider


@op("SVMRegressor", domain=LEARNT, types=SINGLES)
def svm_regressor(
    b: Builder,
    x: Operand,
    *,
    coefficients: list[float],
    rho: list[float],
    support_vectors: list[float] | None = None,
    n_supports: int = 0,
    kernel_type: Kernel = "LINEAR",
    kernel_params: list[float] | None = None,
    one_class: Flag = 0,
    post_transform: PostTransform = "NONE",
) -> Operand:
    """Returns (rows, 1). Without support vectors the coefficients are those of features. Transforms have no effect, as on the
    CPU."""
    if not rho or not coefficients:
        raise UnsupportedError(
            f"{len(rho)} numbers in rho and {len(coefficients)} coefficients: at least one of each is needed"
        )
    found = rows_of(b, x)
    if n_supports:
        found = _kernels(b, found, support_vectors or [], n_supports, kernel_type, kernel_params or [])
        if len(coefficients) < n_supports:
            raise UnsupportedError(f"{len(coefficients)} coefficients for {n_supports} support vectors")
        coefficients = coefficients[:n_supports]
    sums = _product(b, found, weights(coefficients).reshape(-1, 1), weights(rho[:1]))
    return b.pointwise("where(x > 0, 1.0, -1.0)", {"x": sums}, sums.dtype) if one_class else sums


@op("SVMClassifier", domain=LEARNT, types=SINGLES)
def svm_classifier(
    b: Builder,
    x: Operand,
    *,
    coefficients: list[float],
    rho: list[float],
    support_vectors: list[float] | None = None,
    vectors_per_class: list[int] | None = None,
    kernel_type: Kernel = "LINEAR",
    kernel_params: list[float] | None = None,
    classlabels_ints: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
    post_transform: PostTransform = "NONE",
    prob_a: list[float] | None = None,
    prob_b: list[float] | None = None,
) -> tuple[Operand, Operand]:
    """Returns labels (rows), and scores of the pairs of classes. The scores are per class for two classes, or without support
    vectors."""
    labels = labels_of(classlabels_ints, classlabels_strings, 2)
    per_class = vectors_per_class or []
    if min(per_class, default=0) < 0:
        raise UnsupportedError(f"vectors_per_class {per_class[:4]} has a negative number")
    if not sum(per_class):
        if prob_a:
            raise UnsupportedError("prob_a without support vectors is not supported")
        return _by_classes(b, rows_of(b, x), labels, coefficients, rho, post_transform)
    count, classes = sum(per_class), int(labels.size)
    if len(per_class) != classes or classes > MOST_CLASSES:
        raise UnsupportedError(
            f"{len(per_class)} numbers in vectors_per_class for {classes} classes; at most {MOST_CLASSES} classes are supported"
        )
    pairs = list(combinations(range(classes), 2))
    if len(coefficients) < (classes - 1) * count or len(rho) < len(pairs):
        raise UnsupportedError(
            f"{len(coefficients)} coefficients and {len(rho)} in rho for {count} vectors, {classes} classes"
        )
    kernels = _kernels(b, rows_of(b, x), support_vectors or [], count, kernel_type, kernel_params or [])
    matrix = _pair_coefficients(
        weights(coefficients)[: (classes - 1) * count].reshape(classes - 1, count), per_class, pairs
    )
    scores = _product(b, kernels, matrix, weights(rho[: len(pairs)]))
    label = _by_votes(b, scores, labels, pairs)
    if prob_a or prob_b:
        return label, transformed(
            b, _pairwise_probabilities(b, scores, classes, prob_a or [], prob_b or []), post_transform
        )
    if classes > 2:
        return label, transformed(b, scores, post_transform)
    if post_transform == "PROBIT":
        raise UnsupportedError("one score for two classes, with the transform PROBIT, is not supported")
    if post_transform == "LOGISTIC":
        return label, of_one(b, scores, "sigmoid(-s)", "sigmoid(s)")
    return label, of_one(b, scores, "-s" if post_transform == "NONE" else "1 - s", "s")


def _by_classes(
    b: Builder, x: Operand, labels: np.ndarray, coefficients: list[float], rho: list[float], transform: PostTransform
) -> tuple[Operand, Operand]:
    """Returns a score per class, computed from features. Of two classes a score above 0, or 0.5, selects the second one, as
    on the CPU."""
    if not rho or not coefficients or len(coefficients) % labels.size:
        raise UnsupportedError(f"{len(coefficients)} coefficients and {len(rho)} in rho for {labels.size} classes")
    matrix = weights(coefficients).reshape(labels.size, -1)
    scores = _product(b, x, np.ascontiguousarray(matrix.T), np.full(labels.size, rho[0], np.float32))
    label = label_of_best(b, scores, labels)
    if labels.size == 2:
        highest = b.reshape(reduce_axes(b, "ReduceMax", scores, [1], True), (scores.shape[0],))
        above = "m >= 0.5" if bool(np.all(matrix >= 0)) else "m > 0"
        operands = {"m": highest, "label": label, "second": b.constant(labels[1:])}
        label = b.pointwise(f"where({above}, second, label)", operands, DType.INT64, (scores.shape[0],))
    return label, transformed(b, scores, transform)


def _pair_coefficients(coefficients: np.ndarray, per_class: list[int], pairs: list[tuple[int, int]]) -> np.ndarray:
    """Returns the coefficients (vectors, pairs). In the attribute, the coefficients of a class against the others are rows,
    without one for the class itself."""
    ends = np.cumsum(per_class)
    begins = ends - per_class
    matrix = np.zeros((coefficients.shape[1], len(pairs)), np.float32)
    for place, (i, j) in enumerate(pairs):
        matrix[begins[i] : ends[i], place] = coefficients[j - 1, begins[i] : ends[i]]
        matrix[begins[j] : ends[j], place] = coefficients[i, begins[j] : ends[j]]
    return matrix


def _by_votes(b: Builder, scores: Operand, labels: np.ndarray, pairs: list[tuple[int, int]]) -> Operand:
    """Returns the label of the class that wins most pairs: the first of a pair if its score is above 0."""
    first = np.zeros((len(pairs), labels.size), np.float32)
    always = np.zeros(labels.size, np.float32)
    for place, (i, j) in enumerate(pairs):
        first[place, i], first[place, j] = 1, -1
        always[j] += 1
    won = b.pointwise("where(s > 0, 1.0, 0.0)", {"s": scores}, scores.dtype)
    return label_of_best(b, _product(b, won, first, always), labels)


def _pairwise_probabilities(
    b: Builder, scores: Operand, classes: int, prob_a: list[float], prob_b: list[float]
) -> Operand:
    """Returns probabilities of classes, (rows, classes), from the scores of pairs."""
    pairs = classes * (classes - 1) // 2
    if min(len(prob_a), len(prob_b)) < pairs or classes > MOST_COUPLED:
        raise UnsupportedError(
            f"{len(prob_a)} numbers in prob_a and {len(prob_b)} in prob_b for {classes} classes: {pairs} are needed, and"
            f" at most {MOST_COUPLED} classes are supported"
        )
    operands = {"s": scores, "a": b.constant(weights(prob_a[:pairs])), "b": b.constant(weights(prob_b[:pairs]))}
    # 0.9999999 is 1 - 1e-7 in f32.
    found = b.pointwise("clamp(sigmoid(-(s * a + b)), 1e-7, 0.9999999)", operands, scores.dtype, cost=10)
    return b.map(
        "coupled",
        scores.dtype,
        (scores.shape[0], classes),
        ("row", "which"),
        (1, 1),
        {"pairs": (found, (1, 1))},
        cost=64,
        reuse=True,
        iterations=classes * (classes + 1) + _STEPS * classes * (2 * classes + 3),
        K=classes,
        STEPS=_STEPS,
    )


def _product(b: Builder, x: Operand, matrix: np.ndarray, added: np.ndarray) -> Operand:
    shape = (x.shape[0], matrix.shape[1])
    result = matrix_product(b, x, (0, 1, 1), b.constant(matrix), (0, 1, 1), shape, (0, 1, 1), x.dtype)
    return b.pointwise("x + c", {"x": result, "c": b.constant(added)}, x.dtype, shape)


def _kernels(
    b: Builder, x: Operand, vectors: list[float], count: int, kernel: Kernel, parameters: list[float]
) -> Operand:
    """Returns the kernel of each row and each support vector, (rows, vectors)."""
    if count < 1 or not vectors or len(vectors) % count:
        raise UnsupportedError(f"{len(vectors)} numbers for {count} support vectors")
    if parameters and len(parameters) != 3:
        raise UnsupportedError(f"{len(parameters)} parameters of a kernel: gamma, coef0 and degree are needed")
    table = weights(vectors).reshape(count, -1)
    gamma, coef0, degree = (float(it) for it in weights(parameters or [0.0, 0.0, 0.0]))
    shape = (x.shape[0], count)
    if kernel == "RBF":
        b.require(equal(x.shape[1], table.shape[1]), "{} features, and vectors of {}", x.shape[1], table.shape[1])
        rows = b.reshape(x, (x.shape[0], 1, x.shape[1]))
        squares = b.pointwise(
            "(x - s) * (x - s)", {"x": rows, "s": b.constant(table)}, x.dtype, (*shape, table.shape[1]), cost=3
        )
        distance = reduce_axes(b, "ReduceSum", squares, [2], False)
        return b.pointwise("exp(gamma * x)", {"x": distance}, x.dtype, cost=8, gamma=-gamma)
    matrix = b.constant(np.ascontiguousarray(table.T))
    dot = matrix_product(b, x, (0, 1, 1), matrix, (0, 1, 1), shape, (0, 1, 1), x.dtype)
    if kernel == "POLY":
        return b.pointwise(
            "pow(gamma * x + c, degree)", {"x": dot}, x.dtype, cost=20, gamma=gamma, c=coef0, degree=degree
        )
    if kernel == "SIGMOID":
        return b.pointwise("tanh(gamma * x + c)", {"x": dot}, x.dtype, cost=12, gamma=gamma, c=coef0)
    return dot
