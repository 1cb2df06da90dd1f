"""Convolution in groups of few channels: its result has its channels last in memory, as what it reads should have.

As a matrix product each group would have a few columns of a tile. Here an invocation sums four channels of some positions, whose
neighbours read the same runs of channels.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import tune
from ..builder import Builder, Operand
from ..dims import ceildiv, floordiv, product
from ..ir import Read, Variant
from .plane import Plane
from .window import Window

WIDEST = 16  # taps in a row: they are written out


def are_whole_vectors(features: int, channels: int, group: int, kernel: Sequence[int]) -> bool:
    """Whether groups of so many channels each, in all of so many features, are whole vectors, and the rows of windows short."""
    return channels % 4 == 0 == features % (4 * group) and len(kernel) <= 2 and kernel[-1] <= WIDEST


def supports(b: Builder, x: Operand, w: Operand, win: Window, group: int) -> bool:
    """Whether a kernel serves x (batch, channels, *inputs) with w (features, channels / group, *kernel): where the target has it,
    and an invocation comes to the end of its loops over the channels of a group."""
    features, channels = w.shape[:2]
    if not (x.dtype.is_float and isinstance(features, int) and isinstance(channels, int)):
        return False
    if tune.grouped_last(b.target) is None or not are_whole_vectors(features, channels, group, win.kernel):
        return False
    longest = b.target.longest_loop
    return longest is None or (1 + channels // 4) * Plane(win).kernel[0] <= longest


def convolution_in_groups(b: Builder, x: Operand, w: Operand, win: Window, group: int) -> Operand:
    """x (batch, channels, *inputs) with w (features, channels / group, *kernel) to (batch, features, *outputs), in the type of
    sums."""
    plane, chosen = Plane(win), tune.grouped_last(b.target)
    assert chosen is not None, "asked for where the target has it"
    batch, (features, channels) = x.shape[0], w.shape[:2]
    image = b.reshape(b.permute(x, (0, *range(2, x.rank), 1)), (batch, *plane.inputs, x.shape[1]))
    weights = b.reshape(b.contiguous(b.permute(w, (*range(2, w.rank), 1, 0))), (win.taps, channels, features))
    columns = chosen.columns_of(plane.outputs[1], plane.strides[1])
    shape = (batch, *win.outputs, features)
    strips = ceildiv(plane.outputs[1], columns)
    items = strips * plane.outputs[0]
    fours = floordiv(features, 4)
    blocks = product((batch, items, fours))
    (y,) = b.call(
        "grouped_last",
        {
            "x": Read(image.view, (1, 1, 1, 1), reuse=True, vector=True),
            "w": Read(weights.view, (1, 1, 1), reuse=True, vector=True),
        },
        {"y": (x.dtype.accumulated, shape, (1, win.rank, 1))},
        (Variant(ceildiv(blocks, chosen.workgroup), chosen.workgroup),),
        parameters={
            **plane.parameters,
            "strips": strips,
            "items": items,
            "fours": fours,
            "blocks": blocks,
            "channels": channels,
            "per_group": floordiv(features, group),
        },
        flops=2 * product(shape) * win.taps * channels,
        vectors=True,
        **plane.block(1, columns),
    )
    return b.formats.channels_last(len(shape)).seen(y)
