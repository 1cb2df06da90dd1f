"""Matrix products of f32 as products of f16, for adapters with matrix units that multiply f16 and accumulate in f32.

Each operand is split into two f16 numbers: h, the number rounded to f16, and l, the remainder rounded to f16. Of the four
products, l l is below the precision of f32 and is omitted. The other three are one f16 product: its terms are those of [l, h,
h] on the left and [h, l, h] on the right. Small terms come first, because an f32 sum loses less precision while it is small.

Before the split, each row of the left operand and each column of the right one is scaled by a power of two. Its largest
finite element is then between 2^13 and 2^15, so nothing overflows in f16. The error of a term is at most 2^-21 of the largest
term of its sum (docs/numbers.md).

Infinity and NaN are kept in h h alone, where they meet the same factors as in f32.
"""

from __future__ import annotations

from ....program.dtypes import DType
from ...dims import Dim, ceildiv, product
from ...ir import Read, Shape
from ...tune import matrix_units
from ..builder import Builder, Operand
from .reduction import reduce_axes

FEWEST = 64  # rows, columns and terms of a sum; with fewer, splitting takes longer than the units save
_ALIGNED = 8  # terms: kernels load this many f16 at a time

Groups = tuple[int, int, int]


def is_worth_splitting(b: Builder, x: Operand, y: Operand, sizes: tuple[Dim, ...]) -> bool:
    """Whether a product (m, n, k) of x and y is split. The option must request it, the adapter must have units for it, and
    all sizes must be known and large enough."""
    if not b.settings.f16_products or x.dtype is not DType.FLOAT32 or y.dtype is not DType.FLOAT32:
        return False
    if not matrix_units(b.target, DType.FLOAT16, DType.FLOAT16):
        return False
    # Elements that a view repeats, as windows do, would be split repeatedly.
    distinct = all(it.view.size == it.view.tensor.size for it in (x, y))
    return distinct and all(isinstance(it, int) and it >= FEWEST for it in sizes)


class Halves:
    """An operand of a product, split into its f16 parts.

    `parts`, in f16, is (batch, rows, terms), or (batch, terms, rows) with `terms_first`. `root` (batch, rows) is the square
    root of the factor that undoes the scaling.
    """

    def __init__(self, b: Builder, x: Operand, groups: Groups, *, terms_first: bool, order: str) -> None:
        """`groups`: the numbers of axes of x that are batch, rows and terms, or with `terms_first` batch, terms and rows.

        `order`: the parts along the terms: `l`, `h`, and `f`, which is h without infinity and NaN.
        """
        batch, first, _ = groups
        reduced = range(batch, batch + first) if terms_first else range(batch + first, x.rank)
        kept = [k for k in range(x.rank) if k not in reduced]
        extents = (
            product(x.shape[:batch]),
            product(x.shape[k] for k in kept[batch:]),
            product(x.shape[k] for k in reduced),
        )
        sizes = b.pointwise("where(isinf(x) or isnan(x), 0.0, abs(x))", {"x": x}, DType.FLOAT32, cost=4)
        largest = reduce_axes(b, "ReduceMax", sizes, list(reduced), keepdims=False)
        self.root = b.map(
            "split_root",
            DType.FLOAT32,
            extents[:2],
            ("batch", "row"),
            (1, 1),
            {"largest": (largest, (batch, largest.rank - batch))},
        )
        length = ceildiv(extents[2], _ALIGNED) * _ALIGNED
        terms = len(order) * length
        shape: Shape = (extents[0], terms, extents[1]) if terms_first else (extents[0], extents[1], terms)
        names = ("batch", "at", "row") if terms_first else ("batch", "row", "at")
        self.parts = b.map(
            "split_parts",
            DType.FLOAT16,
            shape,
            names,
            (1, 1, 1),
            {"x": (x, groups), "root": (self.root, (1, 1))},
            parameters={"length": length, "terms": extents[2]},
            cost=12,
            reuse=True,
            TERMS_FIRST=terms_first,
            FINITE=order.index("f"),
            LOW=order.index("l"),
        )


def unscaled(b: Builder, y: Operand, left: Operand, right: Operand) -> Operand:
    """Returns the product y (batch, m, n) without the scales of its operands. Their roots are (batch, m) and (batch, n).

    It multiplies by each root twice: both scales together may exceed f32 even if the result does not.
    """
    (batch, m), n = left.shape, right.shape[-1]
    roots = {"l": b.reshape(left, (batch, m, 1)), "r": b.reshape(right, (batch, 1, n))}
    return b.pointwise("y * l * r * l * r", {"y": y, **roots}, DType.FLOAT32, cost=4)


def right_halves(b: Builder, y: Operand, groups: Groups) -> tuple[Halves, Operand]:
    """Returns the right operand, split, and its parts as (batch, terms, columns). Their memory order is that of y."""
    batch, k, n = groups
    order = [*range(batch), *range(batch + k, batch + k + n), *range(batch, batch + k)]
    along_terms = Read(y.view.permute(order), (batch, n, k), reuse=True, vector=True)
    if not along_terms.loads_vectors or Read(y.view, groups, reuse=True, vector=True).loads_vectors:
        halves = Halves(b, y, groups, terms_first=True, order="flh")
        return halves, halves.parts
    halves = Halves(b, b.permute(y, order), (batch, n, k), terms_first=False, order="flh")
    return halves, b.permute(halves.parts, [0, 2, 1])
