"""Convolution in groups of few channels: its result has its channels last in memory, as what it reads should have.

As a matrix product each group would have a few columns of a tile. Here an invocation sums four channels of some positions, whose
neighbours read the same runs of channels.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import tune
from ..builder import Builder, Operand
from ..dims import floordiv
from .blocks_last import convolved
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
    chosen = tune.grouped_last(b.target)
    assert chosen is not None, "asked for where the target has it"
    plane, (features, channels) = Plane(win), w.shape[:2]
    columns = chosen.columns_of(plane.outputs[1], plane.strides[1])
    parameters = {"channels": channels, "per_group": floordiv(features, group)}
    return convolved(b, "grouped_last", x, w, win, (1, columns), chosen.workgroup, parameters)
