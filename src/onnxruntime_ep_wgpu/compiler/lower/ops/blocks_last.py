"""Convolutions of an image whose channels are last in memory: an invocation sums a block of positions of four channels.

In: the image, weights and a window. Out: the result, whose channels are last too, in the type of sums. What an invocation reads of
the image, and how, its kernel says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...dims import Dim, ceildiv, product
from ...ir import Read, Variant
from ..builder import Builder, Operand
from .plane import Plane
from .window import Window


def convolved(
    b: Builder,
    kernel: str,
    x: Operand,
    w: Operand,
    win: Window,
    block: tuple[int, int],
    variant: Callable[[Dim], Variant],
    parameters: Mapping[str, Dim] | None = None,
    **constants: int,
) -> Operand:
    """x (batch, channels, *inputs) with w (features, channels / group, *kernel) to (batch, features, *outputs) by a kernel of
    blocks of so many rows and columns, with these `parameters` and `constants` besides; it knows weights by tap, channel of a group
    and feature. `variant` is what runs, of the number of blocks of all images."""
    plane = Plane(win)
    batch, (features, channels) = x.shape[0], w.shape[:2]
    image = b.reshape(b.permute(x, (0, *range(2, x.rank), 1)), (batch, *plane.inputs, x.shape[1]))
    weights = b.reshape(b.contiguous(b.permute(w, (*range(2, w.rank), 1, 0))), (win.taps, channels, features))
    shape = (batch, *win.outputs, features)
    rows, columns = block
    strips = ceildiv(plane.outputs[1], columns)
    items = strips * ceildiv(plane.outputs[0], rows)
    runs = product((batch, items))
    (y,) = b.call(
        kernel,
        {
            "x": Read(image.view, (1, 1, 1, 1), reuse=True, vector=True),
            "w": Read(weights.view, (1, 1, 1), reuse=True, vector=True),
        },
        {"y": (x.dtype.accumulated, shape, (1, win.rank, 1))},
        (variant(runs),),
        parameters={
            **plane.parameters,
            "strips": strips,
            "items": items,
            "runs": runs,
            **(parameters or {}),
        },
        flops=2 * product(shape) * win.taps * channels,
        vectors=True,
        **(constants | plane.block(rows, columns)),
    )
    return b.formats.channels_last(len(shape)).seen(y)
