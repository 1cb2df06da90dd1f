"""Operators that compare the elements of a row: ArgMax, ArgMin, Hardmax, TopK. Of equal elements the first one counts."""

from __future__ import annotations

import numpy as np

from ...errors import UnsupportedError
from ...program.dtypes import DType
from ..builder import Builder, Operand
from ..dims import Dim, ceildiv, equal, less_equal, maximum, product
from ..lowered import Function, Read, Variant
from ..tune import row_variants
from .indexing import gather_along
from .registry import FLOATS, INTEGERS, NUMBERS, op
from .shape import axis_of


def _comparison(kind: str, name: str, expression: str) -> dict[str, Function]:
    return {
        name: Function((("x", kind), ("y", kind)), expression, "bool"),
        "same": Function((("x", kind), ("y", kind)), "x == y", "bool"),
    }


def _best(b: Builder, x: Operand, axes: int, expression: str, last: bool) -> Operand:
    """The i32 positions of the best elements of x over its last `axes` axes."""
    kept = x.rank - axes
    rows, columns = product(x.shape[:kept]), product(x.shape[kept:])
    b.bound_rows(columns)
    (y,) = b.call(
        "argmax",
        {"x": Read(x.view, (kept, axes))},
        {"y": (DType.INT32, x.shape[:kept], (kept,))},
        row_variants(rows, columns, b.target),
        parameters={"rows": rows, "columns": columns},
        functions=_comparison(x.dtype.compute or "", "better", expression),
        LAST=last,
    )
    return y


