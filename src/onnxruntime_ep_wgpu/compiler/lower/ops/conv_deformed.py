"""Deformable convolution: DeformConv, over any number of spatial axes.

Each tap of each window reads the image at its own position. A map interpolates all taps to the matrix of windows; the rest is
the product of a convolution. The matrix is stored: a product reads each of its elements once per tile of features.
"""

from __future__ import annotations

import math
from typing import Unpack

from ....errors import UnsupportedError
from ...dims import equal, floordiv, mod
from ..builder import Builder, Operand
from .conv import biased, kernel_of, product_of_windows
from .registry import FLOATS, op
from .window import ConvAttributes, Window, constants, parameters, window


class DeformConvAttributes(ConvAttributes, total=False):
    offset_group: int


@op("DeformConv", types=FLOATS)
def deform_conv(
    b: Builder,
    x: Operand,
    w: Operand,
    offset: Operand,
    bias: Operand | None = None,
    mask: Operand | None = None,
    **attributes: Unpack[DeformConvAttributes],
) -> Operand:
    """x (batch, channels, *inputs), w (features, channels / group, *kernel), offset (batch, offset_group * taps * axes,
    *outputs), mask (batch, offset_group * taps, *outputs) -> (batch, features, *outputs)."""
    rank = x.rank - 2
    if rank < 1 or not w.rank == offset.rank == x.rank or (mask is not None and mask.rank != x.rank):
        given = ", ".join(map(str, (x, w, offset, *([mask] if mask is not None else []))))
        raise UnsupportedError(f"images, weights, offsets and mask {given} must have the same rank of at least 3")
    group, parts = attributes.get("group", 1), attributes.get("offset_group", 1)
    if min(group, parts) < 1:
        raise UnsupportedError(f"group {group} and offset_group {parts} must be 1 or more")
    (w, kernel), channels = kernel_of(b, w, attributes), x.shape[1]
    b.require(
        equal(channels, w.shape[1] * group),
        f"{{}} does not have {{}} channels in each of {group} groups",
        x,
        w.shape[1],
    )
    b.require(equal(mod(channels, parts), 0), f"the channels of {{}} are not in {parts} groups of offsets", x)
    win = window(b, x.shape[2:], kernel, attributes)
    operands = {"x": (x, (1,) * x.rank), "offsets": _by_tap(b, offset, "offsets", x, win, parts, (rank,))}
    if mask is not None:
        operands["mask"] = _by_tap(b, mask, "a mask", x, win, parts, ())
    windows = b.map(
        "deformed_windows",
        x.dtype,
        (x.shape[0], channels, *kernel, *win.outputs),
        ("image", "channel", "tap", "place"),
        (1, 1, rank, rank),
        operands,
        parameters={**parameters(win), "share": floordiv(channels, parts)},
        cost=8 + 8 * 2**rank,
        reuse=True,
        **constants(win),
    )
    in_groups = (x.shape[0] * group, floordiv(channels, group), *kernel, *win.outputs)
    return biased(b, product_of_windows(b, b.reshape(windows, in_groups), w, win, group), bias, x.dtype)


def _by_tap(
    b: Builder, given: Operand, what: str, x: Operand, win: Window, parts: int, each: tuple[int, ...]
) -> tuple[Operand, tuple[int, ...]]:
    """Returns offsets or a mask by tap, with `each` numbers per tap, and the groups of its axes: image, part, tap, `each`,
    place."""
    rows = parts * math.prod((win.taps, *each))
    for extent, wanted in zip(given.shape, (x.shape[0], rows, *win.outputs), strict=True):
        b.require(
            equal(extent, wanted), f"{what} of shape {{}} for the windows of {{}}, which have {rows} rows", given, x
        )
    by_tap = b.reshape(given, (x.shape[0], parts, *win.kernel, *each, *win.outputs))
    return by_tap, (1, 1, win.rank, *(1 for _ in each), win.rank)
