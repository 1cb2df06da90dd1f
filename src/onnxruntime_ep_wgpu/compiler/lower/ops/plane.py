"""Windows over a plane, for kernels in which an invocation computes a block of neighbouring positions.

In: a `Window` over one or two axes. Out: the sizes and constants of such a kernel. Input elements that several positions of a
block read are loaded once. So the constants list which elements of the block's span are read at all.
"""

from __future__ import annotations

from typing import Any

from ...dims import Dim
from .window import Window


class Plane:
    """A window over two axes; a single axis becomes the second, after a first one of extent 1."""

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
        """The sizes that are parameters of the kernels."""
        sizes = (*self.inputs, *self.outputs, *self.begins)
        return dict(zip(("height", "width", "out_height", "out_width", "pad_y", "pad_x"), sizes, strict=True))

    def block(self, rows: int, columns: int) -> dict[str, Any]:
        """Returns the block of an invocation, and which elements of its span of inputs any output of the block reads."""
        out: dict[str, Any] = {}
        for axis, block, count in (("Y", "ROWS", rows), ("X", "COLUMNS", columns)):
            kernel, stride, dilation = (of[axis == "X"] for of in (self.kernel, self.strides, self.dilations))
            used = {n * stride + k * dilation for n in range(count) for k in range(kernel)}
            out |= {block: count, f"KERNEL_{axis}": kernel, f"STRIDE_{axis}": stride, f"DILATION_{axis}": dilation}
            out |= {f"SPAN_{axis}": max(used) + 1} | {f"USED_{axis}{n}": int(n in used) for n in range(max(used) + 1)}
        return out
