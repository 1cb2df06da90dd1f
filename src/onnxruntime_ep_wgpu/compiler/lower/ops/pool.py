"""Pooling: the invocation for a result reduces its window to one element. Global pooling is a reduction."""

from __future__ import annotations

from typing import Any, Unpack

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import Dim, floordiv
from ..builder import Builder, Operand
from .choices import Flag
from .conv_transpose import summed
from .reduction import reduce_axes
from .registry import FLOATS, INTEGERS, op
from .window import PoolAttributes, Window, WindowAttributes, constants, loops_of, parameters, window

BYTES = frozenset({DType.INT8, DType.UINT8})


def _pooled(
    b: Builder, x: Operand, win: Window, body: str, dtype: DType, *, more: dict[str, Dim] | None = None, **own: Any
) -> Operand:
    """Applies a body to each window at (image, channel, at0, at1...). `own` are its constants in addition to the window's."""
    return b.map(
        body,
        dtype,
        (*x.shape[:2], *win.outputs),
        ("image", "channel", *(f"at{k}" for k in range(win.rank))),
        (1,) * x.rank,
        {"x": (x, (1,) * x.rank)},
        parameters=parameters(win) | (more or {}),
        cost=min(64, 4 * win.taps),
        reuse=True,
        iterations=loops_of(win.kernel),
        **constants(win),
        **own,
    )


def _window(b: Builder, x: Operand, attributes: PoolAttributes) -> Window:
    if x.rank < 3:
        raise UnsupportedError("pooling without spatial axes is not supported")
    kernel = attributes.get("kernel_shape") or ()
    return window(b, x.shape[2:], kernel, attributes, bool(attributes.get("ceil_mode")))


@op("MaxPool", types=FLOATS | BYTES, keeps_format=True)
def max_pool(
    b: Builder, x: Operand, *, storage_order: Flag = 0, outputs: int = 1, **attributes: Unpack[PoolAttributes]
) -> list[Operand]:
    """Returns the largest element of each window and, if requested, its flat position in x. NaN counts as the largest.

    With `storage_order` 1, the first spatial axis varies fastest in that position.
    """
    win = _window(b, x, attributes)
    lowest = {DType.INT8: "-128i", DType.UINT8: "0u"}.get(x.dtype, "float_bits(0xff800000u)")
    floats = x.dtype.is_float
    y = _pooled(b, x, win, "max_pool", x.dtype, LOWEST=lowest, FLOATS=floats)
    if outputs < 2:
        return [y]
    axes = range(win.rank)
    order = {f"AXIS{k}": axis for k, axis in enumerate(axes[::-1] if storage_order else axes)}
    more: dict[str, Dim] = {"channels": x.shape[1]}
    at = _pooled(b, x, win, "max_pool_at", DType.INT32, more=more, LOWEST=lowest, FLOATS=floats, **order)
    return [y, b.cast(at, DType.INT64)]


@op("AveragePool", types=FLOATS, keeps_format=True)
def average_pool(
    b: Builder, x: Operand, *, count_include_pad: Flag = 0, **attributes: Unpack[PoolAttributes]
) -> Operand:
    """Returns the mean of each window. The padding counts as zeros with `count_include_pad`, else it is left out."""
    win = _window(b, x, attributes)
    padding = win.is_padded and bool(count_include_pad)
    return _pooled(b, x, win, "average_pool", x.dtype, PADDED=win.is_padded, COUNT_PADDING=padding, TAPS=win.taps)


@op("LpPool", types=FLOATS)
def lp_pool(b: Builder, x: Operand, *, p: int = 2, **attributes: Unpack[PoolAttributes]) -> Operand:
    """Returns the p-norm of each window."""
    _require_norm(p)
    return _pooled(b, x, _window(b, x, attributes), "lp_pool", x.dtype, P=float(p))


def _require_norm(p: int) -> None:
    if p < 1:
        raise UnsupportedError(f"p is {p}, and must be at least 1")


@op("Col2Im", types=FLOATS, image_shape=INTEGERS, block_shape=INTEGERS)
def col2im(
    b: Builder, x: Operand, image_shape: Operand, block_shape: Operand, **attributes: Unpack[WindowAttributes]
) -> Operand:
    """Sums columns (batch, channels * taps, windows) back to the image that they were extracted from."""
    block = b.assumed_ints(block_shape.dims("the block shape"), "the block shape", lambda n: [1] * n)
    win = window(b, image_shape.dims("the image shape"), block, attributes)
    return summed(b, b.reshape(x, (x.shape[0], floordiv(x.shape[1], win.taps), *block, *win.outputs)), win)


@op("GlobalAveragePool", types=FLOATS, any_format=True)
def global_average_pool(b: Builder, x: Operand) -> Operand:
    return reduce_axes(b, "GlobalAveragePool", x, list(range(2, x.rank)), True)


@op("GlobalMaxPool", types=FLOATS, any_format=True)
def global_max_pool(b: Builder, x: Operand) -> Operand:
    return reduce_axes(b, "ReduceMax", x, list(range(2, x.rank)), True)


@op("GlobalLpPool", types=FLOATS)
def global_lp_pool(b: Builder, x: Operand, *, p: int = 2) -> Operand:
    _require_norm(p)
    axes = list(range(2, x.rank))
    if p in (1, 2):
        return reduce_axes(b, f"ReduceL{p}", x, axes, True)
    powers = b.pointwise("pow(abs(x), p)", {"x": x}, x.dtype, cost=16, p=float(p))
    return b.pointwise("pow(x, q)", {"x": reduce_axes(b, "ReduceSum", powers, axes, True)}, x.dtype, cost=16, q=1 / p)
