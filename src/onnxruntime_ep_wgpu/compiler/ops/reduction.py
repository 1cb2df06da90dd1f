"""Reductions over any axes: the kept axes count rows, the reduced ones columns, whatever their order in memory."""

from __future__ import annotations

from ...errors import UnsupportedError
from ...program.dtypes import DType
from ..builder import Builder, Operand
from ..dims import Dim, may_be, product
from ..ir import Function, Read, View, coalesce
from ..tune import across_variants, column_splits, row_variants
from .registry import BOOLS, FLOATS, INTEGERS, NUMBERS, op
from .rows import by_rows, cut
from .shape import axes_of, axis_of

# name: (identity, per element, combine, finish); `lowest` and `highest` are the limits of the element type
_REDUCTIONS = {
    "ReduceSum": ("0", "x", "x + y", "x"),
    "ReduceMean": ("0", "x", "x + y", "x / n"),
    "ReduceProd": ("1", "x", "x * y", "x"),
    "ReduceMax": ("lowest", "x", "max(x, y)", "x"),
    "ReduceMin": ("highest", "x", "min(x, y)", "x"),
    "ReduceL1": ("0", "abs(x)", "x + y", "x"),
    "ReduceL2": ("0", "x * x", "x + y", "sqrt(x)"),
    "ReduceSumSquare": ("0", "x * x", "x + y", "x"),
    "ReduceLogSum": ("0", "x", "x + y", "log(x)"),
}
WHOLE = 1 << 16  # elements from which a whole tensor is reduced in two steps
CHUNKS = 256
_LIMITS = {
    "f32": (float("-inf"), float("inf")),
    "i32": (-(2**31), 2**31 - 1),
    "u32": (0, 2**32 - 1),
    "i64": (-(2**63), 2**63 - 1),
    "u64": (0, 2**64 - 1),
    "bool": (False, True),
}


