"""Products, convolutions and pools."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .. import values
from .quantise import along, quantize
from .registry import RULES, Function, rule

RULES["MatMul"] = np.matmul
RULES["Det"] = np.linalg.det
RULES["Einsum"] = lambda *xs, equation: np.einsum(equation, *xs)


@rule("Gemm")
def _gemm(x: Any, y: Any, c: Any = None, alpha: float = 1, beta: float = 1, transA: int = 0, transB: int = 0) -> Any:
    out = alpha * ((x.T if transA else x) @ (y.T if transB else y))
    return out if c is None else out + beta * c


def _less(x: Any, zero: Any, axis: int = 0) -> Any:
    """x less its zero point, which is for a tensor or for each index of an axis, as int32."""
    return x.astype(np.int32) if zero is None else x.astype(np.int32) - along(zero, x, axis).astype(np.int32)


@rule("ConvInteger")
def _conv_integer(x: Any, w: Any, x_zero: Any = None, w_zero: Any = None, **a: Any) -> Any:
    return _conv(_less(x, x_zero), _less(w, w_zero), **a)


@rule("QLinearMatMul")
def _qlinear_matmul(x: Any, x_scale: Any, x_zero: Any, y: Any, y_scale: Any, y_zero: Any, scale: Any, zero: Any) -> Any:
    return quantize(np.matmul(_less(x, x_zero), _less(y, y_zero)) * (x_scale * y_scale), scale, zero)


@rule("QLinearConv")
def _qlinear_conv(x: Any, x_scale: Any, x_zero: Any, w: Any, w_scale: Any, w_zero: Any, scale: Any, zero: Any,
                  bias: Any = None, **a: Any) -> Any:  # fmt: skip
    sums = _conv(_less(x, x_zero), _less(w, w_zero), bias, **a)
    return quantize(sums * x_scale * along(np.asarray(w_scale), sums, 1), scale, zero)


@rule("BitCast")
def _bit_cast(x: Any, to: int) -> Any:
    return x.view(next(name for name, code in values.CODES.items() if code == to))


@rule("MatMulInteger")
def _matmul_integer(x: Any, y: Any, x_zero: Any = None, y_zero: Any = None) -> Any:
    x, y = (v.astype(np.int32) for v in (x, y))
    x = x if x_zero is None else x - (x_zero.astype(np.int32)[..., None] if x_zero.ndim else x_zero.astype(np.int32))
    y = y if y_zero is None else y - y_zero.astype(np.int32)
    return np.matmul(x, y)


def _windows(x: Any, kernel: Any, strides: Any, dilations: Any) -> Any:
    """(batch, channels, *places, *kernel) of a padded input."""
    n = len(kernel)
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    found = sliding_window_view(x, span, tuple(range(2, 2 + n)))
    places = tuple(slice(None, None, s) for s in strides)
    return found[(slice(None), slice(None), *places, *(slice(None, None, d) for d in dilations))]


@rule("Conv")
def _conv(x: Any, w: Any, bias: Any = None, auto_pad: str = "NOTSET", pads: Any = None, strides: Any = None,
          dilations: Any = None, group: int = 1, kernel_shape: Any = None) -> Any:  # fmt: skip
    n = x.ndim - 2
    strides, dilations = strides or [1] * n, dilations or [1] * n
    kernel = w.shape[2:]
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        total = [
            max((-(-size // s) - 1) * s + (k - 1) * d + 1 - size, 0)
            for size, s, k, d in zip(x.shape[2:], strides, kernel, dilations, strict=True)
        ]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        pads = small + large if auto_pad == "SAME_UPPER" else large + small
    elif auto_pad == "VALID" or pads is None:
        pads = [0] * 2 * n
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:n], pads[n:], strict=True)])
    found = _windows(padded, kernel, strides, dilations)
    part, features = x.shape[1] // group, w.shape[0] // group
    axes = (list(range(2 + n, 2 + 2 * n)), list(range(2, 2 + n)))
    outs = [
        np.moveaxis(
            np.tensordot(found[:, g * part : (g + 1) * part], w[g * features : (g + 1) * features], ([1, *axes[0]], [1, *axes[1]])),
            -1, 1)
        for g in range(group)
    ]  # fmt: skip
    out = np.concatenate(outs, 1)
    return out if bias is None else out + bias.reshape(1, -1, *[1] * n)


@rule("MaxPool", "AveragePool", "LpPool")
def _pool(x: Any, op: str, kernel_shape: Any, strides: Any = None, pads: Any = None, p: int = 2, **a: Any) -> Any:
    n = len(kernel_shape)
    if a.get("ceil_mode") or a.get("auto_pad", "NOTSET") != "NOTSET" or a.get("dilations"):
        raise ValueError("left to the reference evaluator")
    pads = pads or [0] * 2 * n
    widths = [(0, 0), (0, 0), *zip(pads[:n], pads[n:], strict=True)]
    fill = -np.inf if op == "MaxPool" and x.dtype.kind == "f" else 0
    found = _windows(np.pad(x, widths, constant_values=fill), kernel_shape, strides or [1] * n, [1] * n)
    over = tuple(range(2 + n, 2 + 2 * n))
    if op == "MaxPool":
        return found.max(over)
    if op == "LpPool":
        return (np.abs(found) ** p).sum(over) ** (1 / p)
    inside = np.ones_like(x) if not a.get("count_include_pad") else np.ones_like(np.pad(x, widths))
    inside = np.pad(inside, widths) if not a.get("count_include_pad") else inside
    return found.sum(over) / _windows(inside, kernel_shape, strides or [1] * n, [1] * n).sum(over)


def _global(function: Function) -> Function:
    return lambda x, **a: function(x, **{"axis": tuple(range(2, x.ndim)), "keepdims": True})


RULES |= {
    "GlobalAveragePool": _global(np.mean),
    "GlobalMaxPool": _global(np.max),
    "GlobalLpPool": lambda x, p: _global(np.sum)(np.abs(x) ** p) ** (1 / p),
}
