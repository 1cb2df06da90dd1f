"""Rows that are too long or too many for one kernel: splits them into chunks, which are rows themselves, or processes blocks
of rows.

In: an operand in which the last axes are one row. Out: the same elements as (kept axes..., chunks, length), or the results of
blocks of rows, concatenated. A kernel of rows must not exceed the loop limit of a software adapter, or the bindings. A row
that is known to be too long is cut into chunks, and their results are combined. If sizes are known only in a run, the graph is
then compiled for these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...dims import Dim, ceildiv, floordiv, product
from ...ir import Function
from ...nodes.divide import BindingsError
from ..builder import Builder, Operand

MOST_BLOCKS = 4096  # of rows
FEWEST_CHUNKS = 16  # of a row that is cut because of its bindings: kernels process a few chunks at a time


def by_rows(
    b: Builder,
    x: Operand,
    kept: int,
    results: Callable[..., Sequence[Operand]],
    *more: Operand,
    columns: Dim | None = None,
) -> list[Operand] | None:
    """Returns the `results` of rows: the last axes of x after the first `kept`. The operands `more` begin with the same kept
    axes.

    All rows are processed at once, or in blocks if a kernel has too few bindings for that. Returns None if a row is known to
    be too long for the kernels of rows. `columns` is the length of a row, if it is not all elements after the first `kept`
    axes.
    """
    columns = product(x.shape[kept:]) if columns is None else columns
    if b.longest_row is not None and isinstance(columns, int) and columns > b.longest_row:
        return None
    mark = b.mark()
    b.bound_rows(columns)
    try:
        return list(results(x, *more))
    except BindingsError:
        b.undo(mark)
    axis = next((k for k in range(kept) if x.shape[k] != 1), 0)
    extent = x.shape[axis]
    if not isinstance(extent, int) or not kept or extent == 1:
        return None

    def some(start: int, count: int) -> list[Operand]:
        return [b.slice(o, axis, start, 1, count) for o in (x, *more)]

    try:
        return in_blocks(b, extent, lambda start, count: results(*some(start, count)), axis)
    except BindingsError:
        b.undo(mark)
    if all(d == 1 for d in x.shape[axis + 1 : kept]):
        return None
    blocks = []
    for k in range(extent):
        own, *others = some(k, 1)
        block = by_rows(b, own, kept, results, *others, columns=columns)
        if block is None:
            b.undo(mark)
            return None
        blocks.append(block)
    return [b.joined(each, axis) for each in zip(*blocks, strict=True)]


def cut(b: Builder, x: Operand, kept: int, fill: str, chunks: int = 0) -> Operand:
    """Returns the rows of x, its axes from `kept` on, in `chunks`; by default as few as kernels support. The last chunk is
    padded with `fill`, an expression."""
    columns = product(x.shape[kept:])
    if not chunks:
        assert isinstance(columns, int)
        chunks = chunks_of(b, columns)
    length = ceildiv(columns, chunks)
    exact = isinstance(columns, int) and columns % chunks == 0
    view = x.view.reshape((*x.shape[:kept], chunks, floordiv(columns, chunks))) if exact else None
    if view is not None:
        return b.view(x, view)
    return b.map(
        "let i = part * $length + k; if (i >= $columns) { return $FILL; } return x_at(row, i);",
        x.dtype,
        (*x.shape[:kept], chunks, length),
        ("row", "part", "k"),
        (kept, 1, 1),
        {"x": (x, (kept, x.rank - kept))},
        parameters={"columns": columns, "length": length},
        functions={"FILL": Function((), fill, x.dtype.compute or "")},
        inline=True,
        cost=2,
    )


def in_blocks(b: Builder, extent: Dim, results: Callable[[int, int], Sequence[Operand]], axis: int) -> list[Operand]:
    """Returns the results of `results(start, count)` for blocks of an axis, as few as possible, concatenated."""
    assert isinstance(extent, int)
    mark, count = b.mark(), 2
    while True:
        step = -(-extent // count)
        try:
            found = [results(start, min(step, extent - start)) for start in range(0, extent, step)]
            return [b.joined(blocks, axis) for blocks in zip(*found, strict=True)]
        except BindingsError:
            if step == 1 or count >= MOST_BLOCKS:
                raise
            b.undo(mark)
            count *= 2


def chunks_of(b: Builder, columns: int, more: int = 0) -> int:
    """Returns the number of chunks for a row that is too long for kernels. `more` is the number of elements that each chunk
    may get in addition."""
    fewest = -(-columns // max(1, b.longest_row - more)) if b.longest_row is not None else 1
    return max(fewest, min(columns, FEWEST_CHUNKS))
