"""Operators that only change the order or number of elements: views, and copies where no view exists."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from ....errors import FreeSizeError, UnsupportedError
from ...dims import (
    Dim,
    equal,
    floordiv,
    less,
    less_equal,
    limits,
    maximum,
    may_be,
    product,
    quotient,
    reads_elements,
    select,
)
from ...ir import broadcast_shapes
from ..builder import Builder, Operand
from .choices import Flag
from .named_axes import axes_of, axis_of
from .registry import ANY, INTEGERS, KnownShape, op


@op("Reshape", types=ANY, shape=INTEGERS)
def reshape(b: Builder, x: Operand, shape: Operand, *, allowzero: Flag = 0) -> Operand:
    wanted = shape.dims("the target shape")
    if not allowzero:
        if any(d == 0 for d in wanted[x.rank :]):
            raise UnsupportedError(f"the target shape {wanted} copies an extent that {x} does not have")
        wanted = [x.shape[k] if d == 0 else d for k, d in enumerate(wanted)]
    if any(map(reads_elements, wanted)):
        # Elements of an input may be -1 or 0, which get their meaning only at run time.
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
    """A dim that is 0 in some run would mean "as in x" there. Requires that this is 0 too, so that it never changes the shape."""
    for k, d in enumerate(wanted):
        if isinstance(d, int) or not may_be(d, 0):
            continue
        if k < x.rank and (equal(x.shape[k], 0) == equal(d, 0) or quotient(x.shape[k], d) is not None):
            continue  # it is 0 only if the extent of x is 0 too
        copied = equal(x.shape[k], 0) if k < x.rank else 0
        b.require(
            maximum(less(0, d), copied),
            f"axis {k} of the target shape {{}} is 0, which means the extent of {{}} there",
            wanted,
            x,
        )


def _runtime_dim(d: Dim, x: Operand, wanted: list[Dim], k: int, zero: bool) -> Dim:
    """Returns a target dim read from an input: -1 becomes the remaining extent, and 0 the extent of x, unless `zero` allows 0."""

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
    """Without axes, every axis of extent 1 is removed. So the rank is known only if it is known which axes these are."""

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
                    " no axes; give it axes, or fix the dimension"
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
    rank = x.rank + (_axis_count(axes_input) if axes_input is not None else len(axes or []))

    def with_new(new: Collection[int]) -> list[Dim]:
        rest = iter(x.shape)
        return [1 if k in new else next(rest) for k in range(rank)]

    given = axes_of(b, axes_input, axes, rank, with_new, result_shapes) or []
    new = {axis_of(a, rank) for a in given}
    if len(new) < len(given):
        raise UnsupportedError(f"the axes {list(given)} contain a duplicate")
    return b.reshape(x, with_new(new))


def _axis_count(axes: Operand | None) -> int:
    """The number of axes, 0 if it is not known: the rank of a result depends on it."""
    return axes.size if axes is not None and isinstance(axes.size, int) else 0


@op("Transpose", types=ANY)
def transpose(b: Builder, x: Operand, *, perm: list[int] | None = None, with_channels_last: bool = False) -> Operand:
    """`with_channels_last`: the result is a channels-last image if x is all of a tensor."""
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
    """Returns `shape` if no dim is negative. A dim that may be negative is checked when a run's plan is made."""
    for d in shape:
        if limits(d)[0] < 0:
            b.require(less_equal(0, d), f"{what} {{}} has a negative extent", shape)
    return tuple(shape)


@op("Tile", types=ANY, repeats=INTEGERS)
def tile(b: Builder, x: Operand, repeats: Operand) -> Operand:
    """Repeats are new axes of stride 0, merged with the axes that they repeat."""
    counts = extents(b, repeats.dims("the number of repeats", x.rank), "the list of repeats")
    if len(counts) != x.rank:
        raise UnsupportedError(f"{len(counts)} repeats for {x}")
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
        b.require(equal(extent % each, 0), f"{{}} elements do not divide into blocks of {each}", extent)


@op("DepthToSpace", types=ANY)
def depth_to_space(b: Builder, x: Operand, *, blocksize: int, mode: DepthOrder = "DCR") -> Operand:
    """Blocks of channels become blocks of pixels. "DCR" takes the block from the outer channels, "CRD" from the inner."""
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
