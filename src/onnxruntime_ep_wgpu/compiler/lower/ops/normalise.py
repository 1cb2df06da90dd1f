"""Normalisation. A row is the axes that statistics are computed over. Views make rows of any axes or groups of channels."""

from __future__ import annotations

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import Dim, equal, floordiv
from ...ir import Read
from ...nodes import row_kernels
from ..builder import Builder, Operand
from .chunked_rows import by_rows
from .named_axes import axis_of
from .reduction import reduce_axes
from .registry import FLOATS, at_least, op


def normalised(
    b: Builder,
    x: Operand,
    count: int,
    epsilon: float,
    *,
    gain: Operand | None = None,
    bias: Operand | None = None,
    centred: bool = True,
    statistics: tuple[str, ...] = (),
) -> list[Operand]:
    """Returns x normalised over its last `count` axes to mean 0 (if `centred`) and variance 1. Then follow `mean` and
    `inverse` deviation in float32, if `statistics` names them.

    `gain` and `bias` are per element of a row.
    """
    kept = x.rank - count
    found = by_rows(b, x, kept, lambda rows: _normalised(b, rows, count, epsilon, gain, bias, centred, statistics))
    if found is None:
        made = _long_normalised(b, x, list(range(kept, x.rank)), epsilon, gain, bias, centred)
        return [made[name] for name in ("y", *statistics)]
    return found


def _normalised(
    b: Builder,
    x: Operand,
    count: int,
    epsilon: float,
    gain: Operand | None,
    bias: Operand | None,
    centred: bool,
    statistics: tuple[str, ...],
) -> list[Operand]:
    kept = x.rank - count
    inner = x.shape[kept:]
    gain = gain if gain is not None else b.constant(np.ones(1, np.float32))
    bias = bias if bias is not None else b.constant(np.zeros(1, np.float32))
    results = {"y": b.write(x.dtype.accumulated, x.shape, (kept, count))}
    for name in statistics:
        results[name] = b.write(DType.FLOAT32, (*x.shape[:kept], *(1,) * count), (x.rank,))
    return b.add(
        row_kernels.layer_norm(
            Read(x.view, (kept, count), reuse=True),
            b.expand(gain, inner).view,
            b.expand(bias, inner).view,
            results,
            b.target,
            epsilon=epsilon,
            centred=centred,
            origin=b.origin,
        )
    )


def _long_normalised(
    b: Builder, x: Operand, axes: list[int], epsilon: float, gain: Operand | None, bias: Operand | None, centred: bool
) -> dict[str, Operand]:
    """The same for rows that exceed the loop limit of an invocation, by reductions."""
    mean, centre, squares = moments(b, x, axes, centred)
    inverse = b.pointwise("1 / sqrt(v + epsilon)", {"v": squares}, DType.FLOAT32, cost=4, epsilon=float(epsilon))
    y = b.pointwise("x * s", {"x": centre, "s": inverse}, DType.FLOAT32)
    if gain is not None:
        y = b.pointwise("x * gain", {"x": y, "gain": gain}, DType.FLOAT32, x.shape)
    if bias is not None:
        y = b.pointwise("x + bias", {"x": y, "bias": bias}, DType.FLOAT32, x.shape)
    return {"y": y, "mean": mean, "inverse": inverse}


def moments(b: Builder, x: Operand, axes: list[int], centred: bool = True) -> tuple[Operand, Operand, Operand]:
    """Returns the mean of x over `axes`, x minus the mean if `centred` and else x, and the mean square of that, in float32."""
    wide = b.cast(x, DType.FLOAT32)
    mean = reduce_axes(b, "ReduceMean", wide, axes, True)
    centre = b.pointwise("x - m", {"x": wide, "m": mean}, DType.FLOAT32) if centred else wide
    squares = reduce_axes(b, "ReduceMean", b.pointwise("x * x", {"x": centre}, DType.FLOAT32), axes, True)
    return mean, centre, squares


@op("LayerNormalization", types=FLOATS, rows=("x",))
def layer_normalization(
    b: Builder,
    x: Operand,
    gain: Operand,
    bias: Operand | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int = 1,
) -> list[Operand]:
    """Normalises x over the axes from `axis` on. Mean and inverse deviation are optional results."""
    count = x.rank - axis_of(axis, x.rank)
    y, *rest = normalised(
        b, x, count, epsilon, gain=gain, bias=bias, statistics=("mean", "inverse") if outputs > 1 else ()
    )
    return [b.cast(y, x.dtype), *rest]


