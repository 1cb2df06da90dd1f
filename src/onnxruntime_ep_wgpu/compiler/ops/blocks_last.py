"""Convolutions of an image whose channels are last in memory: an invocation sums a block of positions of four channels.

In: the image, weights and a window. Out: the result, whose channels are last too, in the type of sums. What an invocation reads of
the image, and how, its kernel says.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..builder import Builder, Operand
from ..dims import Dim, ceildiv, floordiv, product
from ..ir import Read, Variant
from .plane import Plane
from .window import Window


def convolved(
    b: Builder,
    kernel: str,
    x: Operand,
    w: Operand,
    win: Window,
    block: tuple[int, int],
    workgroup: int,
    parameters: Mapping[str, Dim] | None = None,
) -> Operand:
    """x (batch, channels, *inputs) with w (features, channels / group, *kernel) to (batch, features, *outputs) by a kernel of
    blocks of so many rows and columns, with these `parameters` besides; it knows weights by tap, channel of a group and feature."""
    plane = Plane(win)
    batch, (features, channels) = x.shape[0], w.shape[:2]
    image = b.reshape(b.permute(x, (0, *range(2, x.rank), 1)), (batch, *plane.inputs, x.shape[1]))
    weights = b.reshape(b.contiguous(b.permute(w, (*range(2, w.rank), 1, 0))), (win.taps, channels, features))
    shape = (batch, *win.outputs, features)
    rows, columns = block
    strips = ceildiv(plane.outputs[1], columns)
    items = strips * ceildiv(plane.outputs[0], rows)
    fours = floordiv(features, 4)
    blocks = product((batch, items, fours))
    (y,) = b.call(
        kernel,
        {
            "x": Read(image.view, (1, 1, 1, 1), reuse=True, vector=True),
            "w": Read(weights.view, (1, 1, 1), reuse=True, vector=True),
        },
        {"y": (x.dtype.accumulated, shape, (1, win.rank, 1))},
        (Variant(ceildiv(blocks, workgroup), workgroup),),
        parameters={
            **plane.parameters,
            "strips": strips,
            "items": items,
            "fours": fours,
            "blocks": blocks,
            **(parameters or {}),
        },
        flops=2 * product(shape) * win.taps * channels,
        vectors=True,
        **plane.block(rows, columns),
    )
    return b.formats.channels_last(len(shape)).seen(y)