def _declare(name: str) -> None:
    types = NUMBERS | BOOLS if name in ("ReduceMax", "ReduceMin") else NUMBERS

    @op(name, types=types, axes_input=INTEGERS, any_format=True)
    def lower(
        b: Builder,
        x: Operand,
        axes_input: Operand | None = None,
        *,
        axes: list[int] | None = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Operand:
        reduced = _reduced_axes(x, axes_input, axes, bool(noop_with_empty_axes))
        if reduced is None:
            return _elementwise(b, name, x)
        return reduce_axes(b, name, x, reduced, keepdims == 1)


def _reduced_axes(
    x: Operand, axes_input: Operand | None, axes: list[int] | None, none_when_empty: bool
) -> list[int] | None:
    """The axes to reduce, in order; without any given, all of them or, with `none_when_empty`, None."""
    given = axes_of(axes_input, axes)
    if not given:
        return None if none_when_empty else list(range(x.rank))
    return sorted({axis_of(a, x.rank) for a in given})


def _elementwise(b: Builder, name: str, x: Operand) -> Operand:
    _, prepare, _, finish = _REDUCTIONS[name]
    result = b.pointwise(prepare, {"x": x}, x.dtype)
    if finish in ("x", "x / n"):
        return result
    return b.pointwise(_last_step(finish, x.dtype.compute or ""), {"x": result}, x.dtype, cost=4)


def _last_step(finish: str, kind: str, may_be_empty: bool = False) -> str:
    """`finish` for a compute type; functions of integers are calculated in f32. The mean of nothing is NaN."""
    if kind == "f32" and finish == "x / n" and may_be_empty:
        return "where(n == 0, nan, x / n)"  # what a division by zero gives is up to the driver
    if kind == "f32" or finish == "x":
        return finish
    return f"x / {kind}(n)" if finish == "x / n" else f"{kind}({finish.replace('(x)', '(f32(x))')})"


def reduce_axes(b: Builder, name: str, x: Operand, axes: list[int], keepdims: bool) -> Operand:
    """The reduction `name` of x over `axes`; kept axes stay in order, reduced ones become 1 or vanish."""
    identity, prepare, combine, finish = _REDUCTIONS[name]
    kept = [k for k in range(x.rank) if k not in axes]
    shape = tuple(x.shape[k] for k in kept)
    wide = _wide(x.dtype)
    kind = wide.compute or ""
    source = b.permute(x, [*kept, *axes])
    across = _is_across(source.view, len(kept))
    if wide is not x.dtype:
        source = b.pointwise(f"{kind}(x)", {"x": source}, wide)
    lowest, highest = _LIMITS[kind]
    limits = {"lowest": _literal(lowest), "highest": _literal(highest)}
    shown = limits.get(identity, identity)
    count = product(x.shape[k] for k in axes)
    functions = {
        "identity": Function((), shown, kind),
        "prepare": Function((("x", kind),), prepare, kind),
        "combine": Function((("x", kind), ("y", kind)), combine, kind),
        "finish": Function((("x", kind), ("n", "f32")), _last_step(finish, kind, may_be(count, 0)), kind),
    }
    if not kept and (not isinstance(count, int) or count > WHOLE):
        # One row would keep one workgroup busy and all others waiting: first CHUNKS rows of their own.
        source, functions = _of_chunks(b, cut(b, source, 0, _identity(functions), CHUNKS), 0, wide, count, functions)
    elif across and (split := _split(b, source, len(kept))) is not None:
        found, functions = _of_chunks(b, split, len(kept), wide, count, functions, across=True)
        source = b.permute(found, [*range(1, found.rank), 0])
    result = _reduced(b, source, len(kept), wide, count, functions, across)
    if wide is not x.dtype:
        result = b.pointwise(f"{x.dtype.compute}(x)", {"x": result}, x.dtype)
    full: list[Dim] = [1 if k in axes else d for k, d in enumerate(x.shape)]
    return b.reshape(result, full if keepdims else shape)


def _is_across(view: View, kept: int) -> bool:
    """Whether the last of the first `kept` axes, not the last of the others, is contiguous in memory."""
    outer, inner = (coalesce([f for axis in axes for f in axis]) for axes in (view.axes[:kept], view.axes[kept:]))
    return bool(outer and inner) and outer[-1].stride == 1 and inner[-1].stride != 1


def _split(b: Builder, x: Operand, kept: int) -> Operand | None:
    """The elements that go into a result split along its columns, (splits, kept axes..., elements); None when nothing is won."""
    columns = product(x.shape[kept:])
    splits = column_splits(product(x.shape[:kept]), columns, b.target)
    if splits == 1 or not isinstance(columns, int):
        return None
    view = x.view.reshape((*x.shape[:kept], splits, columns // splits))
    if view is None:
        return None
    return b.permute(b.reshape(x, view.shape), [kept, *range(kept), kept + 1])


def _reduced(
    b: Builder, x: Operand, kept: int, dtype: DType, count: Dim, functions: dict[str, Function], across: bool = False
) -> Operand:
    """x with all axes after the first `kept` reduced; `count` elements go into each result in all. `across` says that
    neighbours in memory belong to different results."""
    found = by_rows(b, x, kept, lambda rows: _reduced_rows(b, rows, kept, dtype, count, functions, across))
    if found is not None:
        return found[0]
    x, functions = _of_chunks(b, cut(b, x, kept, _identity(functions)), kept, dtype, count, functions, across)
    return _reduced(b, x, kept, dtype, count, functions)


def _reduced_rows(
    b: Builder, x: Operand, kept: int, dtype: DType, count: Dim, functions: dict[str, Function], across: bool
) -> list[Operand]:
    variants = across_variants if across else row_variants
    rows, columns = product(x.shape[:kept]), product(x.shape[kept:])
    return b.call(
        "reduce",
        {"x": Read(x.view, (kept, x.rank - kept))},
        {"y": (dtype, x.shape[:kept], (kept,))},
        variants(rows, columns, b.target),
        parameters={"rows": rows, "columns": columns, "count": count},
        functions=functions,
        flops=rows * columns,
        TOGETHER=together(functions["combine"]),
    )


def together(combine: Function) -> str:
    """The reduction of a workgroup that combines so, where the adapter has subgroups; "" for what has none."""
    found = {"x + y": "sum", "max(x, y)": "max", "min(x, y)": "min"}
    return found.get(combine.expression, "") if combine.result == "f32" else ""


def _of_chunks(
    b: Builder, x: Operand, kept: int, dtype: DType, count: Dim, functions: dict[str, Function], across: bool = False
) -> tuple[Operand, dict[str, Function]]:
    """The results of chunks, x without its last axis, and the functions that make the whole of them."""
    kind = dtype.compute or ""
    partial = {**functions, "finish": Function((("x", kind), ("n", "f32")), "x", kind)}
    result = _reduced(b, x, kept + 1, dtype, count, partial, across)
    return result, {**functions, "prepare": Function((("x", kind),), "x", kind)}


def _identity(functions: dict[str, Function]) -> float:
    """The identity of a reduction as a number."""
    identity = functions["identity"]
    return float(identity.expression) if identity.result == "f32" else int(identity.expression)


def _wide(dtype: DType) -> DType:
    """The type with whole words in which a narrow one is reduced."""
    return {
        "f32": DType.FLOAT32,
        "i32": DType.INT32,
        "u32": DType.UINT32,
        "bool": DType.UINT32,
        "i64": DType.INT64,
        "u64": DType.UINT64,
    }[dtype.compute or ""]


def _literal(value: float) -> str:
    if value == float("inf"):
        return "infinity"
    return "-infinity" if value == float("-inf") else str(int(value))


for _name in _REDUCTIONS:
    _declare(_name)


@op("ReduceLogSumExp", types=FLOATS, axes_input=INTEGERS)
def reduce_log_sum_exp(
    b: Builder,
    x: Operand,
    axes_input: Operand | None = None,
    *,
    axes: list[int] | None = None,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Operand:
    """The maximum is taken out first, so that large values do not overflow."""
    reduced = _reduced_axes(x, axes_input, axes, bool(noop_with_empty_axes))
    if reduced is None:
        return x
    highest = reduce_axes(b, "ReduceMax", x, reduced, True)
    safe = b.pointwise("where(isinf(m) or isnan(m), 0, m)", {"m": highest}, x.dtype, cost=4)
    scaled = b.pointwise("exp(x - m)", {"x": x, "m": safe}, x.dtype, cost=5)
    total = reduce_axes(b, "ReduceSum", scaled, reduced, True)
    result = b.pointwise("log(s) + m", {"s": total, "m": safe}, x.dtype, cost=5)
    return result if keepdims == 1 else b.reshape(result, [d for k, d in enumerate(x.shape) if k not in reduced])


def _scan(name: str, identity: str, combine: str) -> None:
    @op(name, types=NUMBERS, axis=INTEGERS)
    def lower(b: Builder, x: Operand, axis: Operand, *, exclusive: int = 0, reverse: int = 0) -> Operand:
        """Running totals along one axis, from either end, with or without the element itself."""
        places = axis.ints("the axis")
        if len(places) != 1:
            raise UnsupportedError(f"the axis is {axis} and not one number")
        along = axis_of(places[0], x.rank)
        wide = _wide(x.dtype)
        kind = wide.compute or ""
        order = [*(k for k in range(x.rank) if k != along), along]
        source = b.permute(x, order)
        if wide is not x.dtype:
            source = b.pointwise(f"{kind}(x)", {"x": source}, wide)
        functions = {
            "identity": Function((), identity, kind),
            "combine": Function((("x", kind), ("y", kind)), combine, kind),
        }
        result = _scanned(b, source, functions, bool(exclusive), bool(reverse))
        if wide is not x.dtype:
            result = b.pointwise(f"{x.dtype.compute}(x)", {"x": result}, x.dtype)
        return b.permute(result, [order.index(k) for k in range(x.rank)])


def _scanned(b: Builder, x: Operand, functions: dict[str, Function], exclusive: bool, reverse: bool) -> Operand:
    """Running totals along the last axis."""
    found = by_rows(b, x, x.rank - 1, lambda rows: _scanned_rows(b, rows, functions, exclusive, reverse))
    return found[0] if found is not None else _scanned_in_chunks(b, x, functions, exclusive, reverse)


def _scanned_rows(
    b: Builder, x: Operand, functions: dict[str, Function], exclusive: bool, reverse: bool
) -> list[Operand]:
    groups = (x.rank - 1, 1)
    rows, columns = product(x.shape[:-1]), x.shape[-1]
    return b.call(
        "scan",
        {"x": Read(x.view, groups, reuse=True)},
        {"y": (x.dtype, x.shape, groups)},
        row_variants(rows, columns, b.target),
        parameters={"rows": rows, "columns": columns},
        functions=functions,
        flops=rows * columns,
        EXCLUSIVE=exclusive,
        REVERSE=reverse,
    )


def _scanned_in_chunks(
    b: Builder, x: Operand, functions: dict[str, Function], exclusive: bool, reverse: bool
) -> Operand:
    """Running totals of chunks, each after the total of the chunks before it."""
    kept, kind = x.rank - 1, x.dtype.compute or ""
    chunks = b.copy(cut(b, x, kept, _identity(functions)))
    whole = {**functions, "prepare": Function((("x", kind),), "x", kind)}
    whole["finish"] = Function((("x", kind), ("n", "f32")), "x", kind)
    totals = _reduced(b, chunks, kept + 1, x.dtype, x.shape[kept], whole)
    before = _scanned(b, totals, functions, True, reverse)
    inside = _scanned(b, chunks, functions, exclusive, reverse)
    operands = {"x": b.reshape(before, (*before.shape, 1)), "y": inside}
    together = b.pointwise(functions["combine"].expression, operands, x.dtype, inside.shape)
    return b.slice(b.reshape(together, (*x.shape[:kept], product(inside.shape[kept:]))), kept, 0, 1, x.shape[kept])


_scan("CumSum", "0", "x + y")
_scan("CumProd", "1", "x * y")
