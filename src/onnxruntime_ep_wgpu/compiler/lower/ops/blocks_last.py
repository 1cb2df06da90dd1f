"""Convolutions of a channels-last image: an invocation accumulates a block of positions of four channels.

In: the image, weights and a window. Out: the result, channels-last too, in the accumulator type. The kernel decides which
part of the image an invocation reads, and how.
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
    """Convolves x (batch, channels, *inputs) with w (features, channels / group, *kernel) to (batch, features, *outputs).
    `kernel` computes blocks of `block` rows and columns, and has these additional `parameters` and `constants`. It reads
    weights by tap, channel of a group, and feature. `variant` returns the variant for the number of blocks of all images."""
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
    return b.formats.channels_last(len(shape)).in_result_order(y)
