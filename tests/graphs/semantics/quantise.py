"""Conversions to small integers and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import rule


def along(parameter: Any, x: Any, axis: int) -> Any:
    """A parameter per tensor, or per index of an axis, as it broadcasts with x."""
    return (
        parameter
        if parameter.ndim == 0
        else parameter.reshape([-1 if k == axis % x.ndim else 1 for k in range(x.ndim)])
    )


@rule("QuantizeLinear")
def quantize(x: Any, scale: Any, zero: Any = None, axis: int = 1, **a: Any) -> Any:
    kind = np.dtype(np.uint8) if zero is None else zero.dtype
    limits = np.iinfo(kind)
    offset = 0 if zero is None else along(zero, x, axis).astype(np.float64)
    return np.clip(np.rint(x / along(scale, x, axis)) + offset, limits.min, limits.max).astype(kind)


@rule("DequantizeLinear")
def _dequantize(x: Any, scale: Any, zero: Any = None, axis: int = 1, **a: Any) -> Any:
    offset = 0 if zero is None else along(zero, x, axis).astype(np.float64)
    return (x.astype(np.float64) - offset) * along(scale, x, axis)


@rule("DynamicQuantizeLinear")
def _dynamic_quantize(x: Any) -> Any:
    high, low = max(float(x.max(initial=0)), 0), min(float(x.min(initial=0)), 0)
    scale = (high - low) / 255
    if not scale:
        raise ValueError("a scale of zero")
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return [np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8), np.array(scale), np.array(zero, np.uint8)]
