"""Key and value caches: (batch, heads, rows, size), with one used row per token of the sequence so far.

In: the past cache, new rows, and on the device the number of used rows of the past. Out: the cache with the new rows
appended. If past and present have the same shape, the present is updated in place (`passes/alias.py`). A token then costs
only the rows that it stores, for any cache length. A cache that grows is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .....errors import UnsupportedError
from .....program.dtypes import DType
from .....program.target import elements_per_word
from ....dims import Dim, ceildiv, equal, product, quotient
from ....ir import Read, Shape, Variant
from ...builder import Builder, Operand

_WORKGROUP = 64
_ASSUMED_SIZE = 64
"""The assumed size of a head, if nothing determines it."""


def extended(b: Builder, past: Operand, new: Operand) -> Operand:
    """Returns the rows of `past`, followed by `new` (batch, heads, steps, size)."""
    batch, heads, steps, size = new.shape
    for axis in (0, 1, 3):
        b.require(equal(past.shape[axis], new.shape[axis]), "a cache {} cannot store rows {}", past, new)
    return b.join([past, new], 2, (batch, heads, past.shape[2] + steps, size))


def started(b: Builder, new: Operand, rows: Dim) -> Operand:
    """Returns a cache of `rows` rows that begins with `new` (batch, heads, steps, size), followed by zeros."""
    batch, heads, steps, size = new.shape
    if steps == rows:
        return new
    zero = b.constant(np.zeros(1, new.dtype.numpy))
    return b.pad(new, zero, (0, 0, 0, 0), (batch, heads, rows, size))


def appended(b: Builder, past: Operand, new: Operand, used: Operand, rows: Dim) -> Operand:
    """Returns a cache of `rows` rows: those of `past`, with `new` (batch, heads, steps, size) stored from row `used` (batch),
    i32, on.

    Rows after the new ones are unchanged, or zero. Steps beyond the last row are dropped. If keys and values are in one
    tensor, all operands have one more leading axis.
    """
    (present,) = _stored(b, [(new, past)], used, rows)
    return present


def appended_with_query(
    b: Builder, query: Operand, keys: tuple[Operand, Operand], values: tuple[Operand, Operand], used: Operand, rows: Dim
) -> list[Operand]:
    """Stores queries (batch, heads, steps, size), and returns them with the caches of keys and values, as from `appended`.
    `keys` and `values` are pairs of new and past. All are in one kernel, because for one token each is little work."""
    return _stored(b, [(query, None), keys, values], used, rows)


def _stored(b: Builder, parts: Sequence[tuple[Operand, Operand | None]], used: Operand, rows: Dim) -> list[Operand]:
    """Stores each part, after its past if it has one."""
    operands = {"past": Read(used.view, (used.rank,))}
    results: dict[str, tuple[DType, Shape, tuple[int, ...]]] = {}
    parameters: dict[str, Dim] = {"steps": parts[0][0].shape[-2]}
    constants: dict[str, Any] = {}
    onto: dict[str, Operand] = {}
    total: Dim = 0
    for k, (new, known) in enumerate(parts):
        x, past = _in_whole_words(b, new, known)
        *batch, heads, steps, size = x.shape
        groups = (len(batch), 1, 1, 1)
        shape: Shape = (*batch, heads, steps if past is None else rows, size)
        if past is not None:
            if past.dtype is not x.dtype:
                raise UnsupportedError(
                    f"a cache of {past.dtype.label} for keys and values of {x.dtype.label} is not supported"
                )
            for axis in (*range(x.rank - 2), x.rank - 1):
                b.require(equal(past.shape[axis], shape[axis]), "a cache {} cannot store rows {}", past, x)
            onto[f"y{k}"] = _beginning_with(b, past, shape)
        fours = product((*batch, heads, steps)) * ceildiv(size, 4)
        total = total + fours
        operands[f"new{k}"] = Read(x.view, groups, vector=True)
        results[f"y{k}"] = (x.dtype, shape, groups)
        constants[f"CACHE{k}"] = past is not None
        parameters |= {f"fours{k}": fours, f"size4_{k}": ceildiv(size, 4), f"heads{k}": heads, f"rows{k}": shape[-2]}
    return b.call(
        "cache_append",
        operands,
        results,
        _copy_variants(total),
        parameters=parameters,
        vectors=True,
        onto=onto,
        PARTS=len(parts),
        **constants,
    )


def stored_in_pages(b: Builder, parts: Sequence[tuple[Operand, Operand]], slots: Operand) -> list[Operand]:
    """Stores rows (tokens, heads, size) of each part into its cache (pages, rows of a page, heads, size), and returns the
    caches. A token's row has the index `slots` (tokens), i32, over the rows of all pages. A token with a negative slot, or
    one beyond the last row, is not stored."""
    operands = {"slot": Read(slots.view, (1,))}
    results: dict[str, tuple[DType, Shape, tuple[int, ...]]] = {}
    parameters: dict[str, Dim] = {}
    onto: dict[str, Operand] = {}
    total: Dim = 0
    for k, (new, known) in enumerate(parts):
        x, past = _in_whole_words(b, new, known)
        assert past is not None
        tokens, heads, size = x.shape
        if past.dtype is not x.dtype:
            raise UnsupportedError(
                f"a cache of {past.dtype.label} for keys and values of {x.dtype.label} is not supported"
            )
        for have, want in zip(past.shape[2:], (heads, size), strict=True):
            b.require(equal(have, want), "a cache {} cannot store rows {}", past, x)
        onto[f"y{k}"] = _beginning_with(b, past, past.shape)
        fours = product((tokens, heads)) * ceildiv(size, 4)
        total = total + fours
        operands[f"new{k}"] = Read(x.view, (1, 1, 1), vector=True)
        results[f"y{k}"] = (x.dtype, past.shape, (2, 1, 1))
        parameters |= {f"fours{k}": fours, f"size4_{k}": ceildiv(size, 4), f"heads{k}": heads}
        parameters[f"slots{k}"] = product(past.shape[:2])
    return b.call(
        "cache_pages",
        operands,
        results,
        _copy_variants(total),
        parameters=parameters,
        vectors=True,
        onto=onto,
        PARTS=len(parts),
    )


def _in_whole_words(b: Builder, new: Operand, past: Operand | None) -> tuple[Operand, Operand | None]:
    """Returns both with rows of whole words, the unit that kernels store. A free size is assumed to be that of the past, or
    else a usual one."""
    size = new.shape[-1]
    if elements_per_word(new.dtype, b.target) == 1 or quotient(size, 4) is not None:
        return new, past
    what, usual = "the size of a row of a cache", size if past is None else past.shape[-1]
    size = b.assume(size, usual if isinstance(usual, int) else _ASSUMED_SIZE, what)
    if size % 4:
        raise UnsupportedError(
            f"rows of {size} elements of {new.dtype.label} share words, and kernels store whole words"
        )
    if past is not None:
        past = b.assumed(past, (*past.shape[:-1], b.assume(past.shape[-1], size, what)))
    return b.assumed(new, (*new.shape[:-1], size)), past


def _beginning_with(b: Builder, past: Operand, shape: Shape) -> Operand:
    """Returns a cache of this shape that begins with the past."""
    *batch, heads, rows, size = shape
    groups, fours = (len(batch) + 1, 1, 1), ceildiv(size, 4)
    all_fours = product((*batch, heads, rows)) * fours
    (begun,) = b.call(
        "cache_begin",
        {"x": Read(past.view, groups, vector=True)},
        {"y": (past.dtype, shape, groups)},
        _copy_variants(all_fours),
        parameters={"fours": all_fours, "size4": fours, "total": rows, "past": past.shape[-2]},
        vectors=True,
    )
    return begun


def _copy_variants(fours: Dim) -> tuple[Variant, ...]:
    return (Variant(ceildiv(fours, _WORKGROUP), _WORKGROUP),)
