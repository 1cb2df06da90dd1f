"""RotaryEmbedding: pairs of elements of each head turned by an angle that grows with the position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...builder import Builder, Operand
from ...codegen.prelude import map_body
from ...dims import Dim, floordiv, may_be
from ..index import INDICES, Allowed, index32, narrowed
from ..optimised import MICROSOFT
from ..registry import FLOATS, op

HEADS_FIRST = ("batch", "head", "step", "d")
STEPS_FIRST = ("batch", "step", "head", "d")

Placed = tuple[Operand, Sequence[int]]
"""An operand of a map, and how its axes are grouped."""


@op("RotaryEmbedding", types=FLOATS, positions=INDICES)
def rotary_embedding(
    b: Builder,
    x: Operand,
    cosines: Operand,
    sines: Operand,
    positions: Operand | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Operand:
    """x is (batch, heads, sequence, size) or (batch, sequence, heads * size); the caches hold a row per position, or per
    (batch, sequence) when no positions are given. Elements from `rotary_embedding_dim` on stay."""
    if x.rank == 3 and not num_heads:
        raise UnsupportedError("num_heads is needed for an input of three axes")
    whole = x if x.rank == 4 else _split(b, x, num_heads)
    row, operands, part = "", dict[str, Placed](), None
    if positions is not None:
        row, operands = per_step(b, positions, cosines)
        part = _part_of_last(b, positions)
    y = turned(
        b,
        whole,
        HEADS_FIRST if x.rank == 4 else STEPS_FIRST,
        cosines,
        sines,
        row,
        operands,
        part,
        size=rotary_embedding_dim or whole.shape[3],
        interleaved=bool(interleaved),
    )
    return b.reshape(y, x.shape)


@op("RotaryEmbedding", domain=MICROSOFT, types=FLOATS, positions=INDICES)
def microsoft_rotary_embedding(
    b: Builder,
    x: Operand,
    positions: Operand,
    cosines: Operand,
    sines: Operand,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Operand:
    """x is (batch, heads, sequence, size) or (batch, sequence, heads * size); positions are (batch, sequence), or (1) for that
    of the first element of every sequence. Without numbers of its own, a head has as many elements as the caches turn.

    `is_packed_batching` allows sequences, several behind each other, that are longer than the caches; `scale` means nothing
    to ONNX Runtime either.
    """
    if rotary_embedding_dim and not num_heads:
        raise UnsupportedError("rotary_embedding_dim needs num_heads")
    size: Dim = rotary_embedding_dim or 2 * cosines.shape[1]
    heads = num_heads if rotary_embedding_dim else 0
    whole = x if x.rank == 4 else _split(b, x, heads or floordiv(x.shape[2], size))
    part = None
    if positions.rank == 1:
        rows = cosines.shape[0]
        steps = whole.shape[2 if x.rank == 4 else 1]
        first = index32(b, positions, Allowed(0, rows - steps, f"the rows of the cosines {cosines}"))
        row, operands = "positions_at(0u) + i32(step)", dict[str, Placed](positions=(first, (1,)))
        if b.settings.rotary_switch:
            last = b.map(
                "return first_at(0u) + i32($steps) - 1;", DType.INT32, (whole.shape[0],), ("batch",), (1,),
                {"first": (first, (1,))}, parameters={"steps": steps},
            )  # fmt: skip
            part = second_part(b, last)
    else:
        row, operands = per_step(b, positions, cosines)
        part = _part_of_last(b, positions)
    names = HEADS_FIRST if x.rank == 4 else STEPS_FIRST
    y = turned(b, whole, names, cosines, sines, row, operands, part, size=size, interleaved=bool(interleaved))
    return b.reshape(y, x.shape)


def _split(b: Builder, x: Operand, heads: Dim) -> Operand:
    """(batch, sequence, heads * size) as (batch, sequence, heads, size)."""
    return b.reshape(x, (*x.shape[:2], heads, floordiv(x.shape[2], heads)))


def second_part(b: Builder, last: Operand) -> Operand:
    """Per sequence, the row where its part of caches of two parts begins. `last` (batch) is the position of its last token, i32.

    Caches of two parts are those of models with factors for short and for long sequences (LongRoPE), one behind the other.
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


def per_step(b: Builder, positions: Operand, cosines: Operand) -> tuple[str, dict[str, Placed]]:
    """The row of the caches for a position (batch, step) of its own, and what it reads."""
    allowed = Allowed(0, cosines.shape[0] - 1, f"the rows of the cosines {cosines}")
    return "positions_at(batch, step)", {"positions": (index32(b, positions, allowed), (1, 1))}


def _part_of_last(b: Builder, positions: Operand) -> Operand | None:
    """As `second_part`, by positions (batch, step); None where caches are one."""
    if not b.settings.rotary_switch or positions.rank != 2:
        return None
    last = b.slice(narrowed(b, positions), 1, positions.shape[1] - 1, 1, 1)
    return second_part(b, b.reshape(last, (last.shape[0],)))


def turned(
    b: Builder,
    x: Operand,
    names: Sequence[str],
    cosines: Operand,
    sines: Operand,
    row: str,
    operands: Mapping[str, Placed],
    part: Operand | None = None,
    *,
    size: Dim,
    interleaved: bool,
    inline: bool = False,
) -> Operand:
    """x, whose axes are called `names`, with the first `size` elements of d turned: pairs are neighbours when `interleaved`,
    else as far apart as half of them.

    `row` is the row of the caches for (batch, step), an i32 expression that reads `operands`; without one the caches are
    (batch, step, half). `part` (batch) is where the part of the caches begins in which a sequence counts its rows.
    """
    rows = cosines.shape[0]
    groups = (1,) * cosines.rank
    placed: dict[str, Placed] = {"part": (part, (1,))} if part is not None else {}
    return b.map(
        map_body("rotary"),
        x.dtype,
        x.shape,
        names,
        (1, 1, 1, 1),
        {"x": (x, (1, 1, 1, 1)), "cosines": (cosines, groups), "sines": (sines, groups), **operands} | placed,
        parameters={"half": floordiv(size, 2), "rows": rows},
        cost=12,
        reuse=True,
        inline=inline,
        INTERLEAVED=interleaved,
        ROW=row,
        IN_PARTS=part is not None,
        MAY_BE_EMPTY=may_be(rows, 0),
        AXIS0=names[0],
        AXIS1=names[1],
        AXIS2=names[2],
    )