@op("RMSNormalization", types=FLOATS, rows=("x",))
def rms_normalization(
    b: Builder, x: Operand, gain: Operand, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Operand:
    """Returns x divided by the root of its mean square over the axes from `axis` on."""
    axis = axis_of(axis, x.rank)
    if gain.rank > x.rank - axis:  # a gain that varies between rows
        (y, *_) = normalised(b, x, x.rank - axis, epsilon, centred=False)
        return b.pointwise("x * gain", {"x": y, "gain": gain}, x.dtype, x.shape)
    return b.cast(normalised(b, x, x.rank - axis, epsilon, gain=gain, centred=False)[0], x.dtype)


@op("InstanceNormalization", types=FLOATS, ranks={"x": at_least(2)})
def instance_normalization(b: Builder, x: Operand, gain: Operand, bias: Operand, *, epsilon: float = 1e-5) -> Operand:
    """Normalises each channel of each image to mean 0 and variance 1."""
    return channel_groups(b, x, gain, bias, x.shape[1], epsilon)


@op("GroupNormalization", types=FLOATS, ranks={"x": at_least(2)})
def group_normalization_18(
    b: Builder, x: Operand, gain: Operand, bias: Operand, *, num_groups: int, epsilon: float = 1e-5
) -> Operand:
    """Normalises each group of channels to mean 0 and variance 1. Scales and shifts are per group."""
    check_groups(b, x.shape[1], num_groups)
    each = floordiv(x.shape[1], num_groups)

    def spread(o: Operand) -> Operand:
        return b.reshape(b.expand(b.reshape(o, (num_groups, 1)), (num_groups, each)), (num_groups * each,))

    return channel_groups(b, x, spread(gain), spread(bias), num_groups, epsilon)


@op("GroupNormalization", since=21, types=FLOATS, ranks={"x": at_least(2)})
def group_normalization(
    b: Builder, x: Operand, gain: Operand, bias: Operand, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Operand:
    """As before version 21, with scales and shifts per channel."""
    check_groups(b, x.shape[1], num_groups)
    return channel_groups(b, x, gain, bias, num_groups, epsilon)


def check_groups(b: Builder, channels: Dim, groups: int) -> None:
    """Requires that the channels divide into groups. Raises UnsupportedError for a number of groups that is not positive."""
    if groups < 1:
        raise UnsupportedError(f"attribute num_groups={groups} must be positive")
    b.require(equal(channels % groups, 0), f"{{}} channels do not divide into {groups} groups", channels)


def channel_groups(b: Builder, x: Operand, gain: Operand, bias: Operand, groups: Dim, epsilon: float) -> Operand:
    """Normalises each group of channels of x (batch, channels, ...), all elements of a group as one row. `gain` and `bias`
    are per channel, and are applied in the same kernel."""
    rows = b.reshape(x, (x.shape[0], groups, floordiv(x.shape[1], groups), *x.shape[2:]))
    (y,) = normalised(b, rows, rows.rank - 2, epsilon)
    channels = (x.shape[1], *(1,) * (x.rank - 2))
    return b.pointwise(
        "x * gain + bias",
        {"x": b.reshape(y, x.shape), "gain": b.reshape(gain, channels), "bias": b.reshape(bias, channels)},
        x.dtype,
        x.shape,
        cost=2,
    )


@op("MeanVarianceNormalization", types=FLOATS)
def mean_variance_normalization(b: Builder, x: Operand, *, axes: list[int] | None = None) -> Operand:
    over = sorted({axis_of(a, x.rank) for a in (axes if axes is not None else (0, 2, 3))})
    order = [*(k for k in range(x.rank) if k not in over), *over]
    (y,) = normalised(b, b.permute(x, order), len(over), 1e-18)
    return b.permute(b.cast(y, x.dtype), np.argsort(order).tolist())


@op("LpNormalization", types=FLOATS)
def lp_normalization(b: Builder, x: Operand, *, axis: int = -1, p: int = 2) -> Operand:
    """Returns x divided by its p-norm along an axis; zeros stay zeros."""
    if not x.rank or p not in (1, 2):
        raise UnsupportedError(f"the norm of order {p} of {x} is not supported")
    norm = reduce_axes(b, "ReduceL1" if p == 1 else "ReduceL2", x, [axis_of(axis, x.rank)], True)
    return b.pointwise("where(norm == 0, 0, x / norm)", {"x": x, "norm": norm}, x.dtype, cost=2)


@op("LRN", types=FLOATS)
def local_response_normalization(
    b: Builder, x: Operand, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Operand:
    """Returns x divided by a power of the sum of squares over `size` neighbouring channels."""
    if size < 1 or x.rank < 2:
        raise UnsupportedError(f"{size} neighbouring channels of {x} are not supported")
    groups = (1, 1, x.rank - 2)
    return b.map(
        "local_response",
        x.dtype,
        x.shape,
        ("image", "channel", "inner"),
        groups,
        {"x": (x, groups)},
        parameters={"channels": x.shape[1]},
        cost=24,
        reuse=True,
        iterations=size,
        SIZE=size,
        ALPHA=float(alpha),
        BETA=float(beta),
        BIAS=float(bias),
    )


@op("ImageScaler", types=FLOATS, ranks={"x": at_least(2)})
def image_scaler(b: Builder, x: Operand, *, scale: float = 1.0, bias: list[float] | None = None) -> Operand:
    """Returns x (batch, channels, ...) times a number, plus a bias per channel. It occurs in models of opsets before 10."""
    if not bias:
        return b.pointwise("x * f", {"x": x}, x.dtype, f=scale)
    b.require(equal(x.shape[1], len(bias)), f"{{}} channels for the {len(bias)} numbers of bias", x.shape[1])
    added = b.constant(np.array(bias, np.float32).reshape(-1, *(1,) * (x.rank - 2)))
    return b.pointwise("x * f + y", {"x": x, "y": added}, x.dtype, x.shape, f=scale)
