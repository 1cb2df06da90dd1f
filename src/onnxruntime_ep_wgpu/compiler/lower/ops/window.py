"""Sliding windows over spatial axes: the geometry that convolution and pooling share.

In: the attributes of a node and the spatial extents of its input. Out: a `Window` with pads and output extents that are exact
expressions of the input extents. Windows are (channel, tap) by position; axes are in ONNX order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypedDict

from ....errors import UnsupportedError
from ....records import dataclass
from ...dims import Dim, ceildiv, floordiv, less, less_equal, maximum, product
from ...ir import Axis, Factor, View, coalesce
from ..builder import Builder
from .choices import AutoPad, Flag


class WindowAttributes(TypedDict, total=False):
    """Attributes of every operator with windows. For operators with weights `kernel_shape` is redundant: the weights
    determine the extents of a window too."""

    auto_pad: AutoPad
    dilations: list[int] | None
    kernel_shape: list[int] | None
    pads: list[int] | None
    strides: list[int] | None


class PoolAttributes(WindowAttributes, total=False):
    ceil_mode: Flag


class ConvAttributes(WindowAttributes, total=False):
    group: int


class ConvTransposeAttributes(ConvAttributes, total=False):
    output_padding: list[int] | None
    output_shape: list[int] | None


def loops_of(extents: Sequence[int]) -> int:
    """Iterations of nested loops over these extents, including those of outer loops."""
    return sum(math.prod(extents[: k + 1]) for k in range(len(extents)))


@dataclass(frozen=True)
class Window:
    """Per spatial axis: taps, step between windows, step between taps, input extent, pads and output extent."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    inputs: tuple[Dim, ...]
    begins: tuple[Dim, ...]
    ends: tuple[Dim, ...]
    outputs: tuple[Dim, ...]
    rounds_up: bool = False  # the last window may begin inside and end outside the padded input

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def taps(self) -> int:
        return int(product(self.kernel))  # type: ignore[arg-type]

    @property
    def is_padded(self) -> bool:
        """False if every tap of every window is known to be inside the input."""
        return any(self.may_leave(k) for k in range(self.rank))

    @property
    def overlap(self) -> bool:
        """True if windows share elements."""
        spans = ((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))
        return any(s < span for s, span in zip(self.strides, spans, strict=True))

    def may_leave(self, k: int) -> bool:
        """True if a tap of some window may be outside the input along axis k."""
        span = (self.kernel[k] - 1) * self.dilations[k] + 1
        last = (self.outputs[k] - 1) * self.strides[k] + span
        beyond = self.ends[k] != 0 or self.rounds_up
        return self.begins[k] != 0 or (beyond and less_equal(last, self.inputs[k]) != 1)

    def view(self, x: View) -> View | None:
        """Returns x of shape (batch, channels, *inputs) as a view (batch, channels, *kernel, *outputs). Returns None if
        windows reach into the padding, or an axis of x is not evenly spaced in memory."""
        if self.is_padded:
            return None
        taps: list[Axis] = []
        positions: list[Axis] = []
        for k, axis in enumerate(x.axes[2:]):
            factors = coalesce(axis)
            if len(factors) > 1:
                return None
            stride = factors[0].stride if factors else 0
            taps.append(_axis(self.kernel[k], stride * self.dilations[k]))
            positions.append(_axis(self.outputs[k], stride * self.strides[k]))
        return View(x.tensor, (*x.shape[:2], *self.kernel, *self.outputs), (*x.axes[:2], *taps, *positions), x.offset)


def _axis(extent: Dim, stride: Dim) -> Axis:
    return (Factor(extent, stride),) if extent != 1 else ()


def steps(attributes: WindowAttributes, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns strides and dilations, which are 1 by default."""
    return tuple(attributes.get("strides") or (1,) * rank), tuple(attributes.get("dilations") or (1,) * rank)


def check_lengths(attributes: WindowAttributes, kernel: Sequence[int], rank: int) -> None:
    """Raises UnsupportedError for attributes that do not fit `rank` spatial axes."""
    (strides, dilations), pads = steps(attributes, rank), attributes.get("pads")
    given = f"kernel {list(kernel)}, strides {list(strides)} and dilations {list(dilations)}"
    if not len(kernel) == len(strides) == len(dilations) == rank:
        raise UnsupportedError(f"{given} must have {rank} elements")
    if min((*strides, *dilations), default=1) < 1:
        raise UnsupportedError(f"{given} must be positive")
    if max((*kernel, *strides, *dilations), default=1) >= 2**31:
        raise UnsupportedError(f"{given} must be less than 2^31")
    if len(pads or ()) not in (0, 2 * rank):
        raise UnsupportedError(f"pads {pads} must have {2 * rank} elements")


def window(
    b: Builder, inputs: Sequence[Dim], kernel: Sequence[int], attributes: WindowAttributes, ceil_mode: bool = False
) -> Window:
    """Returns the windows of a convolution or pooling. Raises UnsupportedError for attributes that are inconsistent."""
    rank, pads, auto_pad = len(inputs), attributes.get("pads"), attributes.get("auto_pad", "NOTSET")
    strides, dilations = steps(attributes, rank)
    check_lengths(attributes, kernel, rank)
    begins: list[Dim] = list(pads[:rank]) if pads and auto_pad == "NOTSET" else [0] * rank
    ends: list[Dim] = list(pads[rank:]) if pads and auto_pad == "NOTSET" else [0] * rank
    outputs: list[Dim] = []
    for k, extent in enumerate(inputs):
        span = (kernel[k] - 1) * dilations[k] + 1
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            count = ceildiv(extent, strides[k])
            total = maximum((count - 1) * strides[k] + span - extent, 0)
            begins[k] = floordiv(total + (auto_pad == "SAME_LOWER"), 2)
            ends[k] = total - begins[k]
        else:
            room = extent + begins[k] + ends[k] - span
            least = 1 - strides[k] if ceil_mode else 0  # a window that begins inside counts, even if it ends outside
            b.require(
                less_equal(least, room),
                f"a window of {{}} is larger than the {{}} elements and their padding along spatial axis {k}",
                span,
                extent,
            )
            count = floordiv(room, strides[k]) + 1
            if ceil_mode:
                rounded = ceildiv(room, strides[k]) + 1
                # The last window must begin inside the input or the padding before it.
                count = rounded - 1 + less((rounded - 1) * strides[k], extent + begins[k])
        outputs.append(count)
    return Window(
        tuple(kernel), strides, dilations, tuple(inputs), tuple(begins), tuple(ends), tuple(outputs), ceil_mode
    )


def constants(win: Window) -> dict[str, Any]:
    """Returns the constants of windows for directives of bodies: `RANK`, and per spatial axis `KERNEL0`, `STRIDE0`,
    `DILATION0` and `LEAVES0`, whether a tap may be outside the image."""
    out: dict[str, Any] = {"RANK": win.rank}
    for k in range(win.rank):
        out |= {f"KERNEL{k}": win.kernel[k], f"STRIDE{k}": win.strides[k], f"DILATION{k}": win.dilations[k]}
        out[f"LEAVES{k}"] = int(win.may_leave(k))
    return out


def parameters(win: Window) -> dict[str, Dim]:
    """Returns the dims that bodies name `$in0`, `$out0`, `$begin0`, `$padded0` (the padded extent) and so on."""
    out: dict[str, Dim] = {}
    for k in range(win.rank):
        padded = win.inputs[k] + win.begins[k] + win.ends[k]
        out |= {f"in{k}": win.inputs[k], f"out{k}": win.outputs[k], f"begin{k}": win.begins[k], f"padded{k}": padded}
    return out
