"""RotaryEmbedding: rotates pairs of elements of each head by an angle that grows with the position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .....errors import UnsupportedError
from .....program.dtypes import DType
from .....records import dataclass
from ....dims import Dim, equal, floordiv, may_be
from ...builder import Builder, Operand
from ..choices import Flag
from ..index import INDICES, Allowed, index32, narrowed
from ..registry import FLOATS, MICROSOFT, op

HEADS_FIRST = ("batch", "head", "step", "d")
STEPS_FIRST = ("batch", "step", "head", "d")

Placed = tuple[Operand, Sequence[int]]
"""An operand of a map, and the grouping of its axes."""


@dataclass(frozen=True)
class AngleRows:
    """The rows of the cosine and sine caches that rotate each (batch, step), in i32.

    `each` (batch, step) are the rows, or `first` (batch) is the row of the first step. With neither, the caches are (batch,
    step, half). `part` (batch) is the row where a sequence's part of the caches begins.
    """

    each: Operand | None = None
    first: Operand | None = None
    part: Operand | None = None

    @property
    def operands(self) -> dict[str, Placed]:
        given = {"each": (self.each, (1, 1)), "first": (self.first, (1,)), "part": (self.part, (1,))}
        return {name: (it, groups) for name, (it, groups) in given.items() if it is not None}


@op(
    "RotaryEmbedding",
    types=FLOATS,
    positions=INDICES,
    ranks={"x": (3, 4), "cosines": (2, 3), "sines": (2, 3), "positions": 2},
)
def rotary_embedding(
    b: Builder,
    x: Operand,
    cosines: Operand,
    sines: Operand,
    positions: Operand | None = None,
    *,
    interleaved: Flag = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Operand:
    """x is (batch, heads, sequence, size) or (batch, sequence, heads * size). The caches have a row per position, or per
    (batch, sequence) without positions. Elements from `rotary_embedding_dim` on are unchanged."""
    if x.rank == 3 and not num_heads:
        raise UnsupportedError("num_heads is needed for an input with three axes")
    rank = 3 if positions is None else 2
    for name, table in (("cos_cache", cosines), ("sin_cache", sines)):
        if table.rank != rank:
            given = "without" if positions is None else "with"
            raise UnsupportedError(f"{name} has {table.rank} axes, and {rank} are needed {given} position_ids")
    whole = x if x.rank == 4 else _split_heads(b, x, num_heads)
    rows = AngleRows()
    if positions is not None:
        rows = AngleRows(each=per_step(b, positions, cosines), part=_part_of_last(b, positions))
    y = rotated(
        b,
        whole,
        HEADS_FIRST if x.rank == 4 else STEPS_FIRST,
        cosines,
        sines,
        rows,
        size=rotary_embedding_dim or whole.shape[3],
        interleaved=bool(interleaved),
    )
    return b.reshape(y, x.shape)


@op(
    "RotaryEmbedding",
    domain=MICROSOFT,
    types=FLOATS,
    positions=INDICES,
    ranks={"x": (3, 4), "cosines": 2, "sines": 2, "positions": (0, 1, 2)},
)
def microsoft_rotary_embedding(
    b: Builder,
    x: Operand,
    positions: Operand,
    cosines: Operand,
    sines: Operand,
    *,
    interleaved: Flag = 0,
    is_packed_batching: Flag = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Operand:
    """x is (batch, heads, sequence, size) or (batch, sequence, heads * size). Positions are (batch, sequence), or one number:
    the position of the first element of every sequence. Without `num_heads`, the head size is what the caches rotate.

    `is_packed_batching` allows concatenated sequences, which together are longer than the caches. `scale` is ignored, as in
    ONNX Runtime.
    """
    if rotary_embedding_dim and not num_heads:
        raise UnsupportedError("rotary_embedding_dim needs num_heads")
    size: Dim = rotary_embedding_dim or 2 * cosines.shape[1]
    heads = num_heads if rotary_embedding_dim else 0
    whole = x if x.rank == 4 else _split_heads(b, x, heads or floordiv(x.shape[2], size))
    if positions.rank < 2:
        positions, part = b.reshape(positions, (1,)), None
        steps = whole.shape[2 if x.rank == 4 else 1]
        first = index32(b, positions, Allowed(0, cosines.shape[0] - steps, f"the rows of the cosines {cosines}"))
        if b.settings.rotary_switch:
            last = b.map(
                "return first_at(0u) + i32($steps) - 1;", DType.INT32, (whole.shape[0],), ("batch",), (1,),
                {"first": (first, (1,))}, parameters={"steps": steps},
            )  # fmt: skip
            part = second_part(b, last)
        rows = AngleRows(first=b.expand(first, (whole.shape[0],)), part=part)
    else:
        rows = AngleRows(each=per_step(b, positions, cosines), part=_part_of_last(b, positions))
    names = HEADS_FIRST if x.rank == 4 else STEPS_FIRST
    y = rotated(b, whole, names, cosines, sines, rows, size=size, interleaved=bool(interleaved))
    return b.reshape(y, x.shape)


@op(
    "MRotaryEmbedding",
    domain=MICROSOFT,
    types=FLOATS,
    positions=INDICES,
    ranks={"x": (3, 4), "cosines": 2, "sines": 2, "positions": 3},
)
def multi_rotary_embedding(
    b: Builder,
    x: Operand,
    positions: Operand,
    cosines: Operand,
    sines: Operand,
    *,
    mrope_section: list[int],
    interleaved: Flag = 0,
    is_packed_batching: Flag = 0,
    mrope_layout: Flag = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Operand:
    """As `rotary_embedding`, with positions (3, batch, sequence) in time, height and width. Each angle of a head uses one of
    the three. `mrope_section` has the number of angles for each, in consecutive sections; with `mrope_layout` 1 they
    alternate."""
    if x.rank == 3 and not num_heads:
        raise UnsupportedError("num_heads is needed for an input with three axes")
    half = sum(mrope_section)
    if len(mrope_section) != 3 or min(mrope_section) < 0 or (rotary_embedding_dim and rotary_embedding_dim != 2 * half):
        raise UnsupportedError(f"mrope_section {mrope_section}: three numbers with a sum of half of a head are needed")
    for name, table in (("cos_cache", cosines), ("sin_cache", sines)):
        b.require(equal(table.shape[1], half), f"{name} {{}} for {half} angles of mrope_section", table)
    b.require(equal(positions.shape[0], 3), "position_ids {} are not of time, height and width", positions)
    whole = x if x.rank == 4 else _split_heads(b, x, num_heads)
    kept = index32(b, positions, Allowed(0, cosines.shape[0] - 1, f"the rows of the cosines {cosines}"))
    which = b.constant(np.array(_streams(mrope_section, bool(mrope_layout)), np.int32))
    tables = [
        b.map(
            "let row = element_of(position_at(u32(which_at(k)), batch, step), $rows);\nreturn table_at(row, k);",
            table.dtype,
            (*positions.shape[1:], half),
            ("batch", "step", "k"),
            (1, 1, 1),
            {"position": (kept, (1, 1, 1)), "which": (which, (1,)), "table": (table, (1, 1))},
            parameters={"rows": table.shape[0]},
        )
        for table in (cosines, sines)
    ]
    names = HEADS_FIRST if x.rank == 4 else STEPS_FIRST
    y = rotated(b, whole, names, tables[0], tables[1], AngleRows(), size=2 * half, interleaved=bool(interleaved))
    return b.reshape(y, x.shape)


def _streams(sections: Sequence[int], take_turns: bool) -> list[int]:
    """Returns 0, 1 or 2 for each angle: time, height or width."""
    if not take_turns:
        return [stream for stream, count in enumerate(sections) for _ in range(count)]
    return [k % 3 if k < 3 * sections[k % 3] else 0 for k in range(sum(sections))]


def _split_heads(b: Builder, x: Operand, heads: Dim) -> Operand:
    """Returns (batch, sequence, heads * size) as (batch, sequence, heads, size)."""
    return b.reshape(x, (*x.shape[:2], heads, floordiv(x.shape[2], heads)))


def second_part(b: Builder, last: Operand) -> Operand:
    """Returns per sequence the row where its part of two-part caches begins. `last` (batch) is the position of its last
    token, i32.

    Two-part caches belong to models with factors for short and for long sequences (LongRoPE). The two parts are concatenated.
    """
    return b.map(
        "return select(0i, i32($switch), last_at(batch) >= i32($switch));",
        DType.INT32,
        last.shape,
        ("batch",),
        (1,),
        {"last": (last, (1,))},
        parameters={"switch": b.settings.rotary_switch},
    )


def per_step(b: Builder, positions: Operand, cosines: Operand) -> Operand:
    """Returns positions (batch, step), rows of the caches, in i32."""
    return index32(b, positions, Allowed(0, cosines.shape[0] - 1, f"the rows of the cosines {cosines}"))


def _part_of_last(b: Builder, positions: Operand) -> Operand | None:
    """As `second_part`, by positions (batch, step); None if the caches have one part."""
    if not b.settings.rotary_switch or positions.rank != 2:
        return None
    last = b.slice(narrowed(b, positions), 1, positions.shape[1] - 1, 1, 1)
    return second_part(b, b.reshape(last, (last.shape[0],)))


def rotated(
    b: Builder,
    x: Operand,
    names: Sequence[str],
    cosines: Operand,
    sines: Operand,
    rows: AngleRows,
    *,
    size: Dim,
    interleaved: bool,
    inline: bool = False,
) -> Operand:
    """Returns x with the first `size` elements of d rotated. `names` are the names of its axes. Pairs are neighbours if
    `interleaved`; otherwise their elements are half of `size` apart."""
    half = floordiv(size, 2)
    for name, table in (("cos_cache", cosines), ("sin_cache", sines)):
        b.require(equal(table.shape[-1], half), f"{name} {{}} for {{}} angles", table, half)
    groups = (1,) * cosines.rank
    caches: dict[str, Placed] = {"cosines": (cosines, groups), "sines": (sines, groups)}
    return b.map(
        "rotary",
        x.dtype,
        x.shape,
        names,
        (1, 1, 1, 1),
        {"x": (x, (1, 1, 1, 1)), **caches, **rows.operands},
        parameters={"half": half, "rows": cosines.shape[0]},
        cost=12,
        reuse=True,
        inline=inline,
        INTERLEAVED=interleaved,
        ROWS="each" if rows.each is not None else "from" if rows.first is not None else "",
        IN_PARTS=rows.part is not None,
        MAY_BE_EMPTY=may_be(cosines.shape[0], 0),
        AXIS0=names[0],
        AXIS1=names[1],
        AXIS2=names[2],
    )
