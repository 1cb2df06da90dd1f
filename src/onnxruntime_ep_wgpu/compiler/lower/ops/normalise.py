"""Normalisation: rows are the axes that statistics are taken over; views make rows of any axes or groups of channels."""

from __future__ import annotations

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import Dim, equal, floordiv
from ...ir import Read
from ...nodes import row_kernels
from ..builder import Builder, Operand
from .choices import Flag
from .chunked_rows import by_rows
from .reduction import reduce_axes
from .registry import FLOATS, REALS, at_least, op
from .shape import axis_of


def softmax_rows(
    b: Builder, x: Operand, axes: int, logarithm: bool = False, *, masked: bool = False, sink: Operand | None = None
) -> Operand:
    """Softmax over the last `axes` axes of x; with `masked`, a row of minus infinities gives zeros instead of NaN.

    A `sink`, of the shape of the other axes, is one more number of each row, for which there is no result.
    """
    kept = x.rank - axes
    sinks = [b.expand(sink, x.shape[:kept])] if sink is not None else []
    found = None
    if x.dtype is not DType.FLOAT64:
        found = by_rows(b, x, kept, lambda rows, *own: _softmax(b, rows, kept, logarithm, masked, *own), *sinks)
    if found is None:
        return _long_softmax(b, x, list(range(kept, x.rank)), logarithm, masked, *sinks)
    return b.cast(found[0], x.dtype)


def _softmax(
    b: Builder, x: Operand, kept: int, logarithm: bool, masked: bool, sink: Operand | None = None
) -> list[Operand]:
    """Softmax in the type in which sums are kept."""
    groups = (kept, x.rank - kept)
    return b.add(
        row_kernels.softmax(
            Read(x.view, groups, reuse=True),
            b.write(x.dtype.accumulated, x.shape, groups),
            b.target,
            logarithm=logarithm,
            masked=masked,
            sink=None if sink is None else Read(sink.view, (kept,)),
            origin=b.origin,
        )
    )


def _long_softmax(
    b: Builder, x: Operand, axes: list[int], logarithm: bool, masked: bool, sink: Operand | None = None
) -> Operand:
    """The same by reductions, for rows that no invocation comes to the end of, and for f64."""
    kind = DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32
    wide = b.cast(x, kind)
    highest = reduce_axes(b, "ReduceMax", wide, axes, True)
    if sink is not None:
        sink = b.reshape(sink, highest.shape)
        highest = b.pointwise("max(x, s)", {"x": highest, "s": sink}, kind)
    if masked:
        highest = b.pointwise("where(isinf(x) and x < 0, 0, x)", {"x": highest}, kind)
    shifted = b.pointwise("x - m", {"x": wide, "m": highest}, kind)
    powers = b.pointwise("exp(x)", {"x": shifted}, kind, cost=4)
    total = reduce_axes(b, "ReduceSum", powers, axes, True)
    if sink is not None:
        total = b.pointwise("t + exp(s - m)", {"t": total, "s": sink, "m": highest}, kind, cost=4)
    if logarithm:
        return b.pointwise("x - log(t)", {"x": shifted, "t": total}, x.dtype, cost=4)
    return b.pointwise("where(t == 0, 0, x / t)" if masked else "x / t", {"x": powers, "t": total}, x.dtype, cost=2)


def softmax_from(b: Builder, x: Operand, axis: int, logarithm: bool = False) -> Operand:
    """Softmax before version 13: all axes from `axis` on are one row."""
    return softmax_rows(b, x, x.rank - axis_of(axis, x.rank), logarithm)


def softmax_along(b: Builder, x: Operand, axis: int, logarithm: bool = False) -> Operand:
    """Softmax over one axis."""
    if x.rank == 0:
        return b.pointwise("x - x" if logarithm else "x - x + 1", {"x": x}, x.dtype)
    axis = axis_of(axis, x.rank)
    order = [*(k for k in range(x.rank) if k != axis), axis]
    return b.permute(softmax_rows(b, b.permute(x, order), 1, logarithm), np.argsort(order).tolist())


def _declare(name: str, logarithm: bool) -> None:
    @op(name, types=REALS)
    def flattened(b: Builder, x: Operand, *, axis: int = 1) -> Operand:
        return softmax_from(b, x, axis, logarithm)

    @op(name, since=13, types=REALS)
    def along(b: Builder, x: Operand, *, axis: int = -1) -> Operand:
        return softmax_along(b, x, axis, logarithm)


