"""Operators that only look at elements in another order or number: views, and copies where no view exists."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Literal

import numpy as np

from ....errors import FreeSizeError, UnsupportedError
from ....program.dtypes import DType
from ...dims import (
    LARGEST,
    Dim,
    Expr,
    ceildiv,
    equal,
    floordiv,
    less,
    less_equal,
    limits,
    maximum,
    may_be,
    minimum,
    product,
    quotient,
    reads_elements,
    select,
)
from ...ir import broadcast_shapes
from ..builder import Builder, Operand
from ..operand import OnDeviceError
from .choices import Flag
from .registry import ANY, FLOATS, INTEGERS, MICROSOFT, KnownShape, op

MOST_TRIED = 1000  # lists of axes


def axis_of(axis: int, rank: int) -> int:
    """A non-negative axis; raises UnsupportedError when it is out of range."""
    if not -rank <= axis < max(rank, 1):
        raise UnsupportedError(f"axis {axis} is out of range for rank {rank}")
    return axis % rank if rank else 0


def axes_of(
    b: Builder,
    axes: Operand | None,
    attribute: list[int] | None,
    rank: int,
    result: Callable[[tuple[int, ...]], Sequence[Dim] | None] = lambda _: None,
    declared: Sequence[KnownShape | None] = (),
) -> list[int] | None:
    """Axes of `rank` given as an input (newer versions) or an attribute (older ones).

    Those that a run decides are taken for the first ones of which `result` makes what is `declared` of the shape of the result, or,
    where nothing is, any shape.
    """
    if axes is None:
        return attribute

    def usual(count: int) -> Sequence[int]:
        every = list(itertools.islice(itertools.combinations(range(rank), count), MOST_TRIED))
        if not every:
            raise UnsupportedError(f"{count} axes of a tensor of rank {rank}")
        shape = declared[0] if declared else None
        fits = (it for it in every if (made := result(it)) is not None and _fits_declared(made, shape))
        return next(fits, every[0])

    given = [select(less(it, 0), it + rank, it) if isinstance(it, Expr) else it for it in axes.dims("the list of axes")]
    return b.assumed_ints(given, "the list of axes", usual)


def one_axis_of(
    b: Builder,
    axis: Operand | None,
    rank: int,
    default: int = 0,
    result: Callable[[tuple[int, ...]], Sequence[Dim] | None] = lambda _: None,
    declared: Sequence[KnownShape | None] = (),
) -> int:
    """A non-negative axis given as an input, as `axes_of` takes several."""
    places = axes_of(b, axis, [default], rank, result, declared) or []
    if len(places) != 1:
        raise UnsupportedError(f"the axis is {axis} and not one number")
    return axis_of(places[0], rank)


def _fits_declared(shape: Sequence[Dim], declared: KnownShape | None) -> bool:
    """Whether a shape may be the one that is stated."""
    if declared is None:
        return True
    known = [(a, b) for a, b in zip(shape, declared, strict=False) if b is not None and isinstance(a, int)]
    return len(shape) == len(declared) and all(a == b for a, b in known)


@op("Reshape", types=ANY, shape=INTEGERS)
def reshape(b: Builder, x: Operand, shape: Operand, *, allowzero: Flag = 0) -> Operand:
    wanted = shape.dims("the target shape")
    if not allowzero:
        if any(d == 0 for d in wanted[x.rank :]):
            raise UnsupportedError(f"the target shape {wanted} copies an extent that {x} does not have")
        wanted = [x.shape[k] if d == 0 else d for k, d in enumerate(wanted)]
    if any(map(reads_elements, wanted)):
        # Elements of an input may be -1 or 0, whose meaning is only known at run time.
        wanted = [_runtime_dim(d, x, wanted, k, bool(allowzero)) for k, d in enumerate(wanted)]
    elif not allowzero:
        _require_no_copied_extent(b, x, wanted)
    if any(d == -1 for d in wanted):
        k = wanted.index(-1)
        known = product(d for d in wanted if d != -1)
        exact = quotient(x.size, known) if known != 0 else 0
        wanted[k] = exact if exact is not None else floordiv(x.size, known)
    if any(isinstance(d, int) and d < 0 for d in wanted):
        raise UnsupportedError(f"the target shape {wanted} has more than one -1")
    b.require(equal(product(wanted), x.size), "cannot reshape {} to {}", x, wanted)
    return b.reshape(x, wanted)


def _require_no_copied_extent(b: Builder, x: Operand, wanted: list[Dim]) -> None:
    """A dim that is 0 in some run would mean "as in x" there: that is 0 too, or an error, never another shape."""
    for k, d in enumerate(wanted):
        if isinstance(d, int) or not may_be(d, 0):
            continue
        if k < x.rank and (equal(x.shape[k], 0) == equal(d, 0) or quotient(x.shape[k], d) is not None):
            continue  # it is 0 only where the extent of x is 0 too
        copied = equal(x.shape[k], 0) if k < x.rank else 0
        b.require(
            maximum(less(0, d), copied),
            f"axis {k} of the target shape {{}} is 0, which stands for the extent of {{}} there",
            wanted,
            x,
        )


def _runtime_dim(d: Dim, x: Operand, wanted: list[Dim], k: int, zero: bool) -> Dim:
    """A target dim read from an input: -1 takes what the others leave and 0, unless it means `zero`, the extent of x."""

    def copied(dim: Dim, axis: int) -> Dim:
        return dim if zero or axis >= x.rank else select(equal(dim, 0), x.shape[axis], dim)

    if isinstance(d, int):
        return d
    others = product(copied(o, j) for j, o in enumerate(wanted) if j != k)
    return select(equal(d, -1), floordiv(x.size, maximum(others, 1)), copied(d, k))


@op("Flatten", types=ANY)
def flatten(b: Builder, x: Operand, *, axis: int = 1) -> Operand:
    axis = axis + x.rank if axis < 0 else axis
    return b.reshape(x, (product(x.shape[:axis]), product(x.shape[axis:])))


@op("Squeeze", types=ANY, axes_input=INTEGERS)
def squeeze(
    b: Builder,
    x: Operand,
    axes_input: Operand | None = None,
    *,
    axes: list[int] | None = None,
    result_shapes: Sequence[KnownShape | None] = (),
) -> Operand:
    """Without axes every axis of extent 1 goes, so a rank is only known when it is known which axes these are."""

    def left(drop: Collection[int]) -> list[Dim]:
        return [d for k, d in enumerate(x.shape) if k not in drop]

    def possible(drop: Collection[int]) -> list[Dim] | None:
        return left(drop) if all(may_be(x.shape[k], 1) for k in drop) else None

    given = axes_of(b, axes_input, axes, x.rank, possible, result_shapes)
    if given and not x.rank:
        raise UnsupportedError(f"cannot squeeze axes {list(given)} of {x}")
    if given is None:
        for k, d in enumerate(x.shape):
            if not isinstance(d, int) and may_be(d, 1):
                raise FreeSizeError(
                    f"the rank of the result depends on whether axis {k} of {x} has 1 element in a run, because the node has"
                    " no axes; it runs on the CPU (give it axes, or fix the dimension)"
                )
    drop = {k for k, d in enumerate(x.shape) if d == 1} if given is None else {axis_of(a, x.rank) for a in given}
    for k in drop:
        b.require(equal(x.shape[k], 1), f"cannot squeeze axis {k} of {{}}", x)
    return b.reshape(x, left(drop))


@op("Unsqueeze", types=ANY, axes_input=INTEGERS)
def unsqueeze(
    b: Builder,
    x: Operand,
    axes_input: Operand | None = None,
    *,
    axes: list[int] | None = None,
    result_shapes: Sequence[KnownShape | None] = (),
) -> Operand:
    rank = x.rank + (_length(axes_input) if axes_input is not None else len(axes or []))

    def with_new(new: Collection[int]) -> list[Dim]:
        rest = iter(x.shape)
        return [1 if k in new else next(rest) for k in range(rank)]

    given = axes_of(b, axes_input, axes, rank, with_new, result_shapes) or []
    new = {axis_of(a, rank) for a in given}
    if len(new) < len(given):
        raise UnsupportedError(f"the axes {list(given)} name one twice")
    return b.reshape(x, with_new(new))


def _length(axes: Operand | None) -> int:
    """How many axes are given, as far as that is known: the rank of a result follows from it."""
    return axes.size if axes is not None and isinstance(axes.size, int) else 0


@op("Transpose", types=ANY)
def transpose(b: Builder, x: Operand, *, perm: list[int] | None = None, with_channels_last: bool = False) -> Operand:
    """`with_channels_last`: the result is an image whose channels are last in memory if x is a tensor of its own."""
    result = b.permute(x, perm if perm is not None else list(range(x.rank))[::-1])
    if with_channels_last:
        b.formats.note(result.view)
    return result


@op("Expand", types=ANY, shape=INTEGERS)
def expand(b: Builder, x: Operand, shape: Operand) -> Operand:
    wanted = tuple(shape.dims("the target shape"))
    result = broadcast_shapes(x.shape, wanted)
    for want, have in zip(wanted, result[len(result) - len(wanted) :], strict=True):
        # The target broadcasts too: where it has 1, x decides.
        broadcasts = maximum(equal(want, 1), equal(want, have))
        b.require(broadcasts, "cannot expand {} to {}", x, wanted)
    return b.expand(x, extents(b, result, "the target shape"))


def extents(b: Builder, shape: Sequence[Dim], what: str) -> tuple[Dim, ...]:
    """`shape`, none of whose dims is negative; one that may be in a run is looked at when its plan is made."""
    for d in shape:
        if limits(d)[0] < 0:
            b.require(less_equal(0, d), f"{what} {{}} has a negative extent", shape)
    return tuple(shape)


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
    """Bounds may be expressions of the input shapes; kernels are made for steps and axes."""
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
    """First index and length of a slice by ONNX's clamping rules; what lies before the beginning is the beginning."""
    if step == 0:
        raise UnsupportedError("the step of a slice is 0")
    low, high = (0, extent) if step > 0 else (-1, extent - 1)
    first = _clamped(start, extent, 0, high)
    last = _clamped(end, extent, low, high)
    if step < 0:
        # These two mean "to the end", as None does in numpy, also where the end is the beginning.
        for none in (2**31 - 1, 2**63 - 1):
            last = select(equal(end, none), -1, last) if may_be(end, none) else last
    span = last - first if step > 0 else first - last
    return first, maximum(ceildiv(span, abs(step)), 0)


