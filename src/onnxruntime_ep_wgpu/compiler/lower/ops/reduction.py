"""Reductions over any axes. Kept axes are rows, reduced ones are columns, in any memory order.

Invariants: integers are exact if the result fits its type, and saturate otherwise. The result of floats does not depend on
the order of the zeros in a row.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ....program.dtypes import DType
from ....records import dataclass
from ...dims import Dim, may_be, product
from ...ir import Function, Read, View, coalesce
from ...ir.kinds import WIDEST
from ...tune import across_variants, column_splits, row_variants
from ..builder import Builder, Operand
from .choices import Flag
from .chunked_rows import by_rows, cut
from .named_axes import axes_of, axis_of
from .registry import BOOLS, INTEGERS, NUMBERS, REALS, KnownShape, op


@dataclass(frozen=True)
class Reduction:
    """A reduction, as expressions.

    * `prepare` maps an element x to the combined value, of the compute type `kind`.
    * `combine` combines two values.
    * `finish` maps the combined value of n elements to the result.
    * `identity` is a value, and `fill` an element before `prepare`, that change no result.
    * `empty` is the result for no elements, if it differs from `finish` of the identity.
    """

    kind: str
    fill: str
    identity: str
    prepare: str
    combine: str
    finish: str
    empty: str = ""


# A sum begins with minus zero, the identity: 0 + -0 is 0. For the ranks of infinities see `rank` in prelude/float.wgsl.
_MEAN = Reduction("f32", "-0.0", "-0.0", "x", "x + y", "x / f32(n)", "nan")
_OF_FLOATS = {
    "ReduceSum": Reduction("f32", "-0.0", "-0.0", "x", "x + y", "x", "0"),
    "ReduceMean": _MEAN,
    "GlobalAveragePool": replace(_MEAN, finish="where(x == 0, 0, x / f32(n))"),  # no -0, as on the CPU provider
    "ReduceProd": Reduction("f32", "1", "1", "x", "x * y", "x"),
    "ReduceMax": Reduction("u32", "-infinity", "8388607", "rank(x)", "max(x, y)", "ranked(x)"),
    "ReduceMin": Reduction("u32", "infinity", "4286578688", "low_rank(x)", "min(x, y)", "ranked(x)"),
    "ReduceL1": Reduction("f32", "0", "0", "abs(x)", "x + y", "x"),
    "ReduceL2": Reduction("f32", "0", "0", "x * x", "x + y", "sqrt(x)"),
    "ReduceSumSquare": Reduction("f32", "0", "0", "x * x", "x + y", "x"),
    "ReduceLogSum": Reduction("f32", "0", "0", "x", "x + y", "log(x)"),
}
_OF_DOUBLES = {
    **{name: replace(it, kind="f64", finish=it.finish.replace("f32", "f64")) for name, it in _OF_FLOATS.items()},
    "ReduceMax": Reduction("f64", "-infinity", "-infinity", "x", "highest(x, y)", "x"),
    "ReduceMin": Reduction("f64", "infinity", "infinity", "x", "lowest(x, y)", "x"),
}
# 128 bits hold every sum and every square of 64-bit integers. Products and sums of squares saturate beyond all results.
_OF_INTEGERS = {
    "ReduceSum": Reduction(WIDEST, "0", "0", "i128(x)", "x + y", "x"),
    "ReduceMean": Reduction(WIDEST, "0", "0", "i128(x)", "x + y", "quotient(x, i128(n))"),
    "ReduceProd": Reduction(WIDEST, "1", "1", "i128(x)", "bounded_product(x, y)", "x"),
    "ReduceL1": Reduction(WIDEST, "0", "0", "abs(i128(x))", "x + y", "x"),
    "ReduceL2": Reduction(WIDEST, "0", "0", "square(i128(x))", "bounded_sum(x, y)", "root(x)"),
    "ReduceSumSquare": Reduction(WIDEST, "0", "0", "square(i128(x))", "bounded_sum(x, y)", "signed(x)"),
    "ReduceLogSum": Reduction(WIDEST, "0", "0", "i128(x)", "x + y", "log(x)"),
}
# Without the saturation of integers.
_WRAPPING = {"ReduceSum": ("0", "x + y"), "ReduceProd": ("1", "x * y")}
WORDS_OF = {
    "f32": DType.FLOAT32,
    "i32": DType.INT32,
    "u32": DType.UINT32,
    "bool": DType.UINT32,
    "i64": DType.INT64,
    "u64": DType.UINT64,
    "f64": DType.FLOAT64,
    WIDEST: DType.UINT32,
}
"""The types in memory for values of a compute type, in whole words; the widest type has four words."""
WHOLE = 1 << 16  # elements from which a whole tensor is reduced in two steps
CHUNKS = 256


def _declare(name: str) -> None:
    types = NUMBERS | BOOLS if name in ("ReduceMax", "ReduceMin") else NUMBERS

    @op(name, types=types, axes_input=INTEGERS, any_format=True)
    def lower(
        b: Builder,
        x: Operand,
        axes_input: Operand | None = None,
        *,
        axes: list[int] | None = None,
        keepdims: Flag = 1,
        noop_with_empty_axes: Flag = 0,
        result_shapes: Sequence[KnownShape | None] = (),
    ) -> Operand:
        reduced = _reduced_axes(b, x, axes_input, axes, bool(keepdims), bool(noop_with_empty_axes), result_shapes)
        if reduced is None:
            return _elementwise(b, name, x)
        return reduce_axes(b, name, x, reduced, keepdims == 1)


def _reduced_axes(
    b: Builder,
    x: Operand,
    axes_input: Operand | None,
    axes: list[int] | None,
    keepdims: bool,
    none_when_empty: bool,
    declared: Sequence[KnownShape | None],
) -> list[int] | None:
    """Returns the axes to reduce, in order. If the node names none, these are all axes, or None with `none_when_empty`."""
    given = axes_of(b, axes_input, axes, x.rank, lambda given: _shape_left(x, given, keepdims), declared)
    if not given:
        return None if none_when_empty else list(range(x.rank))
    return sorted({axis_of(a, x.rank) for a in given})


def _shape_left(x: Operand, axes: Collection[int], keepdims: bool) -> list[Dim]:
    return [1 if k in axes else d for k, d in enumerate(x.shape) if keepdims or k not in axes]


def _elementwise(b: Builder, name: str, x: Operand) -> Operand:
    """Applies a reduction to each element as a row."""
    if name in ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin"):
        return x
    if not x.dtype.is_float:
        return reduce_axes(b, name, x, [], True)
    reduction = _reduction(name, x.dtype, False)
    result = b.pointwise(reduction.prepare, {"x": x}, x.dtype)
    return result if reduction.finish == "x" else b.pointwise(reduction.finish, {"x": result}, x.dtype, cost=4)


def _reduction(name: str, dtype: DType, wraps: bool) -> Reduction:
    """Returns the reduction for elements of a type, after their conversion to whole words."""
    kind, (low, high) = WORDS_OF[dtype.compute or ""].compute or "", (0, 0) if dtype.is_float else dtype.limits
    if dtype.is_float:
        return (_OF_DOUBLES if dtype is DType.FLOAT64 else _OF_FLOATS)[name]
    if name in _OF_INTEGERS and not wraps:
        reduction = _OF_INTEGERS[name]
        return replace(reduction, finish=f"{kind}(clamp({reduction.finish}, {low}, {high}))")
    if name == "ReduceMax":
        return Reduction(kind, str(low), str(low), "x", "max(x, y)", "x")
    if name == "ReduceMin":
        return Reduction(kind, str(high), str(high), "x", "min(x, y)", "x")
    fill, combine = _WRAPPING[name]
    return Reduction(kind, fill, fill, "x", combine, "x")


@dataclass(frozen=True)
class _Step:
    """A reduction to elements of type `dtype`. `reads_words`: the elements have a last axis with the words of combined
    values. `gives_words`: the results have one."""

    reduction: Reduction
    dtype: DType
    functions: dict[str, Function]
    reads_words: bool = False
    gives_words: bool = False

    def in_two(self) -> tuple[_Step, _Step]:
        """Returns two steps: one that reduces parts, and one that combines their results."""
        kind = self.reduction.kind
        part = Function((("x", kind), ("n", "u32")), "x", kind)
        first = replace(
            self, dtype=WORDS_OF[kind], functions={**self.functions, "finish": part}, gives_words=kind == WIDEST
        )
        functions = {**self.functions, "prepare": Function((("x", kind),), "x", kind)}
        whole = replace(self.reduction, fill=self.reduction.identity)  # its elements are already prepared
        return first, replace(self, reduction=whole, functions=functions, reads_words=kind == WIDEST)


def _step(name: str, x: DType, dtype: DType, wraps: bool, may_be_empty: bool) -> _Step:
    reduction = _reduction(name, x, wraps)
    kind, of = dtype.compute or "", reduction.kind
    # The result of a division by zero depends on the driver.
    asks = may_be_empty and reduction.empty
    finish = f"where(n == 0, {reduction.empty}, {reduction.finish})" if asks else reduction.finish
    functions = {
        "identity": Function((), reduction.identity, of),
        "prepare": Function((("x", kind),), reduction.prepare, of),
        "combine": Function((("x", of), ("y", of)), reduction.combine, of),
        "finish": Function((("x", of), ("n", "u32")), finish, kind),
    }
    return _Step(reduction, dtype, functions)


def reduce_axes(b: Builder, name: str, x: Operand, axes: list[int], keepdims: bool, *, wraps: bool = False) -> Operand:
    """Returns the reduction `name` of x over `axes`. Kept axes stay in order; reduced ones become 1 or are removed. `wraps`:
    sums and products of integers wrap. Callers set it as part of an operator that wraps, or if the results cannot
    overflow."""
    kept = [k for k in range(x.rank) if k not in axes]
    shape = _shape_left(x, axes, keepdims)
    wide = WORDS_OF[x.dtype.compute or ""]
    source = b.permute(x, [*kept, *axes])
    across = _is_across(source.view, len(kept))
    if wide is not x.dtype:
        source = b.pointwise(f"{wide.compute}(x)", {"x": source}, wide)
    count = product(x.shape[k] for k in axes)
    step = _step(name, x.dtype, wide, wraps, may_be(count, 0))
    if not kept and (not isinstance(count, int) or count > WHOLE):
        # A single row would use one workgroup. It is first reduced as CHUNKS rows.
        source, step = _of_chunks(b, cut(b, source, 0, step.reduction.fill, CHUNKS), 0, step, count)
    elif across and (split := _split(b, source, len(kept))) is not None:
        found, step = _of_chunks(b, split, len(kept), step, count, across=True)
        rows = len(kept) + 1
        source = b.permute(found, [*range(1, rows), 0, *range(rows, found.rank)])
    result = _reduced(b, source, len(kept), step, count, across)
    if wide is not x.dtype:
        result = b.pointwise(f"{x.dtype.compute}(x)", {"x": result}, x.dtype)
    return b.reshape(result, shape)


def _is_across(view: View, kept: int) -> bool:
    """Whether the last of the first `kept` axes is contiguous in memory, and the last of the others is not."""
    outer, inner = (coalesce([f for axis in axes for f in axis]) for axes in (view.axes[:kept], view.axes[kept:]))
    return bool(outer and inner) and outer[-1].stride == 1 and inner[-1].stride != 1


def _split(b: Builder, x: Operand, kept: int) -> Operand | None:
    """Returns x with each result's elements split along the columns, (splits, kept axes..., elements); None if that is not
    faster."""
    columns = product(x.shape[kept:])
    splits = column_splits(product(x.shape[:kept]), columns, b.target)
    if splits == 1 or not isinstance(columns, int):
        return None
    view = x.view.reshape((*x.shape[:kept], splits, columns // splits))
    if view is None:
        return None
    return b.permute(b.reshape(x, view.shape), [kept, *range(kept), kept + 1])


def _reduced(b: Builder, x: Operand, kept: int, step: _Step, count: Dim, across: bool = False) -> Operand:
    """Returns x with all axes after the first `kept` reduced. `count` is the total number of elements per result. `across`:
    neighbours in memory belong to different results."""
    columns = product(x.shape[kept : x.rank - step.reads_words])
    found = by_rows(b, x, kept, lambda rows: _reduced_rows(b, rows, kept, step, count, across), columns=columns)
    if found is not None:
        return found[0]
    assert not step.reads_words, "parts are fewer than a kernel's longest row"
    x, step = _of_chunks(b, cut(b, x, kept, step.reduction.fill), kept, step, count, across)
    return _reduced(b, x, kept, step, count)


def _reduced_rows(b: Builder, x: Operand, kept: int, step: _Step, count: Dim, across: bool) -> list[Operand]:
    variants = across_variants if across else row_variants
    axes = x.rank - kept - step.reads_words
    rows, columns = product(x.shape[:kept]), product(x.shape[kept : kept + axes])
    words = (4,) if step.gives_words else ()
    return b.call(
        "reduce",
        {"x": Read(x.view, (kept, axes, 1) if step.reads_words else (kept, axes))},
        {"y": (step.dtype, (*x.shape[:kept], *words), (kept, 1) if words else (kept,))},
        variants(rows, columns, b.target),
        parameters={"rows": rows, "columns": columns, "count": count},
        functions=step.functions,
        flops=rows * columns,
        TOGETHER=together(step.functions["combine"]),
        READS_WORDS=step.reads_words,
        GIVES_WORDS=step.gives_words,
    )


def together(combine: Function) -> str:
    """The subgroup reduction of a workgroup that combines in this way; "" if there is none."""
    found = {"f32": {"x + y": "signed_sum"}, "u32": {"max(x, y)": "most", "min(x, y)": "least"}}
    return found.get(combine.result, {}).get(combine.expression, "")


def _of_chunks(
    b: Builder, x: Operand, kept: int, step: _Step, count: Dim, across: bool = False
) -> tuple[Operand, _Step]:
    """Returns the results of chunks, x without its last axis, and the step that combines them."""
    first, second = step.in_two()
    return _reduced(b, x, kept + 1, first, count, across), second


for _name in _OF_FLOATS:
    if _name.startswith("Reduce"):
        _declare(_name)


@op("ReduceLogSumExp", types=REALS, axes_input=INTEGERS)
def reduce_log_sum_exp(
    b: Builder,
    x: Operand,
    axes_input: Operand | None = None,
    *,
    axes: list[int] | None = None,
    keepdims: Flag = 1,
    noop_with_empty_axes: Flag = 0,
    result_shapes: Sequence[KnownShape | None] = (),
) -> Operand:
    """Subtracts the maximum first, so that large values do not overflow."""
    reduced = _reduced_axes(b, x, axes_input, axes, bool(keepdims), bool(noop_with_empty_axes), result_shapes)
    if reduced is None:
        return x
    highest = reduce_axes(b, "ReduceMax", x, reduced, True)
    safe = b.pointwise("where(isinf(m) or isnan(m), 0, m)", {"m": highest}, x.dtype, cost=4)
    scaled = b.pointwise("exp(x - m)", {"x": x, "m": safe}, x.dtype, cost=5)
    total = reduce_axes(b, "ReduceSum", scaled, reduced, True)
    result = b.pointwise("log(s) + m", {"s": total, "m": safe}, x.dtype, cost=5)
    return b.reshape(result, _shape_left(x, reduced, bool(keepdims)))
