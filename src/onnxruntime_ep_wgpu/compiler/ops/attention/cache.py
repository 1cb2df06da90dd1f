"""Key and value caches: (batch, heads, rows, size), of which as many rows are used as the sequence has tokens so far.

In: the cache of the past, new rows, and on the device how many rows of the past are used. Out: the cache with the new rows
behind these. Where past and present have one shape the present is an update in place (`passes/alias.py`), so a token costs
the rows that it stores, however long the cache is; a cache that grows is copied.
"""

from __future__ import annotations

from ....errors import UnsupportedError
from ....program.target import elements_per_word
from ...builder import Builder, Operand
from ...dims import Dim, ceildiv, equal, product, quotient
from ...ir import Read, Variant
from ..window import body

_WORKGROUP = 64


def extended(b: Builder, past: Operand, new: Operand) -> Operand:
    """The rows of `past`, and behind them `new` (batch, heads, steps, size)."""
    batch, heads, steps, size = new.shape
    _require_fit(b, past, new)
    return b.join([past, new], 2, (batch, heads, past.shape[2] + steps, size))


def started(b: Builder, new: Operand, rows: Dim) -> Operand:
    """A cache of `rows` rows that begins with `new` (batch, heads, steps, size); zeros behind it."""
    batch, heads, steps, size = new.shape
    if steps == rows:
        return new
    return b.map(
        body(["if (at >= $steps) { return $out_t(); }", "return x_at(batch, head, at, d);"]),
        new.dtype,
        (batch, heads, rows, size),
        ("batch", "head", "at", "d"),
        (1, 1, 1, 1),
        {"x": (new, (1, 1, 1, 1))},
        parameters={"steps": steps},
    )


def appended(b: Builder, past: Operand, new: Operand, used: Operand, rows: Dim) -> Operand:
    """A cache of `rows` rows: those of `past`, with `new` (batch, heads, steps, size) from row `used` (batch), i32, on.

    What comes after them is as it was, or zero. Steps that have no place are left out.
    """
    batch, heads, steps, size = new.shape
    if past.dtype is not new.dtype:
        raise UnsupportedError(f"a cache of {past.dtype.label} for keys and values of {new.dtype.label}")
    if elements_per_word(new.dtype, b.target) > 1 and quotient(size, 4) is None:
        raise UnsupportedError(
            f"rows of {size} elements of {new.dtype.label} share words, which are updated as a whole"
        )
    shape = (batch, heads, rows, size)
    _require_fit(b, past, new)
    fours = ceildiv(size, 4)
    groups = (1, 1, 1, 1)
    (present,) = b.call(
        "cache_append",
        {"x": Read(new.view, groups, vector=True), "past": Read(used.view, (1,))},
        {"y": (new.dtype, shape, groups)},
        _copies(product((batch, heads, steps)) * fours),
        parameters={
            "fours": product((batch, heads, steps)) * fours,
            "size4": fours,
            "steps": steps,
            "heads": heads,
            "total": rows,
        },
        vectors=True,
        onto={"y": _begun(b, past, rows)},
    )
    return present


def _require_fit(b: Builder, past: Operand, new: Operand) -> None:
    for axis in (0, 1, 3):
        b.require(equal(past.shape[axis], new.shape[axis]), "a cache {} cannot take rows {}", past, new)


def _begun(b: Builder, past: Operand, rows: Dim) -> Operand:
    batch, heads, used, size = past.shape
    fours = ceildiv(size, 4)
    (begun,) = b.call(
        "cache_begin",
        {"x": Read(past.view, (2, 1, 1), vector=True)},
        {"y": (past.dtype, (batch, heads, rows, size), (2, 1, 1))},
        _copies(product((batch, heads, rows)) * fours),
        parameters={"fours": product((batch, heads, rows)) * fours, "size4": fours, "total": rows, "past": used},
        vectors=True,
    )
    return begun


def _copies(fours: Dim) -> tuple[Variant, ...]:
    return (Variant(ceildiv(fours, _WORKGROUP), _WORKGROUP),)
