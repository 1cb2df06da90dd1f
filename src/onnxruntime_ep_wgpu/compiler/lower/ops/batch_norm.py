"""BatchNormalization, with running statistics or those of the batch."""

from __future__ import annotations

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ..builder import Builder, Operand
from .choices import Flag
from .normalise import moments
from .registry import REALS, op


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
    """Versions 7 to 13. If the node has further results, it uses the statistics of the batch. The last results are the
    batch's mean and, as from the CPU provider, its inverse deviation."""
    if not spatial:
        raise UnsupportedError("statistics per element of an image (spatial=0) are not supported")
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
    """Normalises x (batch, channels, ...) per channel. Training mode uses the statistics of the batch. It also returns the
    running mean and variance, to which the batch contributes 1 - momentum. Its variance is the population variance, not that
    of a sample."""
    if not training_mode:
        return [_with_statistics(b, x, scale, bias, mean, variance, epsilon)]
    _check_training(x, scale, bias, mean, variance)
    y, own_mean, own_variance = _with_own_statistics(b, x, scale, bias, epsilon)
    return [y, _running(b, mean, own_mean, momentum), _running(b, variance, own_variance, momentum)]


def _check_training(*operands: Operand) -> None:
    if any(it.dtype is DType.FLOAT64 for it in operands):
        raise UnsupportedError("training with statistics of float64 is not supported")


def _with_statistics(
    b: Builder, x: Operand, scale: Operand, bias: Operand, mean: Operand, variance: Operand, epsilon: float
) -> Operand:
    """Normalises with stored statistics per channel: one multiplication and one addition if these are constants."""
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
        """Statistics may have another type than x, and no expression mixes kinds of floats."""
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
    """Returns x normalised with the mean and variance of each channel, and these, (channels) in float32."""
    if x.rank < 2:
        raise UnsupportedError(
            f"statistics of {x}, which has no channels: at least the axes batch and channels are needed"
        )
    mean, centre, variance = moments(b, x, [k for k in range(x.rank) if k != 1])
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
    """Returns a vector that broadcasts along the channels of x."""
    return b.reshape(o, (o.shape[0], *(1,) * (x.rank - 2)))


def _running(b: Builder, before: Operand, batch: Operand, momentum: float) -> Operand:
    """Returns a running statistic, updated with this batch."""
    kept, new = float(momentum), 1 - float(momentum)
    return b.pointwise("r * kept + x * new", {"r": before, "x": batch}, before.dtype, kept=kept, new=new, cost=2)
