"""Pooling: windows folded to one element by the invocation that owns the result; global pooling is a reduction."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import UnsupportedError
from ...program.dtypes import DType
from ..builder import Builder, Operand
from ..codegen.prelude import map_body
from ..dims import floordiv
from .reduction import reduce_axes
from .registry import FLOATS, INTEGERS, op
from .window import Window, body, loops_of, parameters, position, window

BYTES = frozenset({DType.INT8, DType.UINT8})


def _fold(
    b: Builder,
    x: Operand,
    win: Window,
    dtype: DType,
    start: Sequence[str],
    tap: Sequence[str],
    finish: str,
    extents: str = "in",
) -> Operand:
    """Statements `start`, then `tap` for each element of the window at (image, channel, i0, i1...), then `finish`.

    `extents` is "in" to visit only elements of x, "padded" to visit the padding too.
    """
    axes = range(win.rank)
    lines = list(start)
    for k in axes:
        lines.append(f"for (var t{k} = 0u; t{k} < {win.kernel[k]}u; t{k}++) {{")
        begin = f"$begin{k}" if win.begins[k] != 0 and extents == "in" else ""
        lines.append(f"let i{k} = {position(f'at{k}', win.strides[k], f't{k}', win.dilations[k], begin)};")
        if win.may_leave(k):
            lines.append(f"if (i{k} >= ${extents}{k}) {{ continue; }}")
    lines += [*tap, *["}"] * win.rank, finish]
    shape = (*x.shape[:2], *win.outputs)
    names = ("image", "channel", *(f"at{k}" for k in axes))
    dims = {**parameters(win), "channels": x.shape[1]}
    return b.map(
        body(lines),
        dtype,
        shape,
        names,
        (1,) * x.rank,
        {"x": (x, (1,) * x.rank)},
        parameters=dims,
        cost=min(64, 4 * win.taps),
        reuse=True,
        iterations=loops_of(win.kernel),
    )


def _element(win: Window) -> str:
    return f"x_at(image, channel, {', '.join(f'i{k}' for k in range(win.rank))})"


def _window(
    b: Builder,
    x: Operand,
    kernel_shape: list[int],
    strides: list[int] | None,
    dilations: list[int] | None,
    pads: list[int] | None,
    auto_pad: str,
    ceil_mode: int,
) -> Window:
    if x.rank < 3:
        raise UnsupportedError("pooling without spatial axes")
    return window(b, x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, bool(ceil_mode))


@op("MaxPool", types=FLOATS | BYTES)
def max_pool(
    b: Builder,
    x: Operand,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
    outputs: int = 1,
) -> list[Operand]:
    """The largest element of each window and, when asked for, its flat position in x; NaN counts as the largest."""
    win = _window(b, x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    v = _element(win)
    lowest = {DType.INT8: "-128i", DType.UINT8: "0u"}.get(x.dtype, "float_bits(0xff800000u)")
    larger = "max_f32" if x.dtype.is_float else "max"
    y = _fold(b, x, win, x.dtype, [f"var best = {lowest};"], [f"best = {larger}(best, {v});"], "return best;")
    if outputs < 2:
        return [y]
    start = [f"var best = {lowest};", "var at = -1i;"]
    above = "v > best || (isnan_f32(v) && !isnan_f32(best))" if x.dtype.is_float else "v > best"
    tap = [f"let v = {v};", f"if (at < 0 || {above}) {{ best = v; at = i32({_flat(win, storage_order)}); }}"]
    return [y, b.pointwise("i64(x)", {"x": _fold(b, x, win, DType.INT32, start, tap, "return at;")}, DType.INT64)]


def _flat(win: Window, storage_order: int) -> str:
    """The flat index in x; with `storage_order` 1 the first spatial axis is the one that varies fastest."""
    axes = list(range(win.rank))
    text, size = "(image * $channels + channel)", " * ".join(f"$in{k}" for k in axes)
    inner = "0u"
    for k in axes[::-1] if storage_order else axes:
        inner = f"({inner} * $in{k} + i{k})"
    return f"{text} * {size} + {inner}"


@op("AveragePool", types=FLOATS)
def average_pool(
    b: Builder,
    x: Operand,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Operand:
    """The mean of each window; the padding counts as zeros with `count_include_pad`, else not at all."""
    win = _window(b, x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    if not any(win.may_leave(k) for k in range(win.rank)):
        return _fold(
            b, x, win, x.dtype, ["var total = 0f;"], [f"total += {_element(win)};"], f"return total / {win.taps}f;"
        )
    start = ["var total = 0f;", "var count = 0f;"]
    if not count_include_pad:
        return _fold(b, x, win, x.dtype, start, [f"total += {_element(win)};", "count += 1f;"], "return total / count;")
    inside = [f"let s{k} = i{k} - $begin{k};" for k in range(win.rank)]
    element = f"x_at(image, channel, {', '.join(f's{k}' for k in range(win.rank))})"
    checks = " && ".join(f"s{k} < $in{k}" for k in range(win.rank))
    tap = ["count += 1f;", *inside, f"if ({checks}) {{ total += {element}; }}"]
    return _fold(b, x, win, x.dtype, start, tap, "return total / count;", "padded")


@op("LpPool", types=FLOATS)
def lp_pool(
    b: Builder,
    x: Operand,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    p: int = 2,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Operand:
    """The p-norm of each window."""
    win = _window(b, x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    power = {1: "v", 2: "v * v"}.get(p, f"pow_f32(v, {float(p)}f)")
    finish = {1: "total", 2: "sqrt(total)"}.get(p, f"pow_f32(total, {1 / p!r}f)")
    return _fold(
        b,
        x,
        win,
        x.dtype,
        ["var total = 0f;"],
        [f"let v = abs({_element(win)});", f"total += {power};"],
        f"return {finish};",
    )


@op("Col2Im", types=FLOATS, image_shape=INTEGERS, block_shape=INTEGERS)
def col2im(
    b: Builder,
    x: Operand,
    image_shape: Operand,
    block_shape: Operand,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Operand:
    """Columns (batch, channels * taps, windows) summed back to the image that they were cut from."""
    block = block_shape.ints("the block shape")
    win = window(b, image_shape.dims("the image shape"), block, strides, dilations, pads, "NOTSET")
    axes = range(win.rank)
    columns = b.reshape(x, (x.shape[0], floordiv(x.shape[1], win.taps), *block, *win.outputs))
    taps, windows = (", ".join(f"{c}{k}" for k in axes) for c in "to")
    names = ("image", "channel", *(f"at{k}" for k in axes))
    return b.map(
        map_body("col2im", RANK=win.rank),
        x.dtype,
        (*columns.shape[:2], *win.inputs),
        names,
        (1,) * len(names),
        {"x": (columns, (1,) * columns.rank)},
        parameters={
            **parameters(win),
            **{f"kernel{k}": size for k, size in enumerate(win.kernel)},
            **{f"stride{k}": step for k, step in enumerate(win.strides)},
            **{f"dilation{k}": step for k, step in enumerate(win.dilations)},
        },
        cost=min(64, 4 * win.taps),
        reuse=True,
        iterations=loops_of(win.kernel),
        TAPS=taps,
        WINDOWS=windows,
    )


@op("GlobalAveragePool", types=FLOATS)
def global_average_pool(b: Builder, x: Operand) -> Operand:
    return reduce_axes(b, "ReduceMean", x, list(range(2, x.rank)), True)


@op("GlobalMaxPool", types=FLOATS)
def global_max_pool(b: Builder, x: Operand) -> Operand:
    return reduce_axes(b, "ReduceMax", x, list(range(2, x.rank)), True)


@op("GlobalLpPool", types=FLOATS)
def global_lp_pool(b: Builder, x: Operand, *, p: int = 2) -> Operand:
    axes = list(range(2, x.rank))
    if p in (1, 2):
        return reduce_axes(b, f"ReduceL{p}", x, axes, True)
    powers = b.pointwise("pow(abs(x), p)", {"x": x}, x.dtype, cost=16, p=float(p))
    return b.pointwise("pow(x, q)", {"x": reduce_axes(b, "ReduceSum", powers, axes, True)}, x.dtype, cost=16, q=1 / p)
