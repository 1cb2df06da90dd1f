"""Rows that are too long or too many for one kernel: cut into chunks, which are rows of their own, or treated in blocks of rows.

In: an operand whose last axes are one row. Out: the same elements as (kept axes..., chunks, length), or the results of some rows
after those of others. Every kernel of rows cuts what is known to be longer than an invocation of a software adapter may loop,
or than what it can bind, and puts the results of the chunks together; sizes that only a run knows are compiled for then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...dims import Dim, ceildiv, floordiv, product
from ...ir import Function
from ...nodes.divide import BindingsError
from ..builder import Builder, Operand

MOST_BLOCKS = 4096  # of rows
FEWEST_CHUNKS = 16  # of a row that is cut for its bindings, of which kernels take some at a time


def by_rows(
    b: Builder,
    x: Operand,
    kept: int,
    results: Callable[..., Sequence[Operand]],
    *more: Operand,
    columns: Dim | None = None,
) -> list[Operand] | None:
    """The `results` of rows, the last axes of x after the first `kept`, with `more` operands that begin with the same axes: of all
    rows at once or, where a kernel has not enough bindings for that, of some at a time. None where a row is known to be too
    long for the kernels of rows. `columns` are those of a row, where they are not all elements behind the first `kept` axes."""
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
    return [b.beside(each, axis) for each in zip(*blocks, strict=True)]


def cut(b: Builder, x: Operand, kept: int, fill: str, chunks: int = 0) -> Operand:
    """The rows of x, its axes from `kept` on, in `chunks`, by default as few as kernels treat; `fill`, an expression, is
    behind the last one."""
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
    """Results for all of an axis, made by `results(start, count)` for as few blocks of it as can be, and put side by side."""
    assert isinstance(extent, int)
    mark, count = b.mark(), 2
    while True:
        step = -(-extent // count)
        try:
            found = [results(start, min(step, extent - start)) for start in range(0, extent, step)]
            return [b.beside(blocks, axis) for blocks in zip(*found, strict=True)]
        except BindingsError:
            if step == 1 or count >= MOST_BLOCKS:
                raise
            b.undo(mark)
            count *= 2


def chunks_of(b: Builder, columns: int, more: int = 0) -> int:
    """Into how many chunks a row is cut that kernels do not treat whole; each may get so many `more` elements."""
    fewest = -(-columns // max(1, b.longest_row - more)) if b.longest_row is not None else 1
    return max(fewest, min(columns, FEWEST_CHUNKS))
