"""Rows that are longer than an invocation of a software adapter may loop: cut into parts, which are rows of their own.

In: an operand whose last axes are one row. Out: the same elements as (kept axes..., parts, length). Every kernel of rows cuts
what is known to be too long for it by this and puts the results of the parts together; a row that turns out too long in a run
is compiled again for its size.
"""

from __future__ import annotations

from ..builder import Builder, Operand
from ..codegen.scalar import Scalars
from ..dims import Dim, ceildiv, floordiv, product
from .window import body


def too_long(b: Builder, columns: Dim) -> bool:
    """Whether a row is known to have more elements than the kernels of rows treat."""
    return b.longest_row is not None and isinstance(columns, int) and columns > b.longest_row


def cut(b: Builder, x: Operand, kept: int, fill: float, parts: int = 0) -> Operand:
    """The rows of x, its axes from `kept` on, in `parts`, by default as few as kernels treat; `fill` is behind the last element."""
    columns = product(x.shape[kept:])
    if not parts:
        assert isinstance(columns, int) and b.longest_row is not None
        parts = -(-columns // b.longest_row)
    length = ceildiv(columns, parts)
    exact = isinstance(columns, int) and columns % parts == 0
    view = x.view.reshape((*x.shape[:kept], parts, floordiv(columns, parts))) if exact else None
    if view is not None:
        return b.seen(x, view)
    text = Scalars(b.target.int64).literal(fill, x.dtype.compute or "").text
    lines = ["let i = part * $length + k;", f"if (i >= $columns) {{ return {text}; }}", "return x_at(row, i);"]
    return b.map(
        body(lines),
        x.dtype,
        (*x.shape[:kept], parts, length),
        ("row", "part", "k"),
        (kept, 1, 1),
        {"x": (x, (kept, x.rank - kept))},
        parameters={"columns": columns, "length": length},
        inline=True,
        cost=2,
    )
