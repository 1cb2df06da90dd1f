"""Slice, Split and Concat: parts of a tensor along an axis, as views, and tensors concatenated from parts."""

from __future__ import annotations

from ....errors import UnsupportedError
from ...dims import LARGEST, Dim, ceildiv, equal, less, maximum, may_be, minimum, product, select
from ..builder import Builder, Operand
from .named_axes import axes_of, axis_of
from .registry import ANY, INTEGERS, op


@op(
    "Slice",
    types=ANY,
    starts_input=INTEGERS,
    ends_input=INTEGERS,
    axes_input=INTEGERS,
    steps_input=INTEGERS,
    keeps_format=True,
)
def slice_(
    b: Builder,
    x: Operand,
    starts_input: Operand | None = None,
    ends_input: Operand | None = None,
    axes_input: Operand | None = None,
    steps_input: Operand | None = None,
    *,
    starts: list[int] | None = None,
    ends: list[int] | None = None,
    axes: list[int] | None = None,
) -> Operand:
    """Bounds may be expressions of the input shapes. Kernels are specialised for steps and axes."""
    low = starts_input.dims("the start of the slice") if starts_input else list(starts or [])
    high = ends_input.dims("the end of the slice") if ends_input else list(ends or [])
    where = axes_of(b, axes_input, axes, x.rank) or list(range(len(low)))
    steps = [1] * len(low)
    if steps_input is not None:
        steps = b.assumed_ints(steps_input.dims("the step of the slice"), "the step of the slice", lambda n: [1] * n)
    if not len(low) == len(high) == len(where) == len(steps):
        raise UnsupportedError(
            f"{len(low)} starts, {len(high)} ends, {len(where)} axes and {len(steps)} steps of a slice"
        )
    for start, end, axis, step in zip(low, high, where, steps, strict=True):
        axis = axis_of(axis, x.rank)
        first, length = slice_bounds(start, end, step, x.shape[axis])
        x = b.slice(x, axis, first, step, length)
    return x


def slice_bounds(start: Dim, end: Dim, step: int, extent: Dim) -> tuple[Dim, Dim]:
    """Returns the first index and the length of a slice by ONNX's clamping rules. Negative indices beyond the beginning are
    clamped to it."""
    if step == 0:
        raise UnsupportedError("the step of a slice is 0")
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    first = _clamped(start, extent, 0, high)
    last = _clamped(end, extent, low, high)
    if step < 0:
        # These two mean "to the end", as None does in numpy, even if the end is the beginning.
        for none in (2**31 - 1, 2**63 - 1):
            last = select(equal(end, none), -1, last) if may_be(end, none) else last
    span = last - first if step > 0 else first - last
    return first, maximum(ceildiv(span, abs(step)), 0)


def _clamped(bound: Dim, extent: Dim, low: int, high: Dim) -> Dim:
    """Returns a bound clamped to [low, high]; a negative bound counts from the end."""
    if isinstance(bound, int) and not isinstance(extent, int):
        # No extent is this large. The shortcut spares the algebra from deriving that.
        if bound >= LARGEST:
            return high
        if bound <= -LARGEST:
            return minimum(low, high)
    return minimum(maximum(_from_end(bound, extent), low), high)


def _from_end(value: Dim, extent: Dim) -> Dim:
    """Counts a negative bound from the end."""
    return select(less(value, 0), value + extent, value)


@op("Split", types=ANY, split_input=INTEGERS, keeps_format=True)
def split(
    b: Builder,
    x: Operand,
    split_input: Operand | None = None,
    *,
    axis: int = 0,
    split: list[int] | None = None,
    num_outputs: int = 0,
    outputs: int = 0,
) -> list[Operand]:
    axis = axis_of(axis, x.rank)
    sizes: list[Dim] = split_input.dims("the sizes of the split") if split_input else list(split or [])
    if not sizes:
        count = num_outputs or outputs
        if count != outputs or count < 1:
            raise UnsupportedError(f"num_outputs is {num_outputs} and the node has {outputs} outputs")
        part = ceildiv(x.shape[axis], count)
        sizes = [part] * (count - 1) + [x.shape[axis] - part * (count - 1)]
    out, start = [], 0  # type: list[Operand], Dim
    for size in sizes:
        out.append(b.slice(x, axis, start, 1, size))
        start = start + size
    b.require(
        equal(start, x.shape[axis]), f"the sizes {{}} of the split do not add up to axis {axis} of {{}}", sizes, x
    )
    return out


@op("Concat", types=ANY, keeps_format=True)
def concat(b: Builder, *xs: Operand, axis: int = 0) -> Operand:
    axis = axis_of(axis, xs[0].rank)
    if any(x.rank != xs[0].rank for x in xs):
        raise UnsupportedError(f"cannot concatenate {', '.join(map(str, xs[:4]))}: their ranks differ")
    # As in ONNX Runtime: the first operand with elements determines the extents of the others, except of those with 0 along
    # the axis.
    first = next((x for x in xs if 0 not in x.shape), xs[0])
    parts = [x for x in xs if x is first or x.shape[axis] != 0]
    if len(parts) == 1:
        return first
    shape = list(first.shape)
    shape[axis] = sum((x.shape[axis] for x in parts), start=0)
    for x in parts:
        for k, d in enumerate(x.shape):
            if k != axis and x is not first:
                text, same = f"cannot concatenate {{}} and {{}} along axis {axis}", equal(d, shape[k])
                b.require(select(product([x.shape[axis], *first.shape]), same, 1), text, first, x)
                # Sizes decide which operands have elements. The graph is compiled for these sizes, without the empty ones.
                b.require(same, text, first, x, limit=True)
    return b.join(parts, axis, tuple(shape))
