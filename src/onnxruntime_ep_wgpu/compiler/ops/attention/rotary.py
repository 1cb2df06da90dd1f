"""RotaryEmbedding: pairs of elements of each head turned by an angle that grows with the position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....errors import UnsupportedError
from ...builder import Builder, Operand
from ...codegen.prelude import map_body
from ...dims import Dim, floordiv, may_be
from ..index import INDICES, Allowed, index32
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
    row, operands = _per_step(b, positions, cosines) if positions is not None else ("", dict[str, Placed]())
    y = turned(
        b,
        whole,
        HEADS_FIRST if x.rank == 4 else STEPS_FIRST,
        cosines,
        sines,
        row,
        operands,
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
    if positions.rank == 1:
        rows = cosines.shape[0]
        steps = whole.shape[2 if x.rank == 4 else 1]
        first = index32(b, positions, Allowed(0, rows - steps, f"the rows of the cosines {cosines}"))
        row = "positions_at(0u) + i32(step)"
        operands: dict[str, Placed] = {"positions": (first, (1,))}
    else:
        row, operands = _per_step(b, positions, cosines)
    names = HEADS_FIRST if x.rank == 4 else STEPS_FIRST
    y = turned(b, whole, names, cosines, sines, row, operands, size=size, interleaved=bool(interleaved))
    return b.reshape(y, x.shape)


def _split(b: Builder, x: Operand, heads: Dim) -> Operand:
    """(batch, sequence, heads * size) as (batch, sequence, heads, size)."""
    return b.reshape(x, (*x.shape[:2], heads, floordiv(x.shape[2], heads)))


def _per_step(b: Builder, positions: Operand, cosines: Operand) -> tuple[str, dict[str, Placed]]:
    allowed = Allowed(0, cosines.shape[0] - 1, f"the rows of the cosines {cosines}")
    return "positions_at(batch, step)", {"positions": (index32(b, positions, allowed), (1, 1))}


def turned(
    b: Builder,
    x: Operand,
    names: Sequence[str],
    cosines: Operand,
    sines: Operand,
    row: str,
    operands: Mapping[str, Placed],
    *,
    size: Dim,
    interleaved: bool,
    inline: bool = False,
) -> Operand:
    """x, whose axes are called `names`, with the first `size` elements of d turned: pairs are neighbours when `interleaved`,
    else as far apart as half of them.

    `row` is the row of the caches for (batch, step), an i32 expression that reads `operands`; without one the caches are
    (batch, step, half).
    """
    rows = cosines.shape[0]
    groups = (1,) * cosines.rank
    return b.map(
        map_body("rotary"),
        x.dtype,
        x.shape,
        names,
        (1, 1, 1, 1),
        {"x": (x, (1, 1, 1, 1)), "cosines": (cosines, groups), "sines": (sines, groups), **operands},
        parameters={"half": floordiv(size, 2), "rows": rows},
        cost=12,
        reuse=True,
        inline=inline,
        INTERLEAVED=interleaved,
        ROW=row,
        MAY_BE_EMPTY=may_be(rows, 0),
        AXIS0=names[0],
        AXIS1=names[1],
        AXIS2=names[2],
    )