def _declare(name: str, expression: str) -> None:
    @op(name, types=NUMBERS)
    def lower(b: Builder, x: Operand, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Operand:
        axis = axis_of(axis, x.rank)
        others = [k for k in range(x.rank) if k != axis]
        found = maximum(less_equal(1, x.shape[axis]), equal(product(x.shape[k] for k in others), 0))
        b.require(found, f"{name} along an axis without elements")
        place = _best(b, b.permute(x, [*others, axis]), 1, expression, bool(select_last_index))
        shape = (
            [x.shape[k] if k != axis else 1 for k in range(x.rank)] if keepdims == 1 else [x.shape[k] for k in others]
        )
        return b.reshape(b.pointwise("i64(x)", {"x": place}, DType.INT64), shape)


_declare("ArgMax", "x > y")
_declare("ArgMin", "x < y")


def _hardmax(b: Builder, x: Operand, axes: int) -> Operand:
    """1 at the first of the largest elements over the last `axes` axes of x, else 0; nowhere in a row with NaN."""
    kept = x.rank - axes
    place = _best(b, x, axes, "x > y or (isnan(x) and not isnan(y))", False)
    return b.map(
        "  return select(0f, 1f, at == u32(place_at(row)) && !isnan_f32(x_at(row, at)));",
        x.dtype,
        x.shape,
        ("row", "at"),
        (kept, axes),
        {"place": (place, (kept,)), "x": (x, (kept, axes))},
        reuse=True,
    )


@op("Hardmax", types=FLOATS)
def hardmax_flattened(b: Builder, x: Operand, *, axis: int = 1) -> Operand:
    """Before version 13 all axes from `axis` on were one row."""
    return _hardmax(b, x, x.rank - axis_of(axis, x.rank))


@op("Hardmax", since=13, types=FLOATS)
def hardmax(b: Builder, x: Operand, *, axis: int = -1) -> Operand:
    axis = axis_of(axis, x.rank)
    order = [*(k for k in range(x.rank) if k != axis), axis]
    return b.permute(_hardmax(b, b.permute(x, order), 1), np.argsort(order).tolist())


# The largest k for which a workgroup holds the chosen elements, at most 12 bytes each, in 16 KB beside its counts.
MOST_SELECTED = 1024
SHORT_ROW = 1 << 18
_KEYS = {
    "f32": "ordered(x)",
    "i32": "u32(x) ^ 2147483648",
    "u32": "x",
    "i64": "u64(x) ^ 9223372036854775808",
    "u64": "x",
}


@op("TopK", types=NUMBERS, k_input=INTEGERS)
def top_k(
    b: Builder,
    x: Operand,
    k_input: Operand | None = None,
    *,
    axis: int = -1,
    k: int = -1,
    largest: int = 1,
    sorted: int = 1,
) -> list[Operand]:
    """Values and positions of the k largest (or smallest) elements along an axis, best first; NaN counts as the largest.

    Elements become unsigned keys of the same order. Long rows are selected from digit by digit, in time proportional to
    their length; in short ones, or for many results, each element counts those before it.
    """
    axis = axis_of(axis, x.rank)
    order = [*(a for a in range(x.rank) if a != axis), axis]
    if k_input is not None:
        (count,) = k_input.dims("the number of results k")
    else:
        count = k
    if isinstance(count, int) and count < 0:
        raise UnsupportedError(f"k={count} is negative")
    b.require(less_equal(count, x.shape[axis]), "TopK wants {} of {} elements", count, x.shape[axis])
    wide = DType.UINT64 if x.dtype in (DType.INT64, DType.UINT64) else DType.UINT32
    key = _KEYS[x.dtype.compute or ""]
    keys = b.pointwise(key if largest else f"~({key})", {"x": b.permute(x, order)}, wide, cost=6)
    place = _places(b, keys, count)
    back = np.argsort(order).tolist()
    index = b.permute(b.pointwise("i64(x)", {"x": place}, DType.INT64), back)
    return [gather_along(b, x, b.permute(place, back), axis), index]


def _places(b: Builder, keys: Operand, count: Dim) -> Operand:
    """The i32 positions of the `count` largest unsigned keys along the last axis."""
    kind = keys.dtype.compute or ""
    groups = (keys.rank - 1, 1)
    rows, columns = product(keys.shape[:-1]), keys.shape[-1]
    functions = _comparison(kind, "larger", "x > y")
    parameters = {"rows": rows, "columns": columns, "k": count}
    size = min(256, b.target.max_invocations)
    if b.target.software and not (isinstance(columns, int) and columns <= SHORT_ROW):
        size = b.target.max_invocations  # fewer iterations of each
    if isinstance(count, int) and 0 < count <= MOST_SELECTED and not (isinstance(columns, int) and columns <= size):
        functions |= {
            "nothing": Function((), "0", kind),
            "begins_alike": Function(
                (("x", kind), ("y", kind), ("s", "u32")), f"shr(x, {kind}(s)) == shr(y, {kind}(s))", "bool"
            ),
            "digit": Function((("x", kind), ("s", "u32")), f"u32(shr(x, {kind}(s))) & 255", "u32"),
            "extended": Function((("x", kind), ("d", "u32"), ("s", "u32")), f"x | shl({kind}(d), {kind}(s))", kind),
        }
        # Sizes of workgroup memory are constants of the kernel.
        constants = (("DIGITS", keys.dtype.bits // 8), ("K", count))
        digits = keys.dtype.bits // 8
        # Of a chunk of the row: one per digit to count, one to pick and the steps of its scan.
        steps = ceildiv(columns, size) * (digits + 1 + size.bit_length()) + ceildiv(count, size) * count + 512 * digits
        b.bound_loop(steps, "selecting from a row of {} elements", columns)
        template, variant = "top_select", Variant(rows, size, 1, constants)
    else:
        b.bound_loop(columns, "ranking a row of {} elements", columns)
        template, variant = "top_rank", Variant(ceildiv(rows * columns, 64), 64)
    (place,) = b.call(
        template,
        {"x": Read(keys.view, groups, reuse=True)},
        {"y": (DType.INT32, (*keys.shape[:-1], count), groups)},
        (variant,),
        parameters=parameters,
        functions=functions,
    )
    return place