def _clamped(bound: Dim, extent: Dim, low: int, high: Dim) -> Dim:
    """A bound, counted from the end when it is negative, within [low, high]."""
    if isinstance(bound, int) and not isinstance(extent, int):
        # No extent is this large, and the algebra need not find that out again.
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
    # As in ONNX Runtime, the others have the extents of the first that has elements, but for those with nothing along the axis.
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
                # Sizes decide which has elements: the graph is compiled for them, without those that have none.
                b.require(same, text, first, x, limit=True)
    return b.join(parts, axis, tuple(shape))


@op("Tile", types=ANY, repeats=INTEGERS)
def tile(b: Builder, x: Operand, repeats: Operand) -> Operand:
    """Repeats as new axes of stride 0, merged with the axes they repeat."""
    counts = extents(b, repeats.dims("the number of repeats", x.rank), "the list of repeats")
    if len(counts) != x.rank:
        raise UnsupportedError(f"{len(counts)} numbers of repeats for {x}")
    if all(r == 1 for r in counts):
        return x
    spread = b.expand(
        b.reshape(x, [e for d in x.shape for e in (1, d)]),
        [e for r, d in zip(counts, x.shape, strict=True) for e in (r, d)],
    )
    return b.reshape(spread, [r * d for r, d in zip(counts, x.shape, strict=True)])


