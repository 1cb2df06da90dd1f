"""Operators with data-dependent result sizes. Each declares with `sized` what only the data decides.

Selected elements are marked, and running totals of the marks computed. The k-th selected element is at the first position
with a total above k. So results are gathered to the beginning of a buffer of the maximum size, and their count is stored
beside it. A host reads the count back (`Builder.sized`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....program.dtypes import DType
from ...dims import Dim, ceildiv, maximum, minimum, product
from ...ir import REPETITION, Read, Variant
from ..builder import Builder, Operand
from .choices import Flag
from .indexing import gather
from .named_axes import axis_of
from .registry import ANY, BOOLS, FLOATS, INTEGERS, NUMBERS, op
from .scan import running_totals, running_totals_of_rows
from .sorting import KEYS, sorted_places


class _Selected:
    """The selected elements of a list of marks, i32 and 1 or 0.

    `count` is their number, one element on the device. `places` are their positions, at the beginning of a list of all
    elements' length.
    """

    def __init__(self, b: Builder, marks: Operand) -> None:
        self.totals = running_totals(b, marks)
        self.count = _last_total(b, self.totals)
        self.places = _first_above(b, self.totals, marks.size)


def _last_total(b: Builder, totals: Operand) -> Operand:
    """Returns the last of the running totals, 0 if there are none."""
    text = "if ($columns == 0u) { return 0i; } return totals_at($columns - 1u);"
    operands = {"totals": (totals, (1,))}
    return b.map(text, DType.INT32, (1,), ("k",), (1,), operands, parameters={"columns": totals.size})


def _first_above(b: Builder, totals: Operand, count: Dim) -> Operand:
    return b.map(
        "first_above",
        DType.INT32,
        (count,),
        ("k",),
        (1,),
        {"totals": (totals, (1,))},
        parameters={"columns": totals.size},
        cost=64,
        reuse=True,
    )


def _gathered(b: Builder, x: Operand, places: Operand) -> Operand:
    """Returns the elements of a list at `places`. A place after the end reads the last element."""
    operands = {"x": (x, (1,)), "place": (places, (1,))}
    text = "return x_at(min(u32(place_at(k)), $columns - 1u));"
    return b.map(text, x.dtype, (places.size,), ("k",), (1,), operands, parameters={"columns": x.size}, reuse=True)


def _indices(b: Builder, count: Dim) -> Operand:
    return b.map("return i32(k);", DType.INT32, (count,), ("k",), (1,), {}, cost=1)


def _flat(b: Builder, x: Operand) -> Operand:
    return b.reshape(x, (x.size,))


@op("NonZero", types=ANY, sized="the number of elements that are not zero")
def non_zero(b: Builder, x: Operand) -> Operand:
    """Returns the coordinates of the non-zero elements, axes by elements."""
    shape: tuple[Dim, ...] = x.shape or (1,)
    rank = len(shape)
    found = _Selected(
        b,
        b.pointwise("i32(x)" if x.dtype is DType.BOOL else "i32(x != 0)", {"x": _flat(b, x)}, DType.INT32),
    )
    places = b.map(
        "nonzero",
        DType.INT32,
        (rank * x.size,),
        ("e",),
        (1,),
        {"place": (found.places, (1,)), "count": (found.count, (1,))},
        parameters={f"stride{k}": product(shape[k + 1 :]) for k in range(rank)}
        | {f"extent{k}": d for k, d in enumerate(shape)},
        cost=8,
        reuse=True,
        RANK=rank,
    )
    return b.sized(b.cast(places, DType.INT64), (rank, found.count))


@op("Compress", types=ANY, condition=BOOLS, sized="the number of conditions that hold")
def compress(b: Builder, x: Operand, condition: Operand, *, axis: int | None = None) -> Operand:
    """Returns the elements or slices of x with a true condition. Those without a condition are dropped."""
    if axis is None:
        x = _flat(b, x)
    axis = axis_of(axis or 0, x.rank)
    known = condition.constant
    if known is not None or (condition.has_host and condition.known):
        kept = np.flatnonzero(known if known is not None else condition.ints("the condition")).astype(np.int64)
        extent = x.shape[axis]
        if isinstance(extent, int):  # a condition may be longer than the axis
            kept = kept[kept < extent]
        result: Operand = gather(b, x, b.constant(kept), axis=axis)
        return result
    marks = b.slice(_flat(b, condition), 0, 0, 1, minimum(condition.size, x.shape[axis]))
    found = _Selected(b, b.cast(marks, DType.INT32))
    outer, inner = product(x.shape[:axis]), product(x.shape[axis + 1 :])
    data = b.map(
        "compress",
        x.dtype,
        (outer * marks.size * inner,),
        ("e",),
        (1,),
        {
            "x": (x, (axis, 1, x.rank - axis - 1)),
            "place": (found.places, (1,)),
            "count": (found.count, (1,)),
        },
        parameters={"outer": outer, "inner": inner},
        cost=8,
        reuse=True,
    )
    return b.sized(data, (*x.shape[:axis], found.count, *x.shape[axis + 1 :]))


class _Classes:
    """The classes of equal elements of a list of keys, in the order of the keys.

    `count` is the number of classes. `firsts` are the positions of their first elements, and `counts` their sizes, both at
    the beginning of a list of all elements' length. `of` is the class of each element.
    """

    def __init__(self, b: Builder, keys: Operand) -> None:
        self._b, self.size = b, keys.size
        self.order = sorted_places(b, keys, "x < y", keys.size)
        operands = {"x": (keys, (1,)), "place": (self.order, (1,))}
        here, before = (
            b.map(text, keys.dtype, (keys.size,), ("k",), (1,), operands, reuse=True)
            for text in ("return x_at(u32(place_at(k)));", "return x_at(u32(place_at(max(k, 1u) - 1u)));")
        )
        steps = b.pointwise("i32(x != y)", {"x": here, "y": before}, DType.INT32)
        self._totals = b.pointwise("x + 1", {"x": running_totals(b, steps)}, DType.INT32)
        self.count = _last_total(b, self._totals)
        self._begins = _first_above(b, self._totals, keys.size)

    @property
    def firsts(self) -> Operand:
        return _gathered(self._b, self.order, self._begins)

    @property
    def counts(self) -> Operand:
        text = "return next_at(k) - begin_at(k);"
        following = _first_above(self._b, self._b.pointwise("x - 1", {"x": self._totals}, DType.INT32), self.size)
        operands = {"next": (following, (1,)), "begin": (self._begins, (1,))}
        return self._b.map(text, DType.INT32, (self.size,), ("k",), (1,), operands)

    @property
    def of(self) -> Operand:
        ranks = sorted_places(self._b, self.order, "x < y", self.size)
        return _gathered(self._b, self._b.pointwise("x - 1", {"x": self._totals}, DType.INT32), ranks)


def _keys(b: Builder, x: Operand) -> Operand:
    """Returns unsigned keys in the order of the elements: both zeros are equal, and NaN is the largest."""
    if x.dtype is DType.BOOL:
        return b.cast(x, DType.UINT32)
    wide = DType.UINT64 if x.dtype.bits == 64 else DType.UINT32
    return b.pointwise(KEYS[x.dtype.compute or ""], {"x": x}, wide, cost=6)


def _row_keys(b: Builder, x: Operand) -> Operand:
    """The same for rows: the number of rows that come before. Each row is compared with every other."""
    rows, columns = x.shape
    if columns == 1:
        return _keys(b, _flat(b, x))
    classes = b.reshape(_Classes(b, _keys(b, _flat(b, x))).of, x.shape)
    return b.map(
        "rows_before",
        DType.INT32,
        (rows,),
        ("row",),
        (1,),
        {"x": (classes, (1, 1))},
        parameters={"rows": rows, "columns": columns},
        cost=64,
        reuse=True,
        iterations=rows * columns,
    )


@op("Unique", types=NUMBERS | BOOLS, sized="the number of distinct elements")
def unique(
    b: Builder, x: Operand, *, axis: int | None = None, sorted: Flag = 1, wanted: Sequence[bool] = ()
) -> list[Operand | None]:
    """Returns the distinct elements, or slices along an axis, sorted or in the order of their first occurrence. Further
    results are the position of each first occurrence, the distinct element that each element equals, and the counts."""
    if axis is None:
        x, order = _flat(b, x), [0]
    else:
        axis = axis_of(axis, x.rank)
        order = [axis, *(k for k in range(x.rank) if k != axis)]
    source = b.permute(x, order)
    count, others = source.shape[0], source.shape[1:]
    rows = b.reshape(source, (count, product(others)))
    classes = _Classes(b, _row_keys(b, rows))
    firsts, found = classes.firsts, classes.count
    needed = [*wanted, *[False] * 4][:4]
    of = classes.of if needed[2] or not sorted else None
    counts = classes.counts if needed[3] else None
    if not sorted:
        # Each class becomes its first element, and classes are put in the order of these.
        assert of is not None
        leaders = _gathered(b, firsts, of)
        places = _indices(b, count)
        marked = _Selected(b, b.pointwise("i32(x == y)", {"x": leaders, "y": places}, DType.INT32))
        firsts, found = marked.places, marked.count
        counts = None if counts is None else _gathered(b, counts, _gathered(b, of, firsts))
        of = b.pointwise("x - 1", {"x": _gathered(b, marked.totals, leaders)}, DType.INT32)
    data = _distinct(b, rows, firsts, found, axis or 0, [x.shape[k] for k in range(x.rank)])
    shape = tuple(found if k == (axis or 0) else d for k, d in enumerate(x.shape))
    return [
        b.sized(data, shape),
        b.sized(b.cast(firsts, DType.INT64), (found,)) if needed[1] else None,
        None if of is None or not needed[2] else b.cast(of, DType.INT64),
        None if counts is None else b.sized(b.cast(counts, DType.INT64), (found,)),
    ]


def _distinct(b: Builder, rows: Operand, firsts: Operand, count: Operand, axis: int, shape: Sequence[Dim]) -> Operand:
    """Returns the rows at `places`, as slices along an axis of this shape."""
    outer, inner = product(shape[:axis]), product(shape[axis + 1 :])
    return b.map(
        "let n = u32(count_at(0u)); if (e >= $outer * n * $inner) { return $out_t(); }"
        " return x_at(u32(place_at(e / $inner % n)), e / ($inner * n) * $inner + e % $inner);",
        rows.dtype,
        (rows.size,),
        ("e",),
        (1,),
        {"x": (rows, (1, 1)), "place": (firsts, (1,)), "count": (count, (1,))},
        parameters={"outer": outer, "inner": inner},
        cost=8,
        reuse=True,
    )


_PARTS = 16
"""Blocks of boxes per dispatch. A class has thousands of boxes, few of them with a score, and each dispatch takes time."""


class _Candidates:
    """The non-zero keys of each row of keys (rows, columns), u32, in their order.

    `there` is their number in each row, `places` are their positions, `keys` the keys themselves. Sorting these is faster
    than sorting rows of mostly zeros. On an H100, a run with 25,200 boxes of 80 classes, 2,000 of them with a score, takes 1
    ms less.
    """

    def __init__(self, b: Builder, keys: Operand) -> None:
        rows, columns = keys.shape
        totals = running_totals_of_rows(b, b.pointwise("i32(k != 0)", {"k": keys}, DType.INT32))
        self.there = b.map(
            "if ($columns == 0u) { return 0i; } return totals_at(row, $columns - 1u);",
            DType.INT32,
            (rows,),
            ("row",),
            (1,),
            {"totals": (totals, (1, 1))},
            parameters={"columns": columns},
        )
        there = {"there": (self.there, (1,))}
        self.places = b.map(
            "first_of_row",
            DType.INT32,
            (rows, columns),
            ("row", "k"),
            (1, 1),
            {"totals": (totals, (1, 1)), **there},
            parameters={"columns": columns},
            cost=64,
            reuse=True,
        )
        self.keys = b.map(
            "if (i32(k) >= there_at(row)) { return 0u; } return key_at(row, u32(place_at(row, k)));",
            DType.UINT32,
            (rows, columns),
            ("row", "k"),
            (1, 1),
            {"key": (keys, (1, 1)), "place": (self.places, (1, 1)), **there},
            cost=64,
            reuse=True,
        )


@op(
    "NonMaxSuppression",
    types=FLOATS,
    most=INTEGERS,
    ranks={"boxes": 3, "scores": 3},
    sized="the number of boxes that stay",
)
def non_max_suppression(
    b: Builder,
    boxes: Operand,
    scores: Operand,
    most: Operand | None = None,
    iou_threshold: Operand | None = None,
    score_threshold: Operand | None = None,
    *,
    center_point_box: Flag = 0,
) -> Operand:
    """Returns batch, class and box of the selected boxes, best first in each class. A box is dropped if a box with a higher
    score overlaps it by more than the threshold. Equal scores are in the order of the boxes. A box with a score of NaN is
    dropped."""
    batch, classes, count = scores.shape
    rows = batch * classes
    limit = most.dims("the maximum number of boxes per class")[0] if most is not None else 0
    room = minimum(maximum(limit, 0), count)
    if room == 0:
        return b.sized(b.constant(np.zeros(0, np.int64)), (0, 3))
    if score_threshold is None:
        keys = b.pointwise("where(x == x, ordered(x), u32(0))", {"x": scores}, DType.UINT32, cost=6)
    else:
        operands = {"x": scores, "least": b.reshape(score_threshold, (1, 1, 1))}
        keys = b.pointwise("where(x > least, ordered(x), u32(0))", operands, DType.UINT32, scores.shape, cost=6)
    candidates = _Candidates(b, b.reshape(keys, (rows, count)))
    order = sorted_places(b, candidates.keys, "x > y", count, candidates.there)
    part = iou_threshold if iou_threshold is not None else b.constant(np.zeros(1, np.float32))
    block = 1 << (min(256, b.target.max_invocations).bit_length() - 1)
    parts = 2 if b.target.software else _PARTS  # loops of an invocation are limited there
    by_row = (1, 1)
    chosen, counts = b.call(
        "suppress",
        {
            "x": Read(boxes.view, (1, 1, 1), reuse=True),
            "place": Read(candidates.places.view, by_row, reuse=True),
            "there": Read(candidates.there.view, (1,)),
            "order": Read(order.view, by_row, reuse=True),
            "limit": Read(b.reshape(part, (1,)).view, (1,)),
        },
        {"box": (DType.INT32, (rows, room), by_row), "count": (DType.INT32, (rows,), (1,))},
        (Variant(rows, block),),
        parameters={"columns": count, "classes": classes, "most": room, "repetition": REPETITION},
        repeats=ceildiv(count, block * parts),
        loop_carried=frozenset({"box", "count"}),
        BLOCK=block,
        PARTS=parts,
        CENTRED=bool(center_point_box),
    )
    totals = running_totals(b, counts)
    found = _last_total(b, totals)
    data = b.map(
        "chosen_boxes",
        DType.INT32,
        (rows * room * 3,),
        ("e",),
        (1,),
        {"totals": (totals, (1,)), "count": (found, (1,)), "box": (chosen, by_row)},
        parameters={"rows": rows, "classes": classes},
        cost=32,
        reuse=True,
    )
    return b.sized(b.cast(data, DType.INT64), (found, 3))
