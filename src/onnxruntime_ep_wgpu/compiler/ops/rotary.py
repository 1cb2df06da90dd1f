"""RotaryEmbedding: pairs of elements of each head turned by an angle that grows with the position."""

from __future__ import annotations

from ...errors import UnsupportedError
from ..builder import Builder, Operand
from ..dims import floordiv
from .index import INDICES, Allowed, index32, picked
from .registry import FLOATS, op
from .window import body


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
    heads_first = x.rank == 4
    if not heads_first and not num_heads:
        raise UnsupportedError("num_heads is needed for an input of three axes")
    whole = x if heads_first else b.reshape(x, (*x.shape[:2], num_heads, floordiv(x.shape[2], num_heads)))
    turned = rotary_embedding_dim or whole.shape[3]
    names = ("batch", "head", "step", "d") if heads_first else ("batch", "step", "head", "d")
    at = ", ".join(names[:3])
    if interleaved:
        pair = ["let k = d / 2u;", "let second = (d & 1u) == 1u;", "let other = d ^ 1u;"]
    else:
        pair = [
            "let second = d >= $half;",
            "let k = select(d, d - $half, second);",
            "let other = select(d + $half, k, second);",
        ]
    row = "batch, step" if positions is None else "row"
    rows = cosines.shape[0]
    lines = [
        *([] if positions is None else [picked("positions_at(batch, step)", "row", rows)]),
        f"let v = x_at({at}, d);",
        "if (d >= 2u * $half) { return v; }",
        *pair,
        f"let c = cosines_at({row}, k);",
        f"let s = sines_at({row}, k);",
        f"let u = x_at({at}, other);",
        "return select(c * v - s * u, s * u + c * v, second);",
    ]
    groups = (1,) * cosines.rank
    operands = {"x": (whole, (1, 1, 1, 1)), "cosines": (cosines, groups), "sines": (sines, groups)}
    if positions is not None:
        operands["positions"] = (
            index32(b, positions, Allowed(0, rows - 1, f"the rows of the cosines {cosines}")),
            (1, 1),
        )
    y = b.map(
        body(lines),
        x.dtype,
        whole.shape,
        names,
        (1, 1, 1, 1),
        operands,
        parameters={"half": floordiv(turned, 2), "extent_row": rows},
        cost=12,
        reuse=True,
    )
    return b.reshape(y, x.shape)
