"""Convolution in groups of few channels. Its result is channels-last, and its input should be.

As a matrix product each group would fill only a few columns of a tile. Here an invocation accumulates four channels of some
positions. Neighbouring invocations read the same runs of channels. A workgroup computes channels of one group, and shares the
weights in workgroup memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from ... import tune
from ...dims import Dim, ceildiv
from ...ir import Variant
from ..builder import Builder, Operand
from .blocks_last import convolved
from .plane import Plane
from .window import Window

WIDEST = 16  # taps in a row: the loop over them is unrolled
STAGED_BYTES = 4096  # of weights in workgroup memory
_VECTOR_BYTES = 16


def are_whole_vectors(features: int, channels: int, group: int, kernel: Sequence[int]) -> bool:
    """Whether groups with `channels` channels each, and `features` features in all, are whole vectors, and the rows of
    windows are short."""
    return channels % 4 == 0 == features % (4 * group) and len(kernel) <= 2 and kernel[-1] <= WIDEST


def supports(b: Builder, x: Operand, w: Operand, win: Window, group: int) -> bool:
    """Whether a kernel supports x (batch, channels, *inputs) with w (features, channels / group, *kernel). The target must
    have the kernel, and the loops over the channels of a group must be within the limit."""
    features, channels = w.shape[:2]
    if not (x.dtype.is_float and isinstance(features, int) and isinstance(channels, int)):
        return False
    if tune.grouped_last(b.target) is None or not are_whole_vectors(features, channels, group, win.kernel):
        return False
    longest, chunk = b.target.longest_loop, _staged_channels(channels)
    stages = Plane(win).kernel[0] * (channels // chunk)
    return longest is None or stages * (1 + chunk // 4) <= longest


def _staged_channels(channels: int) -> int:
    """The number of channels of a group with weights in workgroup memory at a time."""
    return 8 if channels % 8 == 0 else 4


def _vectors_per_workgroup(per_group: int, staged: int, workgroup: int) -> int:
    """The number of vectors of four channels per workgroup: the largest divisor of a group's vectors such that the weights
    fit, with `staged` of them per vector."""
    most = min(STAGED_BYTES // (_VECTOR_BYTES * staged), workgroup)
    return max(it for it in range(1, max(1, most) + 1) if per_group // 4 % it == 0)


def convolution_in_groups(b: Builder, x: Operand, w: Operand, win: Window, group: int) -> Operand:
    """Convolves x (batch, channels, *inputs) with w (features, channels / group, *kernel) to (batch, features, *outputs), in
    the accumulator type."""
    chosen = tune.grouped_last(b.target)
    assert chosen is not None, "asked for where the target has it"
    plane, (features, channels), workgroup = Plane(win), w.shape[:2], chosen.workgroup
    assert isinstance(features, int) and isinstance(channels, int), "as `supports` says"
    columns = chosen.columns_of(plane.outputs[1], plane.strides[1])
    chunk = _staged_channels(channels)
    staged = plane.kernel[1] * chunk
    fours = _vectors_per_workgroup(features // group, staged, workgroup)
    parts = features // group // (4 * fours)

    def variant(runs: Dim) -> Variant:
        return Variant(group * parts * ceildiv(runs, workgroup // fours), workgroup)

    return convolved(
        b,
        "grouped_last",
        x,
        w,
        win,
        (1, columns),
        variant,
        {"channels": channels, "groups": group, "parts": parts},
        FOURS=fours,
        CHUNK=chunk,
        LOADS=-(-staged * fours // workgroup),
    )
