"""Convolution as the matrix product of windows, positions by taps, and weights. The result is channels-last.

If the input is channels-last too, the taps of a window are runs of neighbouring channels. Any other image is read in its own
order. Rows of the matrix are the positions of all images of the batch, so one tile can contain rows of several images.
"""

from __future__ import annotations

from typing import Any

from ...dims import quotient
from ...ir import Read
from ...ir.signed_bytes import PADDING
from ..builder import Builder, Operand
from .matmul import matrix_product
from .window import Window, constants, parameters


def supports(x: Operand, w: Operand) -> bool:
    """Whether it supports a convolution in one group: the channels of the result must be whole vectors."""
    return x.dtype.is_float and quotient(w.shape[0], 4) is not None


def convolution_of_rows(b: Builder, x: Operand, w: Operand, win: Window) -> Operand:
    """Convolves x (batch, channels, *inputs) with w (features, channels, *kernel) to (batch, features, *outputs), in the
    accumulator type."""
    rank = win.rank
    image = b.permute(x, (0, *range(2, 2 + rank), 1))
    by_channels = Read(image.view, (1,) * image.rank).loads_vectors
    rows = rows_of_windows(b, x, image, win, by_channels)
    weights = b.contiguous(b.permute(w, (0, *range(2, 2 + rank), 1))) if by_channels else w
    shape = (x.shape[0], *win.outputs, w.shape[0])
    right = b.permute(weights, (*range(1, w.rank), 0))
    result = matrix_product(
        b, rows, (0, 1 + rank, 1 + rank), right, (0, 1 + rank, 1), shape, (0, 1 + rank, 1), x.dtype.accumulated
    )
    return b.formats.channels_last(len(shape)).in_result_order(result)


def rows_of_windows(
    b: Builder, x: Operand, image: Operand, win: Window, by_channels: bool, padding: int | None = None
) -> Operand:
    """Returns the windows of x, (batch, *outputs, *parts). The parts are taps and channels; or channels and taps, if channels
    are not contiguous in memory. `image` is x with its channels last. `padding` is the value of its padding, 0 for None."""
    rank, view = win.rank, win.view(x.view)
    taps = (*range(2, 2 + rank), 1) if by_channels else tuple(range(1, 2 + rank))
    if view is not None:
        rows = b.permute(b.view(x, view), (0, *range(2 + rank, 2 + 2 * rank), *taps))
        # Other windows are copied first, so that reads are contiguous.
        return rows if by_channels or win.overlap or win.taps == 1 else b.copy(rows)
    parts = (*win.kernel, x.shape[1]) if by_channels else (x.shape[1], *win.kernel)
    padded: dict[str, Any] = {} if padding is None else {PADDING: str(padding)}
    return b.map(
        "windows_last",
        x.dtype,
        (x.shape[0], *win.outputs, *parts),
        ("position", "part"),
        (1 + rank, 1 + rank),
        {"x": (image, (1,) * image.rank)},
        parameters=parameters(win) | {"channels": x.shape[1]},
        cost=4 + 2 * rank,
        reuse=True,
        inline=True,
        neighbours=by_channels,
        BY_CHANNELS=by_channels,
        **padded,
        **constants(win),
    )
