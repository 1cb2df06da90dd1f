"""2D convolution that reads the image directly, for adapters with a cache as fast as their workgroup memory."""

from __future__ import annotations

import numpy as np

from ...dims import Dim, product
from ...ir import Read
from ...tune import direct_convolutions
from ...tune.convolutions import ConvolutionShape
from ..builder import Builder, Operand
from .window import Window


def supports(b: Builder, w: Operand, win: Window) -> bool:
    """Whether the target uses this kernel for such convolutions, and the loops over taps and channels are within its limit."""
    size = w.shape[1]
    if win.rank > 2 or not direct_convolutions(product(win.outputs), b.target):
        return False
    longest = b.target.longest_loop
    if not isinstance(w.shape[0], int) or not isinstance(size, int):
        return False
    return longest is None or (size + 2) * win.taps <= longest


def direct_convolution(b: Builder, x: Operand, w: Operand, win: Window, groups: int) -> Operand:
    """Convolves x (batch, groups * channels, *inputs) with w (groups * outputs, channels, *kernel) to (batch, ..., *outputs).

    There are one or two spatial axes. The result has the accumulator type.
    """
    one: tuple[Dim, ...] = (1,) * (2 - win.rank)  # a single axis gets a leading axis of extent 1
    none: tuple[Dim, ...] = (0,) * (2 - win.rank)
    height, width = one + win.inputs
    rows, columns = one + win.outputs
    taps_x = win.kernel[-1]
    assert isinstance(w.shape[0], int)
    outputs, channels = w.shape[0] // groups, w.shape[1]
    image = b.reshape(x, (x.shape[0], x.shape[1], height, width))
    pixels = rows * columns
    forms = direct_convolutions(pixels, b.target)
    shape = ConvolutionShape(x.shape[0] * groups, outputs, pixels)
    if forms[0][1].in_fours:
        weights = Read(_by_tap(b, w, groups, outputs, win.taps).view, (1, 1, 1, 1), reuse=True, vector=True)
    else:
        weights = Read(b.reshape(w, (*w.shape[:2], win.taps)).view, (1, 1, 1), reuse=True)

    stride_y, stride_x = (1,) * (2 - win.rank) + win.strides
    dilation_y, dilation_x = (1,) * (2 - win.rank) + win.dilations
    pad_y, pad_x = none + win.begins
    (y,) = b.call(
        forms[0][1].kernel,
        {"x": Read(image.view, (1, 1, 2), reuse=True), "w": weights},
        {"y": (x.dtype.accumulated, (x.shape[0], w.shape[0], *win.outputs), (1, 1, win.rank))},
        tuple(it.variant(shape, guard) for guard, it in forms),
        parameters={
            "pixels": pixels,
            "out_width": columns,
            "height": height,
            "width": width,
            "channels": channels,
            "pad_y": pad_y,
            "pad_x": pad_x,
        },
        flops=2 * product((x.shape[0], w.shape[0], *win.outputs)) * channels * win.taps,
        groups=groups,
        outputs=outputs,
        TAPS=win.taps,
        TAPS_X=taps_x,
        STRIDE_Y=stride_y,
        STRIDE_X=stride_x,
        DILATION_Y=dilation_y,
        DILATION_X=dilation_x,
    )
    return y


def _by_tap(b: Builder, w: Operand, groups: int, outputs: int, taps: int) -> Operand:
    """Returns weights as (group, tap, channel, output channel). Constant weights are padded along the last axis to whole
    vectors.

    If no padding is needed, weights of the model are permuted one after another during the upload, without a copy in host
    memory.
    """
    if groups == 1 and outputs % 4 == 0 and b.weights.is_memory(w):
        laid = b.contiguous(b.permute(w, (*range(2, w.rank), 1, 0)))
        return b.reshape(laid, (1, taps, w.shape[1], outputs))
    constant = w.constant
    if constant is None:
        return b.permute(b.reshape(w, (groups, outputs, w.shape[1], taps)), (0, 3, 2, 1))
    array = constant.reshape(groups, outputs, -1, taps).transpose(0, 3, 2, 1)
    padded = np.zeros((*array.shape[:3], -(-outputs // 4) * 4), array.dtype)
    padded[..., :outputs] = array
    return b.constant(padded)
