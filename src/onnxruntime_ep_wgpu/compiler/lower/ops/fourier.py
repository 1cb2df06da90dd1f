"""Fourier transforms: DFT, STFT, and MelWeightMatrix, which commonly follows them.

If a row's length has only small factors and fits into workgroup memory, one kernel does all steps, and loads and stores the
row once. Otherwise a transform of N elements takes one kernel per factor of N. A step combines RADIX transforms to one, in
Stockham's order, without a separate reordering (C. Van Loan, Computational Frameworks for the FFT, 1992). Accumulation is in
f32 for f16 too. The table of roots of unity is computed in f64. Where the CPU provider differs from ONNX's definition, these
follow the definition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import Dim, equal, floordiv, maximum, product
from ..builder import Builder, Operand
from .choices import Flag
from .fourier_rows import in_workgroups
from .named_axes import axis_of, one_axis_of
from .pointwise import type_of
from .registry import FLOATS, INTEGERS, KnownShape, at_least, op

MOST = 1 << 20
"""The maximum number of elements of a transform: the table of roots takes 8 bytes each."""
MOST_RADIX = 16
"""The largest factor of a step, except for larger primes, which are steps of their own. A step of fewer parts reads less, but
more steps store more."""


@op("DFT", since=17, types=FLOATS, dft_length=INTEGERS, ranks={"x": at_least(2)})
def dft_17(
    b: Builder,
    x: Operand,
    dft_length: Operand | None = None,
    *,
    axis: int = 1,
    inverse: Flag = 0,
    onesided: Flag = 0,
) -> Operand:
    """Versions 17 to 19, with the axis as an attribute."""
    return _dft(b, x, dft_length, axis_of(axis, x.rank), bool(inverse), bool(onesided))


@op("DFT", since=20, types=FLOATS, dft_length=INTEGERS, axis=INTEGERS, ranks={"x": at_least(2)})
def dft(
    b: Builder,
    x: Operand,
    dft_length: Operand | None = None,
    axis: Operand | None = None,
    *,
    inverse: Flag = 0,
    onesided: Flag = 0,
    result_shapes: Sequence[KnownShape | None] = (),
) -> Operand:
    """The last axis of x contains real parts, or real and imaginary parts."""

    def result(axes: tuple[int, ...]) -> list[Dim] | None:
        along = axes[0]
        extent: Dim = 2 * (x.shape[along] - 1) if inverse and onesided else x.shape[along]
        if along == x.rank - 1 or extent == 0:
            return None
        if onesided and not inverse:
            extent = floordiv(extent, 2) + 1
        others = [*x.shape[:-1], 1 if inverse and onesided else 2]
        return others if dft_length is not None else [*others[:along], extent, *others[along + 1 :]]

    along = one_axis_of(b, axis, x.rank, x.rank - 2, result, result_shapes)
    return _dft(b, x, dft_length, along, bool(inverse), bool(onesided))


def _dft(b: Builder, x: Operand, length: Operand | None, axis: int, inverse: bool, onesided: bool) -> Operand:
    if axis == x.rank - 1:
        raise UnsupportedError(f"axis {axis} contains the parts of complex numbers, and cannot be transformed")
    half = inverse and onesided
    extent: Dim = 2 * (x.shape[axis] - 1) if half else x.shape[axis]
    if length is not None:
        extent = _single_dim(length, "the length of the transform")
    usual = x.shape[axis]
    guess = usual if isinstance(usual, int) else 1
    (count,) = b.assumed_ints([extent], "the length of the transform", lambda _: [guess])
    others = [k for k in range(x.rank - 1) if k != axis]
    rows = b.permute(x, [*others, axis, x.rank - 1])
    found = _transformed(b, b.reshape(rows, (product(rows.shape[:-2]), *rows.shape[-2:])), count, inverse, onesided)
    back = b.reshape(found, (*rows.shape[:-2], *found.shape[1:]))
    order = [*others, axis, x.rank - 1]
    return b.cast(b.permute(back, [order.index(k) for k in range(x.rank)]), x.dtype)


@op("STFT", since=17, types=FLOATS, frame_step=INTEGERS, frame_length=INTEGERS, ranks={"signal": 3, "window": 1})
def stft(
    b: Builder,
    signal: Operand,
    frame_step: Operand,
    window: Operand | None = None,
    frame_length: Operand | None = None,
    *,
    onesided: Flag = 1,
) -> Operand:
    """Returns the transform of each frame, multiplied with the window: signal (batch, elements, 1 or 2) to (batch, frames,
    bins, 2)."""
    (step,) = b.assumed_ints(
        [_single_dim(frame_step, "the step of the frames")], "the step of the frames", lambda _: [1]
    )
    if step < 1:
        raise UnsupportedError(f"the step of the frames is {step}")
    extent = signal.shape[1] if window is None else window.shape[0]
    if frame_length is not None:
        extent = _single_dim(frame_length, "the length of the frames")
    guess = extent if isinstance(extent, int) else 1
    (count,) = b.assumed_ints([extent], "the length of the frames", lambda _: [guess])
    if onesided and signal.shape[2] == 2:
        raise UnsupportedError("a one-sided transform of complex numbers is not supported")
    if count < 1:
        raise UnsupportedError(f"the length of the frames is {count}")
    if window is not None:
        b.require(equal(window.shape[0], count), "a window of {} elements for frames of {}", window.shape[0], count)
    frames = maximum(0, floordiv(signal.shape[1] - count, step) + 1)
    operands = {"x": (signal, (1, 1, 1))} | ({} if window is None else {"window": (window, (1,))})
    text = "return x_at(batch, frame * $STEP + k, c);"
    if window is not None:
        text = "return x_at(batch, frame * $STEP + k, c) * window_at(k);"
    shape = (signal.shape[0], frames, count, signal.shape[2])
    taken = b.map(text, DType.FLOAT32, shape, ("batch", "frame", "k", "c"), (1,) * 4, operands, reuse=True, STEP=step)
    rows = b.reshape(taken, (product(shape[:2]), *shape[2:]))
    found = _transformed(b, rows, count, False, bool(onesided))
    return b.cast(b.reshape(found, (*shape[:2], *found.shape[1:])), signal.dtype)


def _transformed(b: Builder, x: Operand, count: int, inverse: bool, onesided: bool) -> Operand:
    """Returns x (rows, elements, 1 or 2) as (rows, bins, 2), f32. With `inverse` and `onesided`, x is one half, and the
    result is real."""
    parts = x.shape[2]
    if parts not in (1, 2):
        raise UnsupportedError(
            f"the last axis has {parts} elements: 1 for real numbers, or 2 for complex ones, is needed"
        )
    if not 1 <= count <= MOST:
        raise UnsupportedError(f"a transform of {count} elements: 1 to {MOST} are supported")
    half = inverse and onesided
    if half and parts == 1:
        raise UnsupportedError("the inverse of a one-sided transform needs complex numbers")
    if onesided and not inverse and parts == 2:
        raise UnsupportedError("a one-sided transform of complex numbers is not supported")
    angles = (2 if inverse else -2) * np.pi * np.arange(count) / count
    roots = b.constant(np.stack([np.cos(angles), np.sin(angles)], -1).astype(np.float32))
    rows, inputs = x.shape[0], x.shape[1]
    scale = 1 / count if inverse else 1.0
    if (found := in_workgroups(b, x, roots, count, half, onesided, 1.0 if inverse else -1.0, scale)) is not None:
        return found
    state, length = b.reshape(x, (rows, inputs, 1, parts)), 1
    radices = _radices(count)
    for k, radix in enumerate(radices):
        last = k == len(radices) - 1
        bins = length * radix
        rest = count // bins
        shape = (rows, rest, count // 2 + 1 if last and onesided and not half else bins, 1 if last and half else 2)
        state = b.map(
            "fourier_step",
            DType.FLOAT32,
            shape,
            ("row", "other", "bin", "c"),
            (1,) * 4,
            {"x": (state, (1,) * 4), "roots": (roots, (1, 1))},
            parameters={"inputs": inputs, "rest": rest},
            cost=min(64, 4 * radix),
            reuse=True,
            iterations=radix,
            FIRST=k == 0,
            HALF=half,
            COMPLEX=parts == 2,
            ALL=count,
            LENGTH=length,
            RADIX=radix,
            SCALE=scale if last else 1.0,
        )
        length = bins
    return b.reshape(state, (rows, *state.shape[2:]))


def _radices(count: int) -> list[int]:
    """Returns the fewest factors of `count` such that none except primes is above MOST_RADIX, the largest first."""
    primes, left, p = [], count, 2
    while p * p <= left:
        while left % p == 0:
            primes.append(p)
            left //= p
        p += 1
    primes += [left] if left > 1 or not primes else []
    found: list[int] = []
    for prime in sorted(primes, reverse=True):
        fits = [k for k, it in enumerate(found) if it * prime <= MOST_RADIX]
        if fits:
            found[min(fits, key=found.__getitem__)] *= prime
        else:
            found.append(prime)
    return sorted(found, reverse=True)


@op("MelWeightMatrix", since=17, types=INTEGERS, lower_edge_hertz=FLOATS, upper_edge_hertz=FLOATS)
def mel_weight_matrix(
    b: Builder,
    num_mel_bins: Operand,
    dft_length: Operand,
    sample_rate: Operand,
    lower_edge_hertz: Operand,
    upper_edge_hertz: Operand,
    *,
    output_datatype: int = 1,
) -> Operand:
    """Returns triangles on the mel scale, (bins of a one-sided transform, bands): a constant for the values of its inputs."""

    def whole(x: Operand, what: str, usual: int) -> int:
        return b.assumed_ints([_single_dim(x, what)], what, lambda _: [usual])[0]

    def real(x: Operand, what: str, usual: float) -> float:
        x.check_one(what)
        return b.assumed_floats(x, what, lambda _: [usual])[0]

    bands, length = whole(num_mel_bins, "the number of bands", 8), whole(dft_length, "the length of the transform", 16)
    rate = whole(sample_rate, "the sample rate", 8000)
    edges = real(lower_edge_hertz, "the lower edge", 0.0), real(upper_edge_hertz, "the upper edge", 4000.0)
    dtype = type_of(output_datatype)
    if dtype not in FLOATS:
        raise UnsupportedError(f"results of type {dtype.label} are not supported")
    return b.cast(b.constant(_triangles(bands, length, rate, *edges)), dtype)


def _single_dim(x: Operand, what: str) -> Dim:
    found = x.dims(what, 1)
    if len(found) != 1:
        raise UnsupportedError(f"{what} is {x} and not one number")
    return found[0]


def _triangles(bands: int, length: int, rate: int, low: float, high: float) -> np.ndarray:
    if bands < 0 or length < 0 or rate < 1 or not (0 <= low <= high < math.inf) or bands * length > MOST:
        raise UnsupportedError(
            f"{bands} bands from {low} to {high} Hz of {length} elements at {rate} Hz are not supported"
        )

    def mel(hertz: float) -> float:
        return 2595 * math.log10(1 + hertz / 700)

    step = (mel(high) - mel(low)) / (bands + 2)
    hertz = 700 * (10 ** ((mel(low) + step * np.arange(bands + 2)) / 2595) - 1)
    bins = np.floor((length + 1) * hertz / rate).astype(np.int64)
    result = np.zeros((length // 2 + 1, bands), np.float32)
    if bands and bins[-1] > length // 2 + 1:
        raise UnsupportedError(f"the upper edge, {high} Hz, is above half of the sample rate, {rate} Hz")
    for k in range(bands):
        left, middle, right = (int(it) for it in bins[k : k + 3])
        if middle == left:
            result[middle : middle + 1, k] = 1
        else:
            rising = np.arange(left, min(middle + 1, len(result)))
            result[rising, k] = (rising - left) / (middle - left)
        if right > middle:
            falling = np.arange(middle, min(right, len(result)))
            result[falling, k] = (right - falling) / (right - middle)
    return result
