"""Operators that move elements, and those about shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .registry import rule


@rule("Reshape")
def _reshape(x: Any, shape: Any, allowzero: int = 0) -> Any:
    wanted = [x.shape[k] if d == 0 and not allowzero else int(d) for k, d in enumerate(shape)]
    if -1 in wanted and x.size == 0:  # numpy refuses what ONNX allows
        rest = math.prod(d for d in wanted if d != -1)
        if rest == 0:
            raise ValueError("-1 stands for any number")
        wanted[wanted.index(-1)] = 0
    return x.reshape(wanted)


@rule("Flatten")
def _flatten(x: Any, axis: int) -> Any:
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@rule("Squeeze")
def _squeeze(x: Any, axes: Any = None) -> Any:
    return np.squeeze(x, None if axes is None else tuple(int(a) for a in np.reshape(axes, -1)))


@rule("Unsqueeze")
def _unsqueeze(x: Any, axes: Any) -> Any:
    return np.expand_dims(x, tuple(int(a) for a in np.reshape(axes, -1)))


@rule("Transpose")
def _transpose(x: Any, perm: Any = None) -> Any:
    return np.transpose(x, perm)


@rule("Expand")
def _expand(x: Any, shape: Any) -> Any:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(int(d) for d in shape))).copy()


@rule("Slice")
def _slice(x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    where = [slice(None)] * x.ndim
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        where[int(axis)] = _range_of(int(start), int(end), int(step), x.shape[int(axis)])
    return x[tuple(where)]


def _range_of(start: int, end: int, step: int, size: int) -> slice:
    """Bounds by ONNX's clamping, as a numpy slice."""
    start, end = start + size * (start < 0), end + size * (end < 0)
    if step > 0:
        return slice(min(max(start, 0), size), min(max(end, 0), size), step)
    start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return slice(start, end if end >= 0 else None, step) if size else slice(0, 0)


@rule("Split")
def _split(x: Any, sizes: Any = None, axis: int = 0, num_outputs: int = 0) -> Any:
    if sizes is None:
        part = -(-x.shape[axis] // num_outputs)
        sizes = [part] * (num_outputs - 1) + [x.shape[axis] - part * (num_outputs - 1)]
    if min(sizes) < 0 or sum(sizes) != x.shape[axis]:
        raise ValueError("parts that do not add up")
    return list(np.split(x, np.cumsum(sizes)[:-1], axis))


@rule("Concat")
def _concat(*xs: Any, axis: int) -> Any:
    return np.concatenate(xs, axis)


@rule("Tile")
def _tile(x: Any, repeats: Any) -> Any:
    return np.tile(x, tuple(int(r) for r in repeats))


@rule("Pad")
def _pad(x: Any, pads: Any, fill: Any = None, axes: Any = None, mode: str = "constant") -> Any:
    axes = list(range(x.ndim)) if axes is None else [int(a) % x.ndim for a in axes]
    widths, half = [(0, 0)] * x.ndim, len(pads) // 2
    for k, axis in enumerate(axes):
        before, after = int(pads[k]), int(pads[k + half])
        # Negative pads crop.
        start, stop = max(-before, 0), x.shape[axis] - max(-after, 0)
        if stop < start:
            raise ValueError("cropped beyond the end")
        x = np.take(x, range(start, stop), axis)
        widths[axis] = (max(before, 0), max(after, 0))
        if mode == "reflect" and max(widths[axis]) >= max(x.shape[axis], 1):
            raise ValueError("more than one reflection")
        if mode != "constant" and x.shape[axis] == 0 and max(widths[axis]):
            raise ValueError("nothing to repeat")
    if mode == "constant":
        return np.pad(x, widths, constant_values=0 if fill is None else np.reshape(fill, -1)[0])
    return np.pad(x, widths, mode=mode)  # reflect, edge, wrap mean the same


@rule("DepthToSpace")
def _depth_to_space(x: Any, blocksize: int, mode: str) -> Any:
    n, c, h, w = x.shape
    b = blocksize
    if mode == "DCR":
        y = x.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return y.reshape(n, c // b**2, h * b, w * b)


@rule("SpaceToDepth")
def _space_to_depth(x: Any, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    b = blocksize
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return x.reshape(n, c, h // b, b, w // b, b).transpose(order).reshape(n, c * b * b, h // b, w // b)


@rule("Shape")
def _shape(x: Any, start: int = 0, end: int | None = None) -> Any:
    return np.array(x.shape[start:end], np.int64)


@rule("Size")
def _size(x: Any) -> Any:
    return np.array(x.size, np.int64)


@rule("Range")
def _range(start: Any, limit: Any, delta: Any) -> Any:
    count = max(math.ceil((float(limit) - float(start)) / float(delta)), 0)
    return (start + np.arange(count) * delta).astype(start.dtype)


@rule("Constant")
def _constant(value: Any) -> Any:
    return value.astype(np.float64) if value.dtype.kind not in "biu" else value


@rule("ConstantOfShape")
def _constant_of_shape(shape: Any, value: Any) -> Any:
    array = np.asarray(value)
    fill = array.reshape(-1)[0]
    return np.full(tuple(int(d) for d in shape), fill.astype(np.float64) if fill.dtype.kind not in "biu" else fill)
