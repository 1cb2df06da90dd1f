"""Convolutions of bytes minus their zero points as products of signed bytes by matrix units, exact in int32.

Results are channels-last, like those of `conv_rows`. Windows consist of bytes. An image is padded with its zero point, so
that the same sums of weights are added at every position.
"""

from __future__ import annotations

import numpy as np

from ....program.dtypes import DType
from ...dims import Dim, ceildiv, product, quotient
from ...ir import Read
from ..builder import Builder, Operand
from .byte_products import by_units, lacking, plus, signed, sums_of
from .conv_rows import rows_of_windows
from .matmul import matrix_product
from .window import Window


def sums_by_units(b: Builder, x: Operand, x_zero: Operand | None, w: Operand, win: Window) -> Operand | None:
    """Returns the sums of windows of x - x_zero, (batch, channels, *inputs), by int8 weights w, (features, channels,
    *kernel), as int32 (batch, features, *outputs). Returns None if matrix units do not multiply them, or if a run decides the
    padding value."""
    zero = np.zeros((), x.dtype.numpy) if x_zero is None else x_zero.constant
    if zero is None and not win.is_padded:
        zero = np.zeros((), x.dtype.numpy)
    if w.dtype is not DType.INT8 or w.constant is None or quotient(w.shape[0], 4) is None or zero is None:
        return None
    rank = win.rank
    rows, parts = product((x.shape[0], *win.outputs)), product(w.shape[1:])
    if not by_units(b, (1, rows, w.shape[0], parts)):
        return None
    number, last = int(np.asarray(zero).item()), (0, *range(2, 2 + rank), 1)
    p, features = lacking(b, x, x_zero), b.reshape(w, (w.shape[0], parts))
    if not Read(b.permute(x, last).view, (1,) * x.rank).loads_vectors:
        x, w = _in_fours(b, x, number), b.constant(_with_zeros(np.asarray(w.constant)))
    numbers = signed(b, x)
    padding = number - (128 if x.dtype is DType.UINT8 else 0)
    windows = rows_of_windows(b, numbers, b.permute(numbers, last), win, True, padding)
    right = b.permute(signed(b, b.contiguous(b.permute(w, last))), (*range(1, w.rank), 0))
    shape: tuple[Dim, ...] = (x.shape[0], *win.outputs, w.shape[0])
    groups = (0, 1 + rank, 1)
    made = matrix_product(b, windows, (0, 1 + rank, 1 + rank), right, (0, 1 + rank, 1), shape, groups, DType.INT32)
    result = b.formats.channels_last(len(shape)).in_result_order(made)
    if p is None:
        return result
    return plus(b, result, p, b.reshape(sums_of(b, features, None, 1), (w.shape[0], *(1,) * rank)))


def _in_fours(b: Builder, x: Operand, zero: int) -> Operand:
    """Returns x stored channels-last, padded with channels of `zero` to a multiple of four, so that four channels are a word.
    Without this, windows of an image with few channels are read byte by byte. That took 337 us on an H100 for the first
    convolution of ResNet-50."""
    groups = (1, x.rank - 2, 1)
    image = b.permute(x, (0, *range(2, x.rank), 1))
    made = b.map(
        "if (channel >= $channels) { return $out_t($ZERO); } return x_at(image, place, channel);",
        x.dtype,
        (*image.shape[:-1], ceildiv(x.shape[1], 4) * 4),
        ("image", "place", "channel"),
        groups,
        {"x": (image, groups)},
        parameters={"channels": x.shape[1]},
        ZERO=zero,
    )
    return b.formats.channels_last(x.rank).in_result_order(made)


def _with_zeros(weights: np.ndarray) -> np.ndarray:
    """Returns weights padded with channels of zeros to a multiple of four."""
    more = -weights.shape[1] % 4
    return np.pad(weights, [(0, 0), (0, more), *[(0, 0)] * (weights.ndim - 2)])
