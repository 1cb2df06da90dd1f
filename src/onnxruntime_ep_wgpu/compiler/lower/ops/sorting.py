"""Sorting of rows: returns positions in the order of the elements, for rows of any length, in O(n (log n)^2).

Equal elements are in the order of their positions, so results are the same in every run. TopK with many results uses the
beginning of the order. For scattered updates, those of one element are adjacent in it, in the order in which they are given.
"""

from __future__ import annotations

from ....program.dtypes import DType
from ...dims import Dim, ceildiv, less, less_equal, product
from ...ir import REPETITION, Function, Read, Variant
from ..builder import Builder, Operand

SHORT = 512  # elements of a row; up to here counting is faster than sorting, on lavapipe
_LONGEST = 1 << 31  # the largest element count in kernels
KEYS = {
    "f32": "ordered(x)",
    "i32": "u32(x) ^ 2147483648",
    "u32": "x",
    "i64": "u64(x) ^ 9223372036854775808",
    "u64": "x",
    "f64": "ordered(x)",
}
"""Unsigned keys in the order of elements, by their compute type: expressions over x."""


def comparison(kind: str, name: str, expression: str) -> dict[str, Function]:
    """Returns the functions that a template calls to compare two elements: `name`, an expression over x and y, and `same`."""
    return {
        name: Function((("x", kind), ("y", kind)), expression, "bool"),
        "same": Function((("x", kind), ("y", kind)), "x == y", "bool"),
    }


def sorted_places(b: Builder, keys: Operand, before: str, count: Dim, there: Operand | None = None) -> Operand:
    """Returns i32 of shape (..., count): the positions along the last axis of the keys that come first. `before` is an
    expression for whether key x comes before key y. Raises BindingsError.

    `there` (rows), i32: keys from this position on come last, in no order. Their positions in the result are undefined.
    """
    rows, columns, groups = product(keys.shape[:-1]), keys.shape[-1], (keys.rank - 1, 1)
    size = 1 << (min(256, b.target.max_invocations).bit_length() - 1)
    block = 2 * size
    dispatches, level = 1, 1  # type: Dim, int
    while (
        block << (level - 1) < _LONGEST
    ):  # a level passes over the row once per distance between blocks and once within them
        dispatches = dispatches + less(block << (level - 1), columns) * (level + 1)
        level += 1
    reads = {"x": Read(keys.view, groups, reuse=True)}
    results = {"y": (DType.INT32, (*keys.shape[:-1], count), groups)}
    parameters = {"rows": rows, "columns": columns, "k": count}
    functions = comparison(keys.dtype.compute or "", "before", before)
    is_short = less_equal(columns, SHORT)
    short = Variant(ceildiv(rows * columns, 64), 64, is_short, template="sort_short")
    if is_short == 1:
        return b.call("sort_short", reads, results, (short,), parameters=parameters, functions=functions)[0]
    long = Variant(rows * ceildiv(columns, block), size)
    if there is not None:
        reads["count"] = Read(there.view, (1,), reuse=True)
    place, _ = b.call(
        "sort",
        reads,
        results | {"place": (DType.INT32, keys.shape, groups)},
        (long,) if is_short == 0 else (short, long),
        parameters=parameters | {"repetition": REPETITION, "last": dispatches - 1},
        functions=functions,
        repeats=dispatches,
        loop_carried=frozenset({"place"}),
        BLOCK=block,
        COUNTED=there is not None,
    )
    return place
