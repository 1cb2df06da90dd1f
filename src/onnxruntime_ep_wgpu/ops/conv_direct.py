"""2D convolution read straight from the image, for adapters whose cache is as near as their workgroup memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..builder import Builder, Operand
from ..dims import Dim, ceildiv, less_equal
from ..dtypes import DType
from ..lowered import Read, Variant


def direct_convolution(b: Builder, x: Operand, w: Operand, out: tuple[Dim, Dim], strides: Sequence[int], pads: Sequence[int],
                       dilations: Sequence[int], groups: int) -> Operand:  # fmt: skip
    """x (n, groups * channels, height, width) with w (groups * outputs, channels, taps_y, taps_x) to (n, ..., *out).

    `pads` are those before the first row and column. Accumulates in f32; the result is f32 whatever x is.
    """
    taps_y, taps_x = w.shape[2], w.shape[3]
    assert isinstance(taps_y, int) and isinstance(taps_x, int) and isinstance(w.shape[0], int)
    outputs, channels = w.shape[0] // groups, w.shape[1]
    weights = _by_tap(b, w, groups, outputs)
    pixels = out[0] * out[1]
    channel_tiles = -(-outputs // 8)

    def variant(per_invocation: int, guard: Dim) -> Variant:
        count = x.shape[0] * groups * channel_tiles * ceildiv(pixels, 8 * per_invocation)
        return Variant(count, 8, guard, (("PIXELS", per_invocation),), (("tiles", ceildiv(pixels, 8 * per_invocation)),))

    (y,) = b.call(
        "conv_direct",
        {"x": Read(x.view, (1, 1, 2), reuse=True), "w": Read(weights.view, (1, 1, 1, 1), reuse=True, vector=True)},
        {"y": (DType.FLOAT32, (x.shape[0], w.shape[0], *out), (1, 1, 2))},
        (variant(2, less_equal(pixels, 128)), variant(8, 1)),
        parameters={"pixels": pixels, "out_width": out[1], "height": x.shape[2], "width": x.shape[3], "channels": channels},
        channel_tiles=channel_tiles, groups=groups, outputs=outputs, TAPS=taps_y * taps_x, TAPS_X=taps_x,
        STRIDE_Y=strides[0], STRIDE_X=strides[1], PAD_Y=pads[0], PAD_X=pads[1], DILATION_Y=dilations[0], DILATION_X=dilations[1],
    )  # fmt: skip
    return y


def _by_tap(b: Builder, w: Operand, groups: int, outputs: int) -> Operand:
    """Weights as (group, tap, channel, output channel); the last padded to whole vectors when the weights are constant."""
    taps = w.shape[2] * w.shape[3]
    constant = w.constant
    if constant is None:
        return b.permute(b.reshape(w, (groups, outputs, w.shape[1], taps)), (0, 3, 2, 1))
    array = np.asarray(constant).reshape(groups, outputs, *map(int, (w.shape[1], taps))).transpose(0, 3, 2, 1)  # type: ignore[arg-type]
    padded = np.zeros((*array.shape[:3], -(-outputs // 4) * 4), array.dtype)
    padded[..., :outputs] = array
    return b.constant(padded)
