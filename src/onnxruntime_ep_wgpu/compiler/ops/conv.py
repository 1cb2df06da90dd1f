"""Convolution and its transpose, over any number of spatial axes.

A convolution is the matrix product of its weights (output channels by channels and taps) and the matrix of windows
(channels and taps by positions). That matrix is a view of the input, or index arithmetic with zeros for the padding that
the product's loads carry out. It is in memory only where windows share no elements, so that loads find neighbours.
Groups with few channels have no product worth the name: there each output element is summed by one invocation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from ...errors import UnsupportedError
from ..builder import Builder, Operand
from ..dims import Dim, equal, floordiv, maximum
from ..divide import BindingsError, least_reach
from ..ir import Tensor, View
from . import depthwise
from .conv_direct import direct_convolution, fits
from .matmul import matrix_product
from .registry import FLOATS, op
from .window import ConvAttributes, Window, body, digits, loops_of, parameters, position, window

FEWEST_ROWS = 8  # output channels per group below which a matrix product computes mostly padding of its tiles


@op("Conv", types=FLOATS)
def conv(
    b: Builder, x: Operand, w: Operand, bias: Operand | None = None, **attributes: Unpack[ConvAttributes]
) -> Operand:
    """x (batch, channels, *inputs), w (features, channels / group, *kernel) -> (batch, features, *outputs)."""
    result = convolution(b, x, w, **attributes)
    if bias is not None:
        spread = b.reshape(bias, (bias.shape[0], *(1,) * (result.rank - 2)))
        return b.pointwise("x + bias", {"x": result, "bias": spread}, x.dtype, result.shape)
    return result if result.dtype is x.dtype else b.pointwise("x", {"x": result}, x.dtype)


def convolution(b: Builder, x: Operand, w: Operand, **attributes: Unpack[ConvAttributes]) -> Operand:
    """The sums of a convolution, in the type in which elements of x are accumulated; the padding counts as zeros."""
    if x.rank < 3:
        raise UnsupportedError("a convolution without spatial axes")
    kernel, group = _kernel(w), attributes.get("group", 1)
    b.require(
        equal(x.shape[1], w.shape[1] * group),
        f"{{}} does not have {{}} channels in each of {group} groups",
        x,
        w.shape[1],
    )
    win = window(
        b,
        x.shape[2:],
        kernel,
        attributes.get("strides"),
        attributes.get("dilations"),
        attributes.get("pads"),
        attributes.get("auto_pad", "NOTSET"),
    )
    return convolved(b, x, w, win, group)


def convolved(b: Builder, x: Operand, w: Operand, win: Window, group: int) -> Operand:
    """The sums of the windows of x, weighted by w."""
    mark = b.mark()
    try:
        return _convolution(b, x, w, win, group)
    except BindingsError:
        b.undo(mark)
        return _divided(b, x, w, win, group)


def _divided(b: Builder, x: Operand, w: Operand, win: Window, group: int) -> Operand:
    """A convolution of tensors that take too many bindings in halves: of the batch, the groups, the features or the channels,
    whichever leave least to reach."""
    y = View.of(Tensor(x.dtype.accumulated, (x.shape[0], w.shape[0], *win.outputs)))
    options: list[list[tuple[View, int | None]]] = [[(x.view, 0), (w.view, None), (y, 0)]]
    if group == 1:
        options += [[(x.view, None), (w.view, 0), (y, 1)], [(x.view, 1), (w.view, 1), (y, None)]]
    chosen = least_reach(options)
    if group > 1 and chosen is None:
        return _in_groups(b, x, w, win, group)
    if chosen is None:
        raise BindingsError(f"the convolution of {x} takes more bindings than the adapter has, however it is divided")
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
    return b.beside(halves, of_y)


def _in_groups(b: Builder, x: Operand, w: Operand, win: Window, group: int) -> Operand:
    """A convolution of one image in two halves of its groups."""
    halves, channels, features = [], w.shape[1], floordiv(w.shape[0], group)
    for start, count in ((0, group // 2), (group // 2, group - group // 2)):
        own = b.slice(x, 1, start * channels, 1, count * channels)
        halves.append(convolved(b, own, b.slice(w, 0, start * features, 1, count * features), win, count))
    return b.beside(halves, 1)


def _convolution(b: Builder, x: Operand, w: Operand, win: Window, group: int) -> Operand:
    """One that fits, in one product or by one kernel. Raises BindingsError."""
    per_group = floordiv(w.shape[0], group)
    if group > 1 and w.shape[1] == 1 and equal(x.shape[1], group) == 1 and depthwise.fits(win):
        return depthwise.depthwise_convolution(b, x, w, win)
    longest = b.target.longest_loop
    loops = _loops(w, win)
    short = longest is None or not isinstance(loops, int) or loops <= longest
    if group > 1 and isinstance(per_group, int) and per_group < FEWEST_ROWS and short:
        return _direct(b, x, w, win, group)
    # Windows that share elements are read straight from the image, others are a matrix that is copied once.
    if (win.is_padded or win.overlap) and fits(b, w, win):
        return direct_convolution(b, x, w, win, group)
    if group > 1:
        x = b.reshape(x, (x.shape[0] * group, floordiv(x.shape[1], group), *x.shape[2:]))
    windows = _windows(b, x, win)
    batch, features = x.shape[0], (group, per_group)
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
        b, weights, (lead, 1, 1 + win.rank), windows, (lead, 1 + win.rank, win.rank), shape, parts, x.dtype.accumulated
    )
    return b.reshape(result, (shape[0], w.shape[0], *win.outputs))


def _kernel(w: Operand) -> tuple[int, ...]:
    kernel = w.shape[2:]
    if not all(isinstance(k, int) for k in kernel):
        raise UnsupportedError("the size of the kernel depends on an input")
    return kernel  # type: ignore[return-value]


def _windows(b: Builder, x: Operand, win: Window) -> Operand:
    """x (batch, channels, *inputs) as (batch, channels, *kernel, *outputs): element of each window, 0 in the padding."""
    view = win.view(x.view)
    if view is not None:
        rearranged = not win.overlap and (win.taps > 1 or any(step != 1 for step in win.strides))
        return b.copy(b.view(x, view)) if rearranged else b.view(x, view)
    axes = range(win.rank)
    lines = digits("c", "row", ["1u", *(f"{k}u" for k in win.kernel)]) if win.taps > 1 else ["let c0 = row;"]
    lines += digits("at", "column", [f"$out{k}" for k in axes])
    tap = [f"c{k + 1}" if win.taps > 1 and win.kernel[k] > 1 else "" for k in axes]
    for k in axes:
        lines.append(f"let i{k} = {position(f'at{k}', win.strides[k], tap[k], win.dilations[k], _begin(win, k))};")
    checks = [f"i{k} >= $in{k}" for k in axes if win.may_leave(k)]
    if checks:
        lines.append(f"if ({' || '.join(checks)}) {{ return $out_t(); }}")
    lines.append(f"return x_at(image, c0, {', '.join(f'i{k}' for k in axes)});")
    shape = (*x.shape[:2], *win.kernel, *win.outputs)
    return b.map(
        body(lines),
        x.dtype,
        shape,
        ("image", "row", "column"),
        (1, 1 + win.rank, win.rank),
        {"x": (x, (1,) * x.rank)},
        parameters=parameters(win),
        cost=4 + 2 * win.rank,
        inline=True,
    )


def _begin(win: Window, k: int) -> str:
    return f"$begin{k}" if win.begins[k] != 0 else ""


def _loops(w: Operand, win: Window) -> Dim:
    """Iterations of an invocation that sums the taps of one output element."""
    return w.shape[1] * (1 + loops_of(win.kernel))


def _direct(b: Builder, x: Operand, w: Operand, win: Window, group: int) -> Operand:
    """One invocation sums the taps of one output element: depthwise convolution and small groups."""
    axes = range(win.rank)
    channels, features = w.shape[1], w.shape[0]
    operands = {"x": (x, (1,) * x.rank), "w": (w, (1, 1, win.rank))}
    lines = ["var total = $out_t();"]
    lines.append(
        f"for (var c = 0u; c < $channels; c++) {{ let channel = feature / {floordiv(features, group)}u * $channels + c;"
    )
    for k in axes:
        lines.append(f"for (var t{k} = 0u; t{k} < {win.kernel[k]}u; t{k}++) {{")
        lines.append(f"let i{k} = {position(f'at{k}', win.strides[k], f't{k}', win.dilations[k], _begin(win, k))};")
        if win.may_leave(k):
            lines.append(f"if (i{k} >= $in{k}) {{ continue; }}")
    tap = "t0"
    for k in axes[1:]:
        tap = f"({tap} * {win.kernel[k]}u + t{k})"
    lines.append(f"total += x_at(image, channel, {', '.join(f'i{k}' for k in axes)}) * w_at(feature, c, {tap});")
    lines += ["}"] * (win.rank + 1) + ["return total;"]
    shape = (x.shape[0], features, *win.outputs)
    coordinates = ("image", "feature", *(f"at{k}" for k in axes))
    cost = min(64, 3 * win.taps * (channels if isinstance(channels, int) else 4))
    return b.map(
        body(lines),
        x.dtype.accumulated,
        shape,
        coordinates,
        (1,) * x.rank,
        operands,
        parameters={**parameters(win), "channels": channels},
        cost=cost,
        iterations=_loops(w, win),
        reuse=True,
    )


@op("ConvTranspose", types=FLOATS)
def conv_transpose(
    b: Builder,
    x: Operand,
    w: Operand,
    bias: Operand | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Operand:
    """x (batch, channels, *inputs), w (channels, features / group, *kernel) -> (batch, features, *outputs).

    A matrix product gives what each input position adds to each tap; a map then sums, per output element, the taps that
    reach it. Kernels that do not overlap (stride equal to the kernel, no padding) only need a view of the product.
    """
    if x.rank < 3:
        raise UnsupportedError("a convolution without spatial axes")
    kernel, rank = _kernel(w), x.rank - 2
    b.require(equal(x.shape[1], w.shape[0]), "{} does not have the {} channels of the weights", x, w.shape[0])
    win = _transposed(x.shape[2:], kernel, strides, dilations, pads, auto_pad, output_padding, output_shape)
    batch, per_group, channels = x.shape[0], w.shape[1], floordiv(w.shape[0], group)
    features = per_group * group
    source = b.reshape(x, (batch, group, channels, *x.shape[2:]))
    weights = b.reshape(w, (group, channels, per_group, *kernel))
    weights = b.permute(weights, (0, 2, *range(3, 3 + rank), 1))
    weights = b.expand(b.reshape(weights, (1, *weights.shape)), (batch, *weights.shape))
    shape = (batch, group, per_group, *kernel, *x.shape[2:])
    product_ = matrix_product(b, weights, (2, 1 + rank, 1), source, (2, 1, rank), shape, (2, 1 + rank, rank), x.dtype)
    columns = b.reshape(product_, (batch, features, *kernel, *x.shape[2:]))
    result = _gathered(b, columns, win)
    if bias is None:
        return result
    return b.pointwise(
        "x + bias", {"x": result, "bias": b.reshape(bias, (features, *(1,) * rank))}, x.dtype, result.shape
    )


def _transposed(
    inputs: Sequence[Dim],
    kernel: tuple[int, ...],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
    extra: Sequence[int] | None,
    wanted: Sequence[int] | None,
) -> Window:
    """The windows of the convolution that is transposed: `inputs` are what it reads, which is what we write."""
    rank = len(inputs)
    strides, dilations = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    begins, ends, outputs = [], [], []  # type: list[Dim], list[Dim], list[Dim]
    for k, extent in enumerate(inputs):
        more = extra[k] if extra else 0
        full = (extent - 1) * strides[k] + (kernel[k] - 1) * dilations[k] + 1 + more
        if wanted or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            target = wanted[len(wanted) - rank + k] if wanted else extent * strides[k]
            total = maximum(full - target, 0)
            # ONNX: the odd pad goes to the beginning, except with SAME_UPPER.
            begin = floordiv(total + (auto_pad != "SAME_UPPER"), 2)
            begins.append(begin)
            ends.append(total - begin)
            outputs.append(target)
        else:
            begins.append(pads[k] if pads and auto_pad == "NOTSET" else 0)
            ends.append(pads[rank + k] if pads and auto_pad == "NOTSET" else 0)
            outputs.append(full - begins[k] - ends[k])
    return Window(kernel, strides, dilations, tuple(outputs), tuple(begins), tuple(ends), tuple(inputs))


def _gathered(b: Builder, columns: Operand, win: Window) -> Operand:
    """columns (batch, features, *kernel, *positions) summed where the taps of different positions meet."""
    axes = range(win.rank)
    exact = all(i == o * s for i, o, s in zip(win.inputs, win.outputs, win.strides, strict=True))
    if win.kernel == win.strides and not win.is_padded and exact and all(d == 1 for d in win.dilations):
        order = [0, 1]
        for k in axes:
            order += [2 + win.rank + k, 2 + k]
        return b.reshape(b.permute(columns, order), (*columns.shape[:2], *win.inputs))
    lines = ["var total = 0f;"]
    for k in axes:
        # Taps that reach this element lie a stride apart when there is no dilation.
        shifted = f"at{k}" + (f" + $begin{k}" if win.begins[k] != 0 else "")
        step = win.strides[k] if win.dilations[k] == 1 else 1
        first = f"({shifted}) % {step}u" if step > 1 else "0u"
        lines.append(f"for (var t{k} = {first}; t{k} < {win.kernel[k]}u; t{k} += {step}u) {{")
        lines.append(f"let far{k} = {shifted} - t{k}{f' * {win.dilations[k]}u' if win.dilations[k] != 1 else ''};")
        if step != win.strides[k]:
            lines.append(f"if (far{k} % {win.strides[k]}u != 0u) {{ continue; }}")
        lines.append(f"let i{k} = far{k} / {win.strides[k]}u;")
        # A tap before the first position wraps to a large number; the division would bring it back into range.
        lines.append(f"if (far{k} > 0x7fffffffu || i{k} >= $out{k}) {{ continue; }}")
    coordinates = ", ".join([*(f"t{k}" for k in axes), *(f"i{k}" for k in axes)])
    lines += [f"total += columns_at(image, feature, {coordinates});", *["}"] * win.rank, "return total;"]
    shape = (*columns.shape[:2], *win.inputs)
    names = ("image", "feature", *(f"at{k}" for k in axes))
    return b.map(
        body(lines),
        columns.dtype,
        shape,
        names,
        (1,) * len(shape),
        {"columns": (columns, (1,) * columns.rank)},
        parameters=parameters(win),
        cost=24,
        reuse=True,
        iterations=loops_of(win.kernel),
    )