DepthOrder = Literal["DCR", "CRD"]


def _check_blocks(b: Builder, blocksize: int, each: int, *extents: Dim) -> None:
    if blocksize < 1:
        raise UnsupportedError(f"attribute blocksize={blocksize} is not positive")
    for extent in extents:
        b.require(equal(extent % each, 0), f"{{}} elements do not make blocks of {each}", extent)


@op("DepthToSpace", types=ANY)
def depth_to_space(b: Builder, x: Operand, *, blocksize: int, mode: DepthOrder = "DCR") -> Operand:
    """Blocks of channels become blocks of pixels; "DCR" takes the block from the outer channels, "CRD" from the inner."""
    n, c, h, w = x.shape
    _check_blocks(b, blocksize, blocksize * blocksize, c)
    depth = floordiv(c, blocksize * blocksize)
    if mode == "DCR":
        blocks = b.permute(b.reshape(x, (n, blocksize, blocksize, depth, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        blocks = b.permute(b.reshape(x, (n, depth, blocksize, blocksize, h, w)), (0, 1, 4, 2, 5, 3))
    return b.reshape(blocks, (n, depth, h * blocksize, w * blocksize))


@op("SpaceToDepth", types=ANY)
def space_to_depth(b: Builder, x: Operand, *, blocksize: int, mode: DepthOrder = "DCR") -> Operand:
    """The inverse of depth_to_space."""
    n, c, h, w = x.shape
    _check_blocks(b, blocksize, blocksize, h, w)
    high, wide = floordiv(h, blocksize), floordiv(w, blocksize)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    blocks = b.permute(b.reshape(x, (n, c, high, blocksize, wide, blocksize)), order)
    return b.reshape(blocks, (n, c * blocksize * blocksize, high, wide))


@op("Range", types=FLOATS | INTEGERS)
@op("Range", domain=MICROSOFT, types=FLOATS | INTEGERS)
def range_(b: Builder, start: Operand, limit: Operand, delta: Operand | None = None) -> Operand:
    """start + k * delta, which is 1 where Microsoft's has none; the number of elements follows from shapes or numbers."""
    delta = b.constant(np.ones((), start.dtype.numpy)) if delta is None else delta
    if len({o.dtype for o in (start, limit, delta)}) > 1:
        raise UnsupportedError(f"bounds {start} and {limit} and a step {delta} of different types")
    first, last, by = (_bound(b, o) for o in (start, limit, delta))
    length: Dim
    if by == 0:
        raise UnsupportedError("the step of a range is 0")
    if isinstance(first, float) or isinstance(last, float) or isinstance(by, float):
        if not (isinstance(first, (int, float)) and isinstance(last, (int, float)) and isinstance(by, (int, float))):
            raise UnsupportedError("a range of fractions between bounds that depend on the input")
        length = max(0, math.ceil((last - first) / by))
    else:
        length = maximum(-floordiv(first - last, by), 0)
    kind = start.dtype.compute
    counter = DType.FLOAT32 if start.dtype.is_float else DType.INT32
    index = b.map("  return $out_t(k);", counter, (length,), ("k",), (1,), {}, cost=1)
    return b.pointwise(
        f"start + {kind}(k) * delta", {"start": start, "k": index, "delta": delta}, start.dtype, (length,), cost=2
    )


def _bound(b: Builder, x: Operand) -> Dim | float:
    """A bound of a range: a dim where it is a whole number, else a fraction. It is constant, derived from shapes, or a number that
    kernels are made for."""
    x.check_one("a bound of the range")
    if x.has_host:
        return x.dims("a bound of the range")[0]
    if x.constant is None and not x.has_bits:
        raise OnDeviceError("a bound of the range is computed on the device, so the shape depends on data", x)
    (value,) = b.assumed_floats(x, "a bound of the range", lambda count: [1.0] * count)
    if not math.isfinite(value):
        raise UnsupportedError(f"a bound of the range is {value}")
    return int(value) if value == int(value) else value


@op("ConstantOfShape", types=INTEGERS)
def constant_of_shape(b: Builder, shape: Operand, *, value: object = None) -> Operand:
    array = np.zeros(1, np.float32) if value is None else np.asarray(value).reshape(1)
    return b.expand(b.constant(array), extents(b, shape.dims("the shape"), "the shape"))


@op("Constant")
def constant(
    b: Builder,
    *,
    value: object = None,
    value_float: float | None = None,
    value_int: int | None = None,
    value_floats: list[float] | None = None,
    value_ints: list[int] | None = None,
) -> Operand:
    if value is not None:
        return b.constant(np.asarray(value))
    if value_float is not None or value_floats is not None:
        return b.constant(np.asarray(value_float if value_floats is None else value_floats, np.float32))
    if value_int is not None or value_ints is not None:
        return b.constant(np.asarray(value_int if value_ints is None else value_ints, np.int64))
    raise UnsupportedError("constants of strings or sparse tensors have no device form")
