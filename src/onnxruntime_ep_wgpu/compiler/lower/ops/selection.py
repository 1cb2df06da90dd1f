"""Operators that compare the elements of a row: ArgMax, ArgMin, Hardmax, TopK. Of equal elements the first one counts."""

from __future__ import annotations

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ....program.target import elements_per_word
from ...dims import Dim, ceildiv, equal, less_equal, maximum, product
from ...ir import Function, Read, Variant
from ...nodes.divide import BindingsError
from ...tune import row_variants
from ..builder import Builder, Operand
from .choices import Flag
from .chunked_rows import FEWEST_CHUNKS, by_rows, chunks_of, cut, in_blocks
from .indexing import gather_along
from .named_axes import axis_of
from .reduction import reduce_axes
from .registry import FLOATS, INTEGERS, NUMBERS, at_least, op
from .sorting import KEYS, comparison, sorted_places


def _best(b: Builder, x: Operand, axes: int, expression: str, last: bool) -> Operand:
    """Returns the i32 positions of the best elements of x over its last `axes` axes."""
    kept = x.rank - axes
    found = by_rows(b, x, kept, lambda rows: _best_of_rows(b, rows, kept, expression, last))
    return found[0] if found is not None else _best_of_chunks(b, x, kept, expression, last)


def _best_of_rows(b: Builder, x: Operand, kept: int, expression: str, last: bool) -> list[Operand]:
    rows, columns, axes = product(x.shape[:kept]), product(x.shape[kept:]), x.rank - kept
    kind = x.dtype.compute or ""
    return b.call(
        "argmax",
        {"x": Read(x.view, (kept, axes))},
        {"y": (DType.INT32, x.shape[:kept], (kept,))},
        row_variants(rows, columns, b.target),
        parameters={"rows": rows, "columns": columns},
        functions=comparison(kind, "better", expression),
        LAST=last,
        TOGETHER={"x > y": "max", "x < y": "min"}[expression] if kind == "f32" else "",
    )


