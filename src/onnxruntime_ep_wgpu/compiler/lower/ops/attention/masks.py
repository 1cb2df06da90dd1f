"""Masks and biases of scores: hides keys from queries.

In: scores (batch, heads, queries, keys) in f32. Out: the same, with minus infinity where a query may not see a key. Hidden
scores are selected, not added to, so hidden rows of a cache may have any content. All of this is fused into the store of
scores.
"""

from __future__ import annotations

from .....errors import UnsupportedError
from .....program.dtypes import DType
from .....records import dataclass
from ....dims import Dim, equal, less_equal
from ...builder import Builder, Operand
from ..attend import VisibleKeys
from ..index import index32

PLACE = ("batch", "head", "i", "j")
ONES = (1, 1, 1, 1)


@dataclass(frozen=True)
class Past:
    """The keys before the first query.

    * `count`: their number, if it is known before the run.
    * `used`: their number per sequence, (batch), i32. The rows of the cache after the used and new ones are unused.
    * `steps`: the number of keys that come with the queries.
    * `total`: the length of the longest sequence, including these; 0 if only the device has it.
    """

    count: Dim = 0
    used: Operand | None = None
    steps: Dim = 0
    total: Dim = 0

    def visible(self, *, causal: bool, window: int = 0) -> VisibleKeys | None:
        """Returns the visible keys after `hidden`, for an attention kernel; None for a window that does not move with the
        queries."""
        if window > 0 and not causal:
            return None
        right, left = (0 if causal else None), (window - 1 if window > 0 else None)
        if self.used is None:
            return VisibleKeys(starts=self.count, left=left, right=right)
        longest = None if self.total == 0 else self.total
        return VisibleKeys(starts=self.used, length_from_start=self.steps, longest=longest, left=left, right=right)


def hidden(b: Builder, scores: Operand, past: Past, *, causal: bool, window: int = 0) -> Operand:
    """Hides keys that do not exist, with `causal` also those after the query, and with `window` all but the last `window` of
    the rest."""
    batch, _, queries, total = scores.shape
    if not causal and past.used is None:
        return scores
    dims = {} if past.used is not None else {"past": past.count}
    seen = b.map(
        "visible_key",
        DType.BOOL,
        (batch if past.used is not None else 1, 1, queries, total),
        PLACE,
        ONES,
        {} if past.used is None else {"used": (past.used, (1,))},
        parameters=dims | ({} if causal else {"steps": past.steps}),
        reuse=True,
        inline=True,
        CAUSAL=causal,
        WINDOW=max(window, 0),
    )
    return b.pointwise("where(m, x, -infinity)", {"x": scores, "m": seen}, DType.FLOAT32, scores.shape)


def biased(b: Builder, scores: Operand, bias: Operand | None, past: Past) -> Operand:
    """Returns scores plus a bias (batch or 1, heads or 1, queries, keys). The bias may omit the unused rows of a cache."""
    if bias is None:
        return scores
    if bias.rank != 4:
        raise UnsupportedError(f"a bias {bias} must have the shape (batch or 1, heads or 1, queries, keys)")
    _, _, queries, total = scores.shape
    b.require(equal(bias.shape[2], queries), "a bias {} of scores for {} queries", bias, queries)
    _require_keys(b, bias, total, past, "a bias {} of scores for {} keys")
    if bias.shape[3] != total:
        bias = b.map(
            "if (j >= $known) { return 0f; } return x_at(batch, head, i, j);",
            DType.FLOAT32,
            (*bias.shape[:3], total),
            PLACE,
            ONES,
            {"x": (bias, ONES)},
            parameters={"known": bias.shape[3]},
            inline=True,
        )
    return b.pointwise("x + y", {"x": scores, "y": bias}, DType.FLOAT32, scores.shape)


def _require_keys(b: Builder, x: Operand, keys: Dim, past: Past, text: str) -> None:
    """Requires that the last axis of x covers all keys. For a cache it covers only the used rows, as in ONNX Runtime. If only
    the device has their number, it has at most as many elements as there are rows."""
    count = x.shape[-1]
    if past.used is not None and past.total == 0:
        b.require(less_equal(count, keys), text, x, keys)
    else:
        there = keys if past.used is None else past.total
        b.require(equal(count, there), text, x, there)


def padded(b: Builder, scores: Operand, mask: Operand | None, filter_value: float, past: Past) -> Operand:
    """Returns scores plus `filter_value` for padding. The masks of com.microsoft are integers, in one of these forms:

    * 0 for padding: (batch, keys), (batch, queries, keys), or (batch, 1, most, most) from query `past` on,
    * the ends of the sequences (batch),
    * their ends, then their starts (2 * batch).
    """
    if mask is None:
        return scores
    batch, _, queries, total = scores.shape
    if not 1 <= mask.rank <= 4:
        raise UnsupportedError(f"a mask of {mask.rank} axes is not supported")
    ends = mask.rank == 1
    both, short = ends and mask.shape[0] == 2 * batch, not ends and mask.shape[-1] != total
    b.require(equal(mask.shape[0], 2 * batch if both else batch), "a mask {} for a batch of {}", mask, batch)
    if 1 < mask.rank < 4:
        _require_keys(b, mask, total, past, "a mask {} for {} keys")
    if mask.rank == 3:
        b.require(equal(mask.shape[1], queries), "a mask {} for {} queries", mask, queries)
    if mask.rank == 4 and past.used is None:
        b.require(less_equal(total, mask.shape[3]), "a mask {} for {} keys", mask, total)
        b.require(less_equal(past.count + queries, mask.shape[2]), "a mask {} for {} queries", mask, queries)
    dims = {"batches": batch} if both else {"past": past.count} if mask.rank == 4 else dict[str, Dim]()
    dims |= {"known": mask.shape[-1]} if short else {}
    added = b.map(
        "padding_mask",
        DType.FLOAT32,
        (batch, 1, queries if mask.rank > 2 else 1, total),
        PLACE,
        ONES,
        {"mask": (index32(b, mask), (1,) * mask.rank)},
        parameters=dims,
        reuse=mask.rank == 1,
        inline=True,
        FILTER=float(filter_value),
        RANK=mask.rank,
        BEGINS=both,
        SHORT=short,
    )
    return b.pointwise("x + y", {"x": scores, "y": added}, DType.FLOAT32, scores.shape)


def present(b: Builder, values: Operand, past: Past) -> Operand:
    """Returns values with zeros after the end of each sequence: a weight of 0 does not hide NaN."""
    if past.used is None:
        return values
    return b.map(
        "if (i32(row) >= used_at(batch) + i32($steps)) { return $out_t(); } return x_at(batch, head, row, d);",
        values.dtype,
        values.shape,
        ("batch", "head", "row", "d"),
        ONES,
        {"x": (values, ONES), "used": (past.used, (1,))},
        parameters={"steps": past.steps},
        reuse=True,
        inline=True,
    )
