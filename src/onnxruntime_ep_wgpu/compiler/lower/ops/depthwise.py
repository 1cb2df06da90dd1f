"""Depthwise convolution: every output channel reads one input channel, so neighbours reuse elements, and channels do not.

An invocation computes a small block of neighbouring outputs and loads each input element of its block once.
"""

from __future__ import annotations

from ... import tune
from ...dims import Dim, ceildiv, floordiv, product, quotient
from ...ir import Read, Variant
from ..builder import Builder, Operand
from .blocks_last import convolved
from .plane import Plane
from .window import Window

LARGEST = 64  # taps; a larger kernel generates too much text


def supports(win: Window) -> bool:
    """Whether there is a kernel for such windows."""
    return win.rank <= 2 and win.taps <= LARGEST


def supports_four_channels(b: Builder, x: Operand, w: Operand) -> bool:
    """Whether x is channels-last, with whole vectors of four channels for an invocation."""
    return b.formats.of([x.view]).permutation != () and w.shape[0] == x.shape[1] and quotient(w.shape[0], 4) is not None


def of_four_channels(b: Builder, x: Operand, w: Operand, win: Window) -> Operand:
    """Like `depthwise_convolution`, for a channels-last image. The result is channels-last too."""
    workgroup, fours = tune.depthwise_last(b.target).workgroup, floordiv(w.shape[0], 4)

    def variant(runs: Dim) -> Variant:
        blocks = runs * fours
        return Variant(ceildiv(blocks, workgroup), workgroup, parameters=(("fours", fours), ("blocks", blocks)))

    return convolved(b, "depthwise_last", x, w, win, _block(win), variant)


def depthwise_convolution(b: Builder, x: Operand, w: Operand, win: Window) -> Operand:
    """Convolves x (batch, channels, *inputs) with w (channels * n, 1, *kernel) to (batch, channels * n, *outputs), in the
    accumulator type."""
    plane = Plane(win)
    batch, features = x.shape[0], w.shape[0]
    image = b.reshape(x, (*x.shape[:2], *plane.inputs))
    weights = b.reshape(w, (features, win.taps))
    rows, columns = _block(win)
    stored = x.dtype.accumulated
    strips = ceildiv(plane.outputs[1], columns)
    items = strips * ceildiv(plane.outputs[0], rows)
    shape = (batch, features, *win.outputs)
    chosen = tune.depthwise(b.target)
    size = chosen.workgroup
    groups = (
        product((batch, features, ceildiv(items, size)))
        if chosen.shared
        else ceildiv(product((batch, features, items)), size)
    )
    (y,) = b.call(
        "depthwise",
        {"x": Read(image.view, (1, 1, 1, 1), reuse=True), "w": Read(weights.view, (1, 1), reuse=True)},
        {"y": (stored, shape, (1, 1, win.rank))},
        (Variant(groups, size),),
        parameters={
            **plane.parameters,
            "strips": strips,
            "items": items,
            "tiles": ceildiv(items, size),
            "planes": batch * features,
            "features": features,
            "channels": x.shape[1],
        },
        flops=2 * product(shape) * win.taps,
        SHARED=bool(chosen.shared),
        **plane.block(rows, columns),
    )
    return y


def _block(win: Window) -> tuple[int, int]:
    """Rows and columns of outputs per invocation."""
    return (1, 4) if win.rank == 1 else (2, 4)
