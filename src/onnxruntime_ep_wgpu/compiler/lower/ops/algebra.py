"""Einsum, as views, one matrix product per further operand, and sums; determinants of small matrices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ....errors import UnsupportedError, cut
from ...dims import Dim, broadcast, equal
from ...ir import Factor, View, coalesce
from ..builder import Builder, Operand
from .matmul import matrix_product
from .reduction import reduce_axes
from .registry import FLOATS, NUMBERS, op


@op("Einsum", types=NUMBERS)
def einsum(b: Builder, *xs: Operand, equation: str) -> Operand:
    """Combines operands from the left. A label is summed as soon as neither a later operand nor the result contains it."""
    terms, result = _parsed(equation, [x.rank for x in xs])
    extents: dict[str, Dim] = {}
    for x, labels in zip(xs, terms, strict=True):
        for label, d in zip(labels, x.shape, strict=True):
            extents[label] = broadcast(extents.get(label, 1), d)
    total, have = _operand(b, xs[0], terms[0], extents)
    for k, (x, labels) in enumerate(zip(xs[1:], terms[1:], strict=True), 1):
        later = set(result).union(*terms[k + 1 :])
        other, names = _operand(b, x, labels, extents)
        total, have = _summed(b, total, have, later | set(names))
        other, names = _summed(b, other, names, later | set(have))
        total, have = _product(b, total, have, other, names, later)
    total, have = _summed(b, total, have, set(result))
    return b.permute(total, [have.index(label) for label in result])


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """Returns the labels of each operand and of the result. An ellipsis becomes labels "0", "1"..., counted from the last
    axis."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise UnsupportedError(f"the equation {equation!r} names {len(terms)} operands, {len(ranks)} are given")
    out, widest = [], 0
    for term, rank in zip(terms, ranks, strict=True):
        count = rank - len(term.replace("...", "")) if "..." in term else 0
        widest = max(widest, count)
        out.append(_labels(term, count))
        if len(out[-1]) != rank:
            raise UnsupportedError(f"the term {term!r} of the equation does not fit an operand of rank {rank}")
    if arrow:
        return out, _labels(right, widest)
    seen = Counter(c for c in left if c.isalpha())
    return out, [*_labels("...", widest), *sorted(c for c, n in seen.items() if n == 1)]


def _labels(term: str, count: int) -> list[str]:
    before, dots, after = term.partition("...")
    if others := [c for c in before + after if not (c.isascii() and c.isalpha())]:
        raise UnsupportedError(f"{others[0]!r} in the term {cut(term)!r} of the equation is not a letter")
    return [*before, *(str(k) for k in reversed(range(count)) if dots), *after]


def _operand(b: Builder, x: Operand, labels: list[str], extents: dict[str, Dim]) -> tuple[Operand, list[str]]:
    """Returns x with every label once: a diagonal view where labels repeat. Broadcast axes are removed."""
    for k, label in enumerate(labels):
        if x.shape[k] not in (1, extents[label]):
            b.require(
                equal(x.shape[k], extents[label]),
                f"{label!r} in an Einsum is both {{}} and {{}}",
                extents[label],
                x.shape[k],
            )
    names = list(dict.fromkeys(labels))
    if len(names) < len(labels):
        if any(len(coalesce(axis)) > 1 for axis in x.view.axes):
            x = b.copy(x)
        view, axes = x.view, []
        for name in names:
            strides = [f.stride for k, label in enumerate(labels) if label == name for f in coalesce(view.axes[k])]
            axes.append((Factor(extents[name], sum(strides, start=0)),))
        x = b.view(x, View(view.tensor, tuple(extents[n] for n in names), tuple(axes), view.offset))
    kept = [k for k, n in enumerate(names) if x.shape[k] != 1 or extents[n] == 1]
    return b.reshape(x, [x.shape[k] for k in kept]), [names[k] for k in kept]


def _summed(
    b: Builder, x: Operand, labels: list[str], kept: set[str], *, wraps: bool = False
) -> tuple[Operand, list[str]]:
    axes = [k for k, label in enumerate(labels) if label not in kept]
    summed = reduce_axes(b, "ReduceSum", x, axes, False, wraps=wraps) if axes else x
    return summed, [n for n in labels if n in kept]


def _product(
    b: Builder, x: Operand, x_labels: list[str], y: Operand, y_labels: list[str], later: set[str]
) -> tuple[Operand, list[str]]:
    """Returns x times y, summed over the common labels that are not needed later."""
    common = [n for n in x_labels if n in y_labels]
    batch, inner = [n for n in common if n in later], [n for n in common if n not in later]
    m, n = [c for c in x_labels if c not in common], [c for c in y_labels if c not in common]
    left = b.permute(x, [x_labels.index(c) for c in (*batch, *m, *inner)])
    if inner and x.dtype.is_float:
        right = b.permute(y, [y_labels.index(c) for c in (*batch, *inner, *n)])
        shape = (*left.shape[: len(batch) + len(m)], *right.shape[len(batch) + len(inner) :])
        groups = (len(batch), len(m), len(n))
        return matrix_product(
            b, left, (len(batch), len(m), len(inner)), right, (len(batch), len(inner), len(n)), shape, groups, x.dtype
        ), [*batch, *m, *n]
    right = b.permute(y, [y_labels.index(c) for c in (*batch, *n, *inner)])
    at, where = len(batch), len(batch) + len(m)
    left = b.reshape(left, (*left.shape[:where], *(1,) * len(n), *left.shape[where:]))
    right = b.reshape(right, (*right.shape[:at], *(1,) * len(m), *right.shape[at:]))
    products = b.pointwise("x * y", {"x": left, "y": right}, x.dtype)
    return _summed(b, products, [*batch, *m, *n, *inner], later | {*m, *n}, wraps=True)


LARGEST_MATRIX = 16  # rows of a matrix that one invocation eliminates in private memory


@op("Det", types=FLOATS)
def determinant(b: Builder, x: Operand) -> Operand:
    """The determinant, by elimination with row exchanges, one invocation per matrix."""
    n = x.shape[-1]
    if not isinstance(n, int) or n > LARGEST_MATRIX:
        raise UnsupportedError(
            f"a determinant of {n} rows: at most {LARGEST_MATRIX}, known when the graph is compiled, are supported"
        )
    batch = x.rank - 2
    return b.map("det", x.dtype, x.shape[:-2], ("matrix",), (batch,), {"x": (x, (batch, 2))}, cost=64, N=n)
