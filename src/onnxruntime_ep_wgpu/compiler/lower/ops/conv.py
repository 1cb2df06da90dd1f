"""Convolution over any number of spatial axes.

A convolution is the matrix product of its weights (output channels by channels and taps) and the matrix of windows (channels
and taps by positions). That matrix is a view of the input, or index arithmetic in the product's loads, with zeros for the
padding. It is stored only if windows share no elements, so that loads are contiguous. For groups of few channels a product is
inefficient: there one invocation accumulates each output element.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import Dim, equal, floordiv
from ...ir import Tensor, View
from ...nodes.divide import BindingsError, least_reach
from ..builder import Builder, Operand
from . import conv_bytes, conv_direct, conv_groups, conv_rows, depthwise
from .matmul import matrix_product
from .quantize import centred
from .registry import FLOATS, op
from .window import (
    ConvAttributes,
    Window,
    WindowAttributes,
    check_lengths,
    constants,
    loops_of,
    parameters,
    steps,
    window,
)

FEWEST_ROWS = 8  # output channels per group; with fewer, a matrix product computes mostly padding of its tiles


@op("Conv", types=FLOATS, chooses_format=("x",))
def conv(
    b: Builder,
    x: Operand,
    w: Operand,
    bias: Operand | None = None,
    *,
    with_channels_last: bool = False,
    **attributes: Unpack[ConvAttributes],
) -> Operand:
    """Convolves x (batch, channels, *inputs) with w (features, channels / group, *kernel) to (batch, features, *outputs)."""
    sums = _dequantized_sums(b, x, w, with_channels_last, **attributes)
    if sums is None:
        sums = convolution(b, x, w, with_channels_last, **attributes)
    return biased(b, sums, bias, x.dtype)


def _dequantized_sums(
    b: Builder, x: Operand, w: Operand, with_channels_last: bool, **attributes: Unpack[ConvAttributes]
) -> Operand | None:
    """Returns the sums of a convolution of bytes, times their scales. Returns None if x or w are no dequantised bytes, or if
    no matrix units multiply bytes."""
    image, weights = b.dequantized.get(x.view), b.dequantized.get(w.view)
    if image is None or weights is None or image.scale.size != 1 or x.rank < 3 or not with_channels_last:
        return None
    quantisation = [it for it in (weights.scale, weights.zero) if it is not None]
    if attributes.get("group", 1) != 1 or (weights.axis != 0 and any(it.size != 1 for it in quantisation)):
        return None
    mark = b.mark()
    integers = centred_weights(b, weights.integers, weights.zero)
    integers, win, _ = _geometry(b, image.integers, integers, attributes)
    sums = conv_bytes.sums_by_units(b, image.integers, image.zero, integers, win)
    if sums is None:
        b.undo(mark)
        return None
    scales = {"s": b.reshape(image.scale, ()), "t": per_feature(b, weights.scale, x.rank - 1)}
    return b.pointwise("f32(x) * (s * t)", {"x": sums, **scales}, DType.FLOAT32, sums.shape, cost=3)


def integer_convolution(
    b: Builder,
    x: Operand,
    x_zero: Operand | None,
    w: Operand,
    w_zero: Operand | None,
    with_channels_last: bool,
    **attributes: Unpack[ConvAttributes],
) -> Operand:
    """Returns the convolution of x - x_zero with w - w_zero as int32. The padding is x_zero."""
    weights = centred_weights(b, w, w_zero)
    weights, win, group = _geometry(b, x, weights, attributes)
    if with_channels_last and group == 1:
        sums = conv_bytes.sums_by_units(b, x, x_zero, weights, win)
        if sums is not None:
            return sums
    return convolved(b, centred(b, x, x_zero), weights, win, group)


def per_feature(b: Builder, p: Operand, rank: int) -> Operand:
    """Returns a parameter of the weights (features, channels, *kernel), which is one number or one per feature, so that it
    broadcasts."""
    if p.size == 1:
        return b.reshape(p, ())
    if p.rank != 1:
        raise UnsupportedError(f"one number, or one for each feature, is needed, but {p} is given")
    return b.reshape(p, (p.shape[0], *(1,) * (rank - 1)))


def centred_weights(b: Builder, w: Operand, zero: Operand | None) -> Operand:
    """Returns weights of a convolution minus their zero point. If both are constant, the result is a constant: of bytes if it
    fits, as it nearly always does."""
    spread = per_feature(b, zero, w.rank) if zero is not None else None
    if zero is not None and zero.size != 1:
        b.require(equal(zero.shape[0], w.shape[0]), "{} zero points of weights {}", zero.shape[0], w)
    values, zeros = w.constant, 0 if spread is None else spread.constant
    if values is None or zeros is None:
        return centred(b, w, spread)
    if w.dtype is DType.INT8 and not np.any(zeros):
        return w
    found = values.astype(np.int16) - np.asarray(zeros, np.int16)
    limits = np.iinfo(np.int8)
    return b.constant(
        found.astype(np.int8) if limits.min <= found.min(initial=0) and found.max(initial=0) <= limits.max else found
    )


def biased(b: Builder, sums: Operand, bias: Operand | None, dtype: DType) -> Operand:
    """Returns the sums of a convolution plus a number per feature, in `dtype`."""
    if bias is None:
        return b.cast(sums, dtype)
    if bias.rank != 1:
        raise UnsupportedError(f"a bias {bias} is not one number for each feature")
    spread = b.reshape(bias, (bias.shape[0], *(1,) * (sums.rank - 2)))
    return b.pointwise("x + bias", {"x": sums, "bias": spread}, dtype, sums.shape)


def convolution(
    b: Builder, x: Operand, w: Operand, with_channels_last: bool = False, **attributes: Unpack[ConvAttributes]
) -> Operand:
    """Returns the sums of a convolution in the accumulator type of x. The padding is zeros.

    `with_channels_last`: the result is stored channels-last, where that is possible.
    """
    w, win, group = _geometry(b, x, w, attributes)
    return convolved(b, x, w, win, group, with_channels_last)


def _geometry(b: Builder, x: Operand, w: Operand, attributes: ConvAttributes) -> tuple[Operand, Window, int]:
    """Returns weights with a known kernel size, the windows of x, and the number of groups."""
    if x.rank < 3:
        raise UnsupportedError("a convolution without spatial axes is not supported")
    if w.rank != x.rank:
        raise UnsupportedError(f"weights {w} and the input {x} have different ranks")
    (w, kernel), group = kernel_of(b, w, attributes), attributes.get("group", 1)
    b.require(
        equal(x.shape[1], w.shape[1] * group),
        f"{{}} does not have {{}} channels in each of {group} groups",
        x,
        w.shape[1],
    )
    return w, window(b, x.shape[2:], kernel, attributes), group


def convolved(b: Builder, x: Operand, w: Operand, win: Window, group: int, with_channels_last: bool = False) -> Operand:
    """Returns the sums of the windows of x, weighted by w."""
    mark = b.mark()
    try:
        return _convolution_at_once(b, x, w, win, group, with_channels_last)
    except BindingsError:
        b.undo(mark)
        return _in_halves(b, x, w, win, group)


def _in_halves(b: Builder, x: Operand, w: Operand, win: Window, group: int) -> Operand:
    """Splits a convolution that needs too many bindings into halves: of the batch, the groups, the features or the channels,
    whichever leaves the smallest ranges to bind."""
    y = View.of(Tensor(x.dtype.accumulated, (x.shape[0], w.shape[0], *win.outputs)))
    options: list[list[tuple[View, int | None]]] = [[(x.view, 0), (w.view, None), (y, 0)]]
    if group == 1:
        options += [[(x.view, None), (w.view, 0), (y, 1)], [(x.view, 1), (w.view, 1), (y, None)]]
    chosen = least_reach(options)
    if group > 1 and chosen is None:
        return _in_halves_of_groups(b, x, w, win, group)
    if chosen is None:
        raise BindingsError(f"the convolution of {x} needs more bindings than the adapter has, even if it is divided")
    (_, of_x), (_, of_w), (_, of_y) = options[chosen]
    extent = next(view.shape[axis] for view, axis in options[chosen] if axis is not None)
    assert isinstance(extent, int)
    halves = [
        convolved(
            b,
            x if of_x is None else b.slice(x, of_x, start, 1, count),
            w if of_w is None else b.slice(w, of_w, start, 1, count),
            win,
            group,
        )
        for start, count in ((0, extent // 2), (extent // 2, extent - extent // 2))
    ]
    if of_y is None:
        return b.pointwise("x + y", {"x": halves[0], "y": halves[1]}, halves[0].dtype)
    return b.joined(halves, of_y)


def _in_halves_of_groups(b: Builder, x: Operand, w: Operand, win: Window, group: int) -> Operand:
    """Splits a convolution of one image into two halves of its groups."""
    halves, channels, features = [], w.shape[1], floordiv(w.shape[0], group)
    for start, count in ((0, group // 2), (group // 2, group - group // 2)):
        own = b.slice(x, 1, start * channels, 1, count * channels)
        halves.append(convolved(b, own, b.slice(w, 0, start * features, 1, count * features), win, count))
    return b.joined(halves, 1)


def _convolution_at_once(
    b: Builder, x: Operand, w: Operand, win: Window, group: int, with_channels_last: bool
) -> Operand:
    """A convolution that is not split: one product or one kernel. Raises BindingsError."""
    per_group = floordiv(w.shape[0], group)
    if group > 1 and w.shape[1] == 1 and equal(x.shape[1], group) == 1 and depthwise.supports(win):
        if depthwise.supports_four_channels(b, x, w):
            return depthwise.of_four_channels(b, x, w, win)
        return depthwise.depthwise_convolution(b, x, w, win)
    if with_channels_last and group > 1 and conv_groups.supports(b, x, w, win, group):
        return conv_groups.convolution_in_groups(b, x, w, win, group)
    longest = b.target.longest_loop
    loops = _loops(w, win)
    short = longest is None or not isinstance(loops, int) or loops <= longest
    if group > 1 and isinstance(per_group, int) and per_group < FEWEST_ROWS and short:
        return _direct(b, x, w, win, group)
    # Windows that share elements are read from the image directly; others become a matrix, copied once.
    if (win.is_padded or win.overlap) and conv_direct.supports(b, w, win):
        return conv_direct.direct_convolution(b, x, w, win, group)
    if with_channels_last and group == 1 and conv_rows.supports(x, w):
        return conv_rows.convolution_of_rows(b, x, w, win)
    if group > 1:
        x = b.reshape(x, (x.shape[0] * group, floordiv(x.shape[1], group), *x.shape[2:]))
    return product_of_windows(b, _windows(b, x, win), w, win, group)


def product_of_windows(b: Builder, windows: Operand, w: Operand, win: Window, group: int) -> Operand:
    """Returns windows (batch * group, channels / group, *kernel, *outputs) times w, in the accumulator type of the windows."""
    batch, features = windows.shape[0], (group, floordiv(w.shape[0], group))
    weights = b.reshape(w, (*features, *w.shape[1:]))
    if group == 1:
        weights = b.expand(b.reshape(w, (1, *w.shape)), (batch, *w.shape))
        shape: tuple[Dim, ...] = (batch, w.shape[0], *win.outputs)
        parts = (1, 1, win.rank)
    else:
        first = floordiv(batch, group)
        weights = b.expand(b.reshape(weights, (1, *weights.shape)), (first, *weights.shape))
        windows = b.reshape(windows, (first, group, *windows.shape[1:]))
        shape, parts = (first, *features, *win.outputs), (2, 1, win.rank)
    lead = parts[0]
    result = matrix_product(
        b,
        weights,
        (lead, 1, 1 + win.rank),
        windows,
        (lead, 1 + win.rank, win.rank),
        shape,
        parts,
        windows.dtype.accumulated,
    )
    return b.reshape(result, (shape[0], w.shape[0], *win.outputs))


def kernel_of(b: Builder, w: Operand, attributes: WindowAttributes) -> tuple[Operand, tuple[int, ...]]:
    """Returns weights, and their spatial extents as numbers: the node's own, or else those that keep the size of an image."""
    rank, given, pads = w.rank - 2, attributes.get("kernel_shape"), attributes.get("pads")
    check_lengths(attributes, given or (1,) * rank, rank)
    _, dilations = steps(attributes, rank)
    kernel = []
    for k, extent in enumerate(w.shape[2:]):
        if given:
            b.require(equal(extent, given[k]), f"weights {{}} do not have the kernel_shape {given}", w)
            kernel.append(given[k])
        else:
            margin = pads[k] + pads[rank + k] if pads else 0
            kernel.append(b.assume(extent, 1 + margin // dilations[k], "the size of the kernel"))
    return b.assumed(w, (*w.shape[:2], *kernel)), tuple(kernel)


def _windows(b: Builder, x: Operand, win: Window) -> Operand:
    """Returns the windows of x (batch, channels, *inputs), (batch, channels, *kernel, *outputs), with 0 in the padding."""
    view = win.view(x.view)
    if view is not None:
        rearranged = not win.overlap and (win.taps > 1 or any(step != 1 for step in win.strides))
        return b.copy(b.view(x, view)) if rearranged else b.view(x, view)
    return b.map(
        "windows",
        x.dtype,
        (*x.shape[:2], *win.kernel, *win.outputs),
        ("image", "row", "column"),
        (1, 1 + win.rank, win.rank),
        {"x": (x, (1,) * x.rank)},
        parameters=parameters(win),
        cost=4 + 2 * win.rank,
        reuse=True,
        inline=True,
        **constants(win),
    )


def _loops(w: Operand, win: Window) -> Dim:
    """Loop iterations of an invocation that accumulates the taps of one output element."""
    return w.shape[1] * (1 + loops_of(win.kernel))


def _direct(b: Builder, x: Operand, w: Operand, win: Window, group: int) -> Operand:
    """One invocation accumulates the taps of one output element, for groups of few channels."""
    channels, features = w.shape[1], w.shape[0]
    return b.map(
        "conv_taps",
        x.dtype.accumulated,
        (x.shape[0], features, *win.outputs),
        ("image", "feature", *(f"at{k}" for k in range(win.rank))),
        (1,) * x.rank,
        {"x": (x, (1,) * x.rank), "w": (w, (1,) * w.rank)},
        parameters={**parameters(win), "channels": channels, "per_group": floordiv(features, group)},
        cost=min(64, 3 * win.taps * (channels if isinstance(channels, int) else 4)),
        iterations=_loops(w, win),
        reuse=True,
        **constants(win),
    )