_declare("Softmax", False)
_declare("LogSoftmax", True)


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
    """x over its last `count` axes with mean 0 (when `centred`) and variance 1, and of `mean` and `inverse` deviation those
    that `statistics` names, in float32.

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
    """The same for rows that no invocation comes to the end of, by reductions."""
    mean, centre, squares = _moments(b, x, axes, centred)
    inverse = b.pointwise("1 / sqrt(v + epsilon)", {"v": squares}, DType.FLOAT32, cost=4, epsilon=float(epsilon))
    y = b.pointwise("x * s", {"x": centre, "s": inverse}, DType.FLOAT32)
    if gain is not None:
        y = b.pointwise("x * gain", {"x": y, "gain": gain}, DType.FLOAT32, x.shape)
    if bias is not None:
        y = b.pointwise("x + bias", {"x": y, "bias": bias}, DType.FLOAT32, x.shape)
    return {"y": y, "mean": mean, "inverse": inverse}


def _moments(b: Builder, x: Operand, axes: list[int], centred: bool = True) -> tuple[Operand, Operand, Operand]:
    """The mean of x over `axes`, x without it where that is `centred`, and the mean square of that, in float32."""
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
    """Normalises x over the axes from `axis` on; mean and inverse deviation are optional results."""
    count = x.rank - axis_of(axis, x.rank)
    y, *rest = normalised(
        b, x, count, epsilon, gain=gain, bias=bias, statistics=("mean", "inverse") if outputs > 1 else ()
    )
    return [b.cast(y, x.dtype), *rest]


@op("RMSNormalization", types=FLOATS, rows=("x",))
def rms_normalization(
    b: Builder, x: Operand, gain: Operand, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Operand:
    """x divided by the root of its mean square over the axes from `axis` on."""
    axis = axis_of(axis, x.rank)
    if gain.rank > x.rank - axis:  # one that varies between rows
        (y, *_) = normalised(b, x, x.rank - axis, epsilon, centred=False)
        return b.pointwise("x * gain", {"x": y, "gain": gain}, x.dtype, x.shape)
    return b.cast(normalised(b, x, x.rank - axis, epsilon, gain=gain, centred=False)[0], x.dtype)


@op("InstanceNormalization", types=FLOATS, ranks={"x": at_least(2)})
def instance_normalization(b: Builder, x: Operand, gain: Operand, bias: Operand, *, epsilon: float = 1e-5) -> Operand:
    """Each channel of each image to mean 0 and variance 1."""
    return channel_groups(b, x, gain, bias, x.shape[1], epsilon)


@op("GroupNormalization", types=FLOATS, ranks={"x": at_least(2)})
def group_normalization_18(
    b: Builder, x: Operand, gain: Operand, bias: Operand, *, num_groups: int, epsilon: float = 1e-5
) -> Operand:
    """Each group of channels to mean 0 and variance 1; scales and shifts are per group."""
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
    """Requires that channels make whole groups. Raises UnsupportedError for a number of groups that none make."""
    if groups < 1:
        raise UnsupportedError(f"attribute num_groups={groups} must be positive")
    b.require(equal(channels % groups, 0), f"{{}} channels do not make {groups} groups", channels)


def channel_groups(b: Builder, x: Operand, gain: Operand, bias: Operand, groups: Dim, epsilon: float) -> Operand:
    """Rows of all elements of a group of channels of x (batch, channels, ...); `gain` and `bias` are per channel and follow
    in the same kernel."""
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
    """x divided by its p-norm along an axis; zeros stay zeros."""
    if not x.rank or p not in (1, 2):
        raise UnsupportedError(f"the norm of order {p} of {x}")
    norm = reduce_axes(b, "ReduceL1" if p == 1 else "ReduceL2", x, [axis_of(axis, x.rank)], True)
    return b.pointwise("where(norm == 0, 0, x / norm)", {"x": x, "norm": norm}, x.dtype, cost=2)


@op("LRN", types=FLOATS)
def local_response_normalization(
    b: Builder, x: Operand, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Operand:
    """x divided by a power of the sum of squares over `size` neighbouring channels."""
    if size < 1 or x.rank < 2:
        raise UnsupportedError(f"{size} neighbouring channels of {x}")
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
    """x (batch, channels, ...) times a number, plus one of each channel. Models of opsets before 10 have it."""
    if not bias:
        return b.pointwise("x * f", {"x": x}, x.dtype, f=scale)
    b.require(equal(x.shape[1], len(bias)), f"{{}} channels for the {len(bias)} numbers of bias", x.shape[1])
    added = b.constant(np.array(bias, np.float32).reshape(-1, *(1,) * (x.rank - 2)))
    return b.pointwise("x * f + y", {"x": x, "y": added}, x.dtype, x.shape, f=scale)


@op("BatchNormalization", types=REALS, keeps_format=True)
def batch_normalization_7(
    b: Builder,
    x: Operand,
    scale: Operand,
    bias: Operand,
    mean: Operand,
    variance: Operand,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: Flag = 1,
    outputs: int = 1,
) -> list[Operand]:
    """Versions 7 to 13, where further results ask for the statistics of the batch. The last ones are its mean and, as from the CPU
    provider, its inverse deviation."""
    if not spatial:
        raise UnsupportedError("statistics per element of an image (spatial=0)")
    if outputs == 1:
        return [_with_statistics(b, x, scale, bias, mean, variance, epsilon)]
    _check_training(x, scale, bias, mean, variance)
    y, own_mean, own_variance = _with_own_statistics(b, x, scale, bias, epsilon)
    running = _running(b, mean, own_mean, momentum), _running(b, variance, own_variance, momentum)
    inverse = b.pointwise("1 / sqrt(v + epsilon)", {"v": own_variance}, variance.dtype, cost=4, epsilon=float(epsilon))
    return [y, *running, b.cast(own_mean, mean.dtype), inverse]


@op("BatchNormalization", since=14, types=REALS, keeps_format=True)
def batch_normalization(
    b: Builder,
    x: Operand,
    scale: Operand,
    bias: Operand,
    mean: Operand,
    variance: Operand,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: Flag = 0,
) -> list[Operand]:
    """Per channel of x (batch, channels, ...). In training mode with the statistics of the batch, and beside the result the running
    mean and variance, of which the batch has a share of 1 - momentum; its variance is that of all its elements, not of a sample."""
    if not training_mode:
        return [_with_statistics(b, x, scale, bias, mean, variance, epsilon)]
    _check_training(x, scale, bias, mean, variance)
    y, own_mean, own_variance = _with_own_statistics(b, x, scale, bias, epsilon)
    return [y, _running(b, mean, own_mean, momentum), _running(b, variance, own_variance, momentum)]


def _check_training(*operands: Operand) -> None:
    if any(it.dtype is DType.FLOAT64 for it in operands):
        raise UnsupportedError("training with statistics of float64")


def _with_statistics(
    b: Builder, x: Operand, scale: Operand, bias: Operand, mean: Operand, variance: Operand, epsilon: float
) -> Operand:
    """With stored statistics, per channel: one multiplication and one addition when these are constants."""
    channels = (-1,) + (1,) * (x.rank - 2)
    constants = [o.constant for o in (scale, bias, mean, variance)]
    double = x.dtype is DType.FLOAT64
    if all(c is not None for c in constants):
        s, o, m, v = (np.asarray(c, np.float64) for c in constants)
        factor, kind = s / np.sqrt(v + epsilon), np.float64 if double else np.float32
        a = b.constant(factor.astype(kind).reshape(channels))
        c = b.constant((o - m * factor).astype(kind).reshape(channels))
        return b.pointwise("x * a + c", {"x": x, "a": a, "c": c}, x.dtype, x.shape, cost=2)

    def cast(o: Operand) -> Operand:
        """Statistics may be of another type than x, and no expression has both kinds of floats."""
        if double == (o.dtype is DType.FLOAT64):
            return o
        return b.cast(o, DType.FLOAT64 if double else DType.FLOAT32)

    return b.pointwise(
        "(x - m) * (s / sqrt(v + epsilon)) + o",
        {
            "x": x,
            **{n: _per_channel(b, cast(o), x) for n, o in {"s": scale, "o": bias, "m": mean, "v": variance}.items()},
        },
        x.dtype,
        x.shape,
        cost=8,
        epsilon=epsilon,
    )


def _with_own_statistics(
    b: Builder, x: Operand, scale: Operand, bias: Operand, epsilon: float
) -> tuple[Operand, Operand, Operand]:
    """x with the mean and variance of each of its channels, and these, (channels) in float32."""
    if x.rank < 2:
        raise UnsupportedError(f"statistics of {x}, which has no channels: its axes are batch, channels and more")
    mean, centre, variance = _moments(b, x, [k for k in range(x.rank) if k != 1])
    y = b.pointwise(
        "x * (s / sqrt(v + epsilon)) + o",
        {"x": centre, "s": _per_channel(b, scale, x), "v": variance, "o": _per_channel(b, bias, x)},
        x.dtype,
        x.shape,
        cost=8,
        epsilon=float(epsilon),
    )
    return y, b.reshape(mean, (x.shape[1],)), b.reshape(variance, (x.shape[1],))


def _per_channel(b: Builder, o: Operand, x: Operand) -> Operand:
    """A vector along the channels of x."""
    return b.reshape(o, (o.shape[0], *(1,) * (x.rank - 2)))


def _running(b: Builder, before: Operand, batch: Operand, momentum: float) -> Operand:
    """What a statistic of all batches is behind this one."""
    kept, new = float(momentum), 1 - float(momentum)
    return b.pointwise("r * kept + x * new", {"r": before, "x": batch}, before.dtype, kept=kept, new=new, cost=2)