def _best_of_chunks(b: Builder, x: Operand, kept: int, expression: str, last: bool) -> Operand:
    """The same for rows that exceed the loop limit of an invocation: the best of the best elements of chunks.

    Each chunk is extended at the front with the first element of the row: a NaN there always wins, and a NaN elsewhere never
    does.
    """
    columns = product(x.shape[kept:])
    assert isinstance(columns, int)
    chunks = chunks_of(b, columns, 1)
    dims = {"length": -(-columns // chunks), "columns": columns}
    shape, rows = (*x.shape[:kept], chunks), (kept, 1)
    source = (x, (kept, x.rank - kept))
    names = ("row", "part", "k")
    begun = b.map(
        "let i = part * $length + k - 1u; return x_at(row, select(min(i, $columns - 1u), 0u, k == 0u));",
        x.dtype,
        (*shape, dims["length"] + 1),
        names,
        (*rows, 1),
        {"x": source},
        parameters=dims,
        inline=True,
    )
    found = _best(b, begun, 1, expression, last)
    place = b.map(
        "let k = place_at(row, part); if (k == 0i) { return 0i; }"
        " return min(i32(part * $length) + max(k - 1i, 0i), i32($columns) - 1i);",
        DType.INT32,
        shape,
        names[:2],
        rows,
        {"place": (found, rows)},
        parameters=dims,
    )
    picked = "return x_at(row, u32(place_at(row, part)));"
    values = b.map(picked, x.dtype, shape, names[:2], rows, {"x": source, "place": (place, rows)})
    which = _best(b, values, 1, expression, False)
    if not last:
        picked = "return place_at(row, u32(which_at(row)));"
        return b.map(
            picked, DType.INT32, shape[:-1], ("row",), (kept,), {"place": (place, rows), "which": (which, (kept,))}
        )
    # A chunk that does not contain the best value may have found the first element of the row.
    picked = "return values_at(row, u32(which_at(row)));"
    best = b.map(picked, x.dtype, shape[:-1], ("row",), (kept,), {"values": (values, rows), "which": (which, (kept,))})
    operands = {"x": values, "best": b.reshape(best, (*shape[:-1], 1)), "place": place}
    equals = b.pointwise("where(x == best, place, 0)", operands, DType.INT32, shape, cost=2)
    return reduce_axes(b, "ReduceMax", equals, [kept], False)


def _declare(name: str, expression: str) -> None:
    @op(name, types=NUMBERS, ranks={"x": at_least(1)})
    def lower(b: Builder, x: Operand, *, axis: int = 0, keepdims: Flag = 1, select_last_index: Flag = 0) -> Operand:
        axis = axis_of(axis, x.rank)
        others = [k for k in range(x.rank) if k != axis]
        found = maximum(less_equal(1, x.shape[axis]), equal(product(x.shape[k] for k in others), 0))
        b.require(found, f"{name} along an axis without elements")
        place = _best(b, b.permute(x, [*others, axis]), 1, expression, bool(select_last_index))
        shape = (
            [x.shape[k] if k != axis else 1 for k in range(x.rank)] if keepdims == 1 else [x.shape[k] for k in others]
        )
        return b.reshape(b.cast(place, DType.INT64), shape)


_declare("ArgMax", "x > y")
_declare("ArgMin", "x < y")


def best_of_rows(b: Builder, x: Operand) -> Operand:
    """Returns the position of the first largest element of each row of a matrix, i32 (rows). In a row that begins with NaN,
    it is the position of a NaN."""
    return b.reshape(_best(b, x, 1, "x > y", False), (x.shape[0],))


def _hardmax(b: Builder, x: Operand, axes: int) -> Operand:
    """Returns 1 at the first largest element over the last `axes` axes of x, where ArgMax finds it, else 0. A row that begins
    with NaN is all 0."""
    kept = x.rank - axes
    place = _best(b, x, axes, "x > y", False)
    return b.map(
        "return select(0f, 1f, at == u32(place_at(row)) && !isnan_f32(x_at(row, at)));",
        x.dtype,
        x.shape,
        ("row", "at"),
        (kept, axes),
        {"place": (place, (kept,)), "x": (x, (kept, axes))},
        reuse=True,
    )


@op("Hardmax", types=FLOATS)
def hardmax_flattened(b: Builder, x: Operand, *, axis: int = 1) -> Operand:
    """Before version 13, all axes from `axis` on were one row."""
    return _hardmax(b, x, x.rank - axis_of(axis, x.rank))


@op("Hardmax", since=13, types=FLOATS)
def hardmax(b: Builder, x: Operand, *, axis: int = -1) -> Operand:
    axis = axis_of(axis, x.rank)
    order = [*(k for k in range(x.rank) if k != axis), axis]
    return b.permute(_hardmax(b, b.permute(x, order), 1), np.argsort(order).tolist())


# The largest k such that the selected elements, at most 12 bytes each, fit into 16 KB of workgroup memory beside the counts.
MOST_SELECTED = 1024
SHORT_ROW = 1 << 18
FEW_ROWS = 64  # up to this many rows get as many invocations each as possible, on a GPU


@op("TopK", types=NUMBERS, k_input=INTEGERS)
def top_k(
    b: Builder,
    x: Operand,
    k_input: Operand | None = None,
    *,
    axis: int = -1,
    k: int = -1,
    largest: Flag = 1,
    sorted: Flag = 1,
) -> list[Operand]:
    """Returns values and positions of the k largest (or smallest) elements along an axis, best first; NaN counts as the
    largest.

    Elements become unsigned keys of the same order. For few results, elements of long rows are selected digit by digit, in
    time proportional to the length; for many results the row is sorted. In short rows each element counts the elements before
    it.
    """
    axis = axis_of(axis, x.rank)
    order = [*(a for a in range(x.rank) if a != axis), axis]
    if k_input is not None:
        counts = k_input.dims("the number of results k")
        if len(counts) != 1:
            raise UnsupportedError(f"the number of results k is {k_input} and not one number")
        (count,) = counts
    else:
        count = k
    if isinstance(count, int) and count < 0:
        raise UnsupportedError(f"k={count} is negative")
    b.require(less_equal(count, x.shape[axis]), "TopK cannot select {} of {} elements", count, x.shape[axis])
    key = KEYS[x.dtype.compute or ""]
    key = key if largest else f"~({key})"
    back = np.argsort(order).tolist()
    if axis == x.rank - 1 and x.dtype.bits < 64:
        place, *values = _selected(b, x, count, key)
    else:  # keys are contiguous then, and 64-bit ones are computed once
        place, *values = _selected(b, _keys(b, b.permute(x, order), key), count)[:1]
    place = b.permute(place, back)
    value = values[0] if values else gather_along(b, x, place, axis)
    return [value, b.cast(place, DType.INT64)]


def _keys(b: Builder, x: Operand, key: str) -> Operand:
    """Returns unsigned integers in the order of x."""
    return b.pointwise(key, {"x": x}, DType.UINT64 if x.dtype.bits == 64 else DType.UINT32, cost=6)


def _selected(b: Builder, x: Operand, count: Dim, key: str = "x") -> list[Operand]:
    """Returns the i32 positions of the `count` elements with the largest keys along the last axis. Their values follow, if
    the kernel stores these too. `key` is an expression over an element x, of an unsigned type."""
    mark = b.mark()
    try:
        return _selected_of_rows(b, x, count, key)
    except BindingsError:
        b.undo(mark)
        axis = next((k for k in range(x.rank - 1) if isinstance(x.shape[k], int) and x.shape[k] != 1), None)
        if axis is not None:
            rows = lambda start, n: _selected_of_rows(b, b.slice(x, axis, start, 1, n), count, key)  # noqa: E731
            return in_blocks(b, x.shape[axis], rows, axis)
        columns = x.shape[-1]
        if (
            not isinstance(columns, int)
            or not isinstance(count, int)
            or not 0 < count <= columns // (4 * FEWEST_CHUNKS)
        ):
            raise
        return [_places_in_chunks(b, _keys(b, x, key), count, FEWEST_CHUNKS)]


def _selected_of_rows(b: Builder, x: Operand, count: Dim, key: str) -> list[Operand]:
    """The same by one kernel. Raises BindingsError."""
    groups = (x.rank - 1, 1)
    rows, columns = product(x.shape[:-1]), x.shape[-1]
    size, longest = min(256, b.target.max_invocations), b.target.longest_loop
    if longest is not None and not (isinstance(columns, int) and columns <= SHORT_ROW):
        size = b.target.max_invocations  # fewer iterations per invocation
    if not (isinstance(count, int) and 0 < count <= MOST_SELECTED) or (isinstance(columns, int) and columns <= size):
        return [sorted_places(b, _keys(b, x, key), "x > y", count)]
    digits = x.dtype.bits // 8 if x.dtype.bits == 64 else 4
    kind = "u64" if digits == 8 else "u32"
    functions = comparison(kind, "larger", "x > y") | {
        "key_of": Function((("x", x.dtype.compute or ""),), key, kind),
        "nothing": Function((), "0", kind),
        "begins_alike": Function(
            (("x", kind), ("y", kind), ("s", "u32")), f"shr(x, {kind}(s)) == shr(y, {kind}(s))", "bool"
        ),
        "digit": Function((("x", kind), ("s", "u32")), f"u32(shr(x, {kind}(s))) & 255", "u32"),
        "extended": Function((("x", kind), ("d", "u32"), ("s", "u32")), f"x | shl({kind}(d), {kind}(s))", kind),
    }
    # Iterations per chunk of the row: one for the bound, one per digit of keys and positions, one to collect.
    per_chunk, once = digits + 6, -(-count // size) * count + 64 * (2 * digits + 4)
    most = None if longest is None else max(0, longest - once) // per_chunk * size
    if most is not None and isinstance(columns, int) and columns > most > count:
        return [_places_in_chunks(b, _keys(b, x, key), count, -(-columns // most))]
    b.bound_loop(ceildiv(columns, size) * per_chunk + once, "selecting from a row of {} elements", columns)
    shape = (*x.shape[:-1], count)
    results = {"y": (DType.INT32, shape, groups)}
    if with_values := elements_per_word(x.dtype, b.target) == 1:
        results["value"] = (x.dtype, shape, groups)
    # Few rows do not fill a GPU: each gets more invocations.
    sizes = [(less_equal(rows, FEW_ROWS), b.target.max_invocations)] if longest is None else []
    variants = [
        # Sizes of workgroup memory are constants of the kernel.
        Variant(rows, lanes, guard, (("DIGITS", digits), ("K", count), ("BOUNDED", count <= lanes)))
        for guard, lanes in (*sizes, (1, size))
        if guard != 0
    ]
    return b.call(
        "top_select",
        {"x": Read(x.view, groups, reuse=True)},
        results,
        variants[: 1 if variants[0].guard == 1 else None],
        parameters={"columns": columns},
        functions=functions,
        VALUES=with_values,
    )


def _places_in_chunks(b: Builder, keys: Operand, count: int, chunks: int) -> Operand:
    """Returns positions of the `count` largest keys: selects in each chunk, then among the results.

    Each chunk has at least `count` keys. No key is less than the padding of the last chunk, and the padding is last among
    equal keys.
    """
    kept = keys.rank - 1
    cut_keys = b.copy(cut(b, keys, kept, "0", chunks))
    inside, *values = _selected(b, cut_keys, count)
    best = values[0] if values else gather_along(b, cut_keys, inside, kept + 1)
    lines = "return i32(part * $length) + place_at(row, part, k);"
    place = b.map(
        lines,
        DType.INT32,
        inside.shape,
        ("row", "part", "k"),
        (kept, 1, 1),
        {"place": (inside, (kept, 1, 1))},
        parameters={"length": cut_keys.shape[-1]},
    )
    rows = (*keys.shape[:-1], chunks * count)
    which = _selected(b, b.reshape(best, rows), count)[0]
    return gather_along(b, b.reshape(place, rows), which, kept)
