"""Convolution in groups of few channels: its result has its channels last in memory, as what it reads should have.

As a matrix product each group would have a few columns of a tile. Here an invocation sums four channels of some positions, whose
neighbours read the same runs of channels, and a workgroup those of one group, for which it shares weights.
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

WIDEST = 16  # taps in a row: they are written out
STAGED_BYTES = 4096  # of weights in workgroup memory
_VECTOR_BYTES = 16


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
    longest, chunk = b.target.longest_loop, _chunk(channels)
    stages = Plane(win).kernel[0] * (channels // chunk)
    return longest is None or stages * (1 + chunk // 4) <= longest


def _chunk(channels: int) -> int:
    """How many channels of a group have their weights in workgroup memory at a time."""
    return 8 if channels % 8 == 0 else 4


def _fours(per_group: int, staged: int, workgroup: int) -> int:
    """How many fours of the channels of a group a workgroup has: as many as divide them, whose weights fit, `staged` of each."""
    most = min(STAGED_BYTES // (_VECTOR_BYTES * staged), workgroup)
    return max(it for it in range(1, max(1, most) + 1) if per_group // 4 % it == 0)


def convolution_in_groups(b: Builder, x: Operand, w: Operand, win: Window, group: int) -> Operand:
    """x (batch, channels, *inputs) with w (features, channels / group, *kernel) to (batch, features, *outputs), in the type of
    sums."""
    chosen = tune.grouped_last(b.target)
    assert chosen is not None, "asked for where the target has it"
    plane, (features, channels), workgroup = Plane(win), w.shape[:2], chosen.workgroup
    assert isinstance(features, int) and isinstance(channels, int), "as `supports` says"
    columns = chosen.columns_of(plane.outputs[1], plane.strides[1])
    chunk = _chunk(channels)
    staged = plane.kernel[1] * chunk
    fours = _fours(features // group, staged, workgroup)
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
