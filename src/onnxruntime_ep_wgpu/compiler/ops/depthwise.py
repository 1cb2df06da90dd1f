"""Depthwise convolution: every output channel sees one input channel, so elements are used by neighbours, not channels.

An invocation computes a small block of neighbouring outputs and loads each input element of its block once.
"""

from __future__ import annotations

from typing import Any

from .. import tune
from ..builder import Builder, Operand
from ..dims import Dim, ceildiv, floordiv, product, quotient
from ..ir import Read, Variant
from .window import Window

LARGEST = 64  # taps; a larger kernel makes too much text


def supports(win: Window) -> bool:
    """Whether there is a kernel for such windows."""
    return win.rank <= 2 and win.taps <= LARGEST


def supports_four_channels(b: Builder, x: Operand, w: Operand) -> bool:
    """Whether x has its channels last in memory, four of which an invocation can take."""
    return b.formats.of([x.view]).permutation != () and w.shape[0] == x.shape[1] and quotient(w.shape[0], 4) is not None


def of_four_channels(b: Builder, x: Operand, w: Operand, win: Window) -> Operand:
    """Like `depthwise_convolution`, of an image whose channels are last in memory, as those of the result then are."""
    plane = _Plane(win)
    batch, features = x.shape[0], w.shape[0]
    image = b.reshape(b.permute(x, (0, *range(2, x.rank), 1)), (batch, *plane.inputs, features))
    weights = b.reshape(b.contiguous(b.permute(w, (*range(2, w.rank), 1, 0))), (win.taps, features))
    rows, columns = _block(win)
    shape = (batch, *win.outputs, features)
    strips = ceildiv(plane.outputs[1], columns)
    items = strips * ceildiv(plane.outputs[0], rows)
    fours = floordiv(features, 4)
    blocks = product((batch, items, fours))
    size = tune.depthwise_last(b.target).workgroup
    (y,) = b.call(
        "depthwise_last",
        {
            "x": Read(image.view, (1, 1, 1, 1), reuse=True, vector=True),
            "w": Read(weights.view, (1, 1), reuse=True, vector=True),
        },
        {"y": (x.dtype.accumulated, shape, (1, win.rank, 1))},
        (Variant(ceildiv(blocks, size), size),),
        parameters={**plane.parameters, "strips": strips, "items": items, "fours": fours, "blocks": blocks},
        flops=2 * product(shape) * win.taps,
        vectors=True,
        **_constants(plane, rows, columns),
    )
    return b.formats.channels_last(len(shape)).seen(y)


def depthwise_convolution(b: Builder, x: Operand, w: Operand, win: Window) -> Operand:
    """x (batch, channels, *inputs) with w (channels * n, 1, *kernel) to (batch, channels * n, *outputs), in the type of sums."""
    plane = _Plane(win)
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
        **_constants(plane, rows, columns),
    )
    return y


class _Plane:
    """A window over two axes; a single axis is the second, under a first one of extent 1."""

    def __init__(self, win: Window) -> None:
        first = 2 - win.rank
        ones: tuple[int, ...] = (1,) * first
        zeros: tuple[int, ...] = (0,) * first
        self.kernel, self.strides, self.dilations = ones + win.kernel, ones + win.strides, ones + win.dilations
        self.inputs: tuple[Dim, ...] = (*ones, *win.inputs)
        self.outputs: tuple[Dim, ...] = (*ones, *win.outputs)
        self.begins: tuple[Dim, ...] = (*zeros, *win.begins)

    @property
    def parameters(self) -> dict[str, Dim]:
        """The sizes that its kernels know."""
        sizes = (*self.inputs, *self.outputs, *self.begins)
        return dict(zip(("height", "width", "out_height", "out_width", "pad_y", "pad_x"), sizes, strict=True))


def _block(win: Window) -> tuple[int, int]:
    """Rows and columns of outputs per invocation."""
    return (1, 4) if win.rank == 1 else (2, 4)


def _constants(plane: _Plane, rows: int, columns: int) -> dict[str, Any]:
    """The block of an invocation, and which elements of its span of inputs any output of the block reads."""
    out: dict[str, Any] = {}
    for axis, block, count in (("Y", "ROWS", rows), ("X", "COLUMNS", columns)):
        kernel, stride, dilation = (of[axis == "X"] for of in (plane.kernel, plane.strides, plane.dilations))
        used = {n * stride + k * dilation for n in range(count) for k in range(kernel)}
        out |= {block: count, f"KERNEL_{axis}": kernel, f"STRIDE_{axis}": stride, f"DILATION_{axis}": dilation}
        out |= {f"SPAN_{axis}": max(used) + 1} | {f"USED_{axis}{n}": int(n in used) for n in range(max(used) + 1)}
    return out
