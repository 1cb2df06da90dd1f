"""What operators compute, on numpy arrays: floats in float64, integers in their own type.

Written from the operators' specification for what is short in numpy; the rest is onnx's reference evaluator, which works in
the type of what it is given. In: a node's operator, arrays (None where an optional input is missing) and attributes, with the
schema's defaults. Out: a list of arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import defs, helper
from onnx.reference import ReferenceEvaluator

from . import values

Function = Callable[..., Any]
_erf = np.vectorize(math.erf, otypes=[np.float64])
RULES: dict[str, Function] = {}


def rule(*names: str) -> Callable[[Function], Function]:
    """Declares `function(*arrays, **attributes)`; attributes that it does not name are passed in `a`."""

    def add(function: Function) -> Function:
        for name in names:
            RULES[name] = function
        return function

    return add


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _softplus(x: Any) -> Any:
    return np.logaddexp(0, x)


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


UNARY: dict[str, Function] = {
    "Abs": np.abs, "Acos": np.arccos, "Acosh": np.arccosh, "Asin": np.arcsin, "Asinh": np.arcsinh, "Atan": np.arctan,
    "Atanh": np.arctanh, "Ceil": np.ceil, "Cos": np.cos, "Cosh": np.cosh, "Erf": _erf, "Exp": np.exp, "Floor": np.floor,
    "Log": np.log, "Neg": np.negative, "Reciprocal": np.reciprocal, "Round": np.rint, "Sign": np.sign, "Sin": np.sin,
    "Sinh": np.sinh, "Sqrt": np.sqrt, "Tan": np.tan, "Tanh": np.tanh, "Not": np.logical_not, "BitwiseNot": np.invert,
    "Identity": lambda x: x, "Dropout": lambda x, **a: x,
    "IsNaN": np.isnan, "Relu": lambda x: np.maximum(x, 0), "Sigmoid": _sigmoid,
    "Softplus": _softplus, "Softsign": lambda x: x / (1 + np.abs(x)), "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Mish": lambda x: x * np.tanh(_softplus(x)),
    "LeakyRelu": lambda x, alpha: np.where(x < 0, alpha * x, x),
    "Elu": lambda x, alpha: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
    "Celu": lambda x, alpha: np.maximum(x, 0) + np.minimum(alpha * np.expm1(np.minimum(x, 0) / alpha), 0),
    "Selu": lambda x, alpha, gamma: gamma * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    "HardSigmoid": lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    "ThresholdedRelu": lambda x, alpha: np.where(x > alpha, x, 0),
    "Shrink": lambda x, bias, lambd: np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)),
    "Swish": lambda x, alpha: x * _sigmoid(alpha * x), "Gelu": _gelu,
    "IsInf": lambda x, detect_negative, detect_positive: np.isinf(x) & np.where(x < 0, detect_negative, detect_positive) > 0,
}  # fmt: skip


def _divide(x: Any, y: Any) -> Any:
    if x.dtype.kind == "f":
        return x / y
    if x.dtype.kind == "u":
        return x // y
    quotient = np.abs(x) // np.abs(y)
    return (np.sign(x) * np.sign(y) * quotient).astype(x.dtype)


def _mod(x: Any, y: Any, fmod: int) -> Any:
    return np.fmod(x, y) if fmod else np.mod(x, y)


def _pow(x: Any, y: Any) -> Any:
    return np.power(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype)


def _shift(x: Any, y: Any, direction: str) -> Any:
    return np.left_shift(x, y) if direction == "LEFT" else np.right_shift(x, y)


BINARY: dict[str, Function] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": _divide, "Pow": _pow, "Mod": _mod,
    "Equal": np.equal, "Less": np.less, "LessOrEqual": np.less_equal, "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal, "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor,
    "BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor, "BitShift": _shift,
    "PRelu": lambda x, y: np.where(x < 0, x * y, x),
}  # fmt: skip
RULES |= UNARY | BINARY


@rule("Sum")
def _sum(*xs: Any) -> Any:
    return sum(xs[1:], start=xs[0])


@rule("Mean")
def _mean(*xs: Any) -> Any:
    return sum(xs[1:], start=xs[0]) / len(xs)


@rule("Min")
def _min(*xs: Any) -> Any:
    return np.minimum.reduce(np.broadcast_arrays(*xs))


@rule("Max")
def _max(*xs: Any) -> Any:
    return np.maximum.reduce(np.broadcast_arrays(*xs))


RULES["Where"] = np.where


@rule("Clip")
def _clip(x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else np.maximum(x, np.reshape(low, ()))
    return x if high is None else np.minimum(x, np.reshape(high, ()))


def cast(x: Any, to: str) -> Any:
    """Floats stay float64; a float becomes an integer by truncation."""
    if to in values.UNIT:
        return x.astype(np.float64)
    if to == "bool":
        return x != 0
    whole = np.trunc(x) if x.dtype.kind == "f" else x
    if x.dtype.kind == "f" and whole.size:
        limits = np.iinfo(to)
        if whole.min() < limits.min or whole.max() > min(limits.max, 2**62):
            raise ValueError("a float beyond the integer type has no defined value")
    return whole.astype(to)


# ---- layout


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


# ---- indices


@rule("Gather")
def _gather(x: Any, indices: Any, axis: int) -> Any:
    return np.take(x, indices, axis)


@rule("GatherElements")
def _gather_elements(x: Any, indices: Any, axis: int) -> Any:
    for k in range(x.ndim):
        if k != axis % x.ndim and indices.shape[k] > x.shape[k]:
            raise ValueError("more indices than elements")
    cut = tuple(slice(None) if k == axis % x.ndim else slice(n) for k, n in enumerate(indices.shape))
    return np.take_along_axis(x[cut], np.where(indices < 0, indices + x.shape[axis], indices), axis)


@rule("GatherND")
def _gather_nd(x: Any, indices: Any, batch_dims: int) -> Any:
    if batch_dims:
        raise ValueError("left to the reference evaluator")
    if not indices.size:
        return np.zeros((*indices.shape[:-1], *x.shape[indices.shape[-1] :]), x.dtype)
    return x[tuple(np.moveaxis(indices, -1, 0))]


REDUCE: dict[str, Function] = {
    "none": lambda old, new: new, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


@rule("ScatterElements")
def _scatter_elements(x: Any, indices: Any, updates: Any, axis: int, reduction: str) -> Any:
    out = x.copy()
    for place in np.ndindex(*indices.shape):
        to = (*place[: axis % x.ndim], int(indices[place]), *place[axis % x.ndim + 1 :])
        out[to] = REDUCE[reduction](out[to], updates[place])
    return out


@rule("ScatterND")
def _scatter_nd(x: Any, indices: Any, updates: Any, reduction: str) -> Any:
    out = x.copy()
    for place in np.ndindex(*indices.shape[:-1]):
        to = tuple(int(i) for i in indices[place])
        out[to] = REDUCE[reduction](out[to], updates[place])
    return out


@rule("OneHot")
def _one_hot(indices: Any, depth: Any, pair: Any, axis: int) -> Any:
    count = int(np.reshape(depth, -1)[0])
    wrapped = np.where(indices < 0, indices + count, indices)
    hot = np.arange(count) == np.expand_dims(wrapped, -1)
    return np.moveaxis(np.where(hot, pair[1], pair[0]), -1, axis)


@rule("Trilu")
def _trilu(x: Any, k: Any = None, upper: int = 1) -> Any:
    by = 0 if k is None else int(np.reshape(k, -1)[0])
    rows, columns = x.shape[-2:]
    keep = np.arange(columns) - np.arange(rows)[:, None]
    return np.where(keep >= by if upper else keep <= by, x, np.zeros((), x.dtype))


@rule("EyeLike")
def _eye_like(x: Any, k: int, dtype: str | None = None) -> Any:
    return np.eye(*x.shape, k=k, dtype=x.dtype)


@rule("Compress")
def _compress(x: Any, condition: Any, axis: int | None = None) -> Any:
    return np.compress(condition, x, axis)


# ---- reductions and order


def _axes(x: Any, axes: Any, noop: int) -> tuple[int, ...]:
    given = () if axes is None else tuple(int(a) % max(x.ndim, 1) for a in np.reshape(axes, -1))
    return given if given or noop else tuple(range(x.ndim))


def _reduction(function: Function) -> Function:
    def reduce(x: Any, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Any:
        over = _axes(x, axes, noop_with_empty_axes)
        result = np.asarray(function(x, axis=over, keepdims=bool(keepdims)))
        return result.astype(x.dtype) if x.dtype.kind != "b" else result

    return reduce


def _root(x: Any) -> Any:
    return np.sqrt(x.astype(np.float64)).astype(x.dtype)


REDUCTIONS: dict[str, Function] = {
    "ReduceSum": np.sum, "ReduceProd": np.prod, "ReduceMax": np.max, "ReduceMin": np.min, "ReduceMean": np.mean,
    "ReduceL1": lambda x, **how: np.sum(np.abs(x), **how),
    "ReduceL2": lambda x, **how: _root(np.sum(x * x, **how)),
    "ReduceSumSquare": lambda x, **how: np.sum(x * x, **how),
    "ReduceLogSum": lambda x, **how: np.log(np.sum(x, **how)),
    "ReduceLogSumExp": lambda x, **how: np.log(np.sum(np.exp(x), **how)),
}  # fmt: skip
RULES |= {name: _reduction(function) for name, function in REDUCTIONS.items()}


def _extreme(function: Function) -> Function:
    def pick(x: Any, axis: int, keepdims: int, select_last_index: int = 0) -> Any:
        if select_last_index:
            place = x.shape[axis] - 1 - function(np.flip(x, axis), axis=axis, keepdims=bool(keepdims))
        else:
            place = function(x, axis=axis, keepdims=bool(keepdims))
        return np.asarray(place, np.int64)

    return pick


RULES |= {"ArgMax": _extreme(np.argmax), "ArgMin": _extreme(np.argmin)}


@rule("TopK")
def _top_k(x: Any, k: Any, axis: int, largest: int, sorted: int) -> Any:
    count = int(np.reshape(k, -1)[0])
    if count > x.shape[axis]:
        raise ValueError("more than there are")
    wide = x if x.dtype.kind == "f" else x.astype(object)
    order = np.argsort(-wide if largest else wide, axis, kind="stable")
    order = np.take(order, range(count), axis).astype(np.int64)
    return [np.take_along_axis(x, order, axis), order]


@rule("CumSum", "CumProd")
def _cumulate(x: Any, axis: Any, exclusive: int, reverse: int, product: bool = False) -> Any:
    along = int(np.reshape(axis, -1)[0])
    x = np.flip(x, along) if reverse else x
    start = np.full_like(np.take(x, [], along), 0)
    out = (np.cumprod if product else np.cumsum)(x, along, dtype=x.dtype)
    if exclusive and x.shape[along]:
        first = np.full_like(np.take(x, [0], along), 1 if product else 0)
        out = np.concatenate([start, first, np.take(out, range(x.shape[along] - 1), along)], along)
    return np.flip(out, along) if reverse else out


RULES["CumProd"] = lambda x, axis, exclusive, reverse: _cumulate(x, axis, exclusive, reverse, product=True)


# ---- normalisation


def softmax(x: Any, axis: int) -> Any:
    shifted = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    return shifted / shifted.sum(axis, keepdims=True)


RULES["Softmax"] = softmax
RULES["LogSoftmax"] = lambda x, axis: np.log(softmax(x, axis))


@rule("Hardmax")
def _hardmax(x: Any, axis: int) -> Any:
    place = np.expand_dims(np.argmax(x, axis), axis)
    return (np.indices(x.shape)[axis] == place).astype(x.dtype)


def _standard(x: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


@rule("LayerNormalization")
def _layer_norm(x: Any, gain: Any, bias: Any = None, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Any:
    out = _standard(x, tuple(range(axis % x.ndim, x.ndim)), epsilon) * gain
    return out if bias is None else out + bias


@rule("RMSNormalization")
def _rms_norm(x: Any, gain: Any, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Any:
    axes = tuple(range(axis % x.ndim, x.ndim))
    return x / np.sqrt((x * x).mean(axes, keepdims=True) + epsilon) * gain


@rule("InstanceNormalization")
def _instance_norm(x: Any, gain: Any, bias: Any, epsilon: float) -> Any:
    shape = (1, -1, *[1] * (x.ndim - 2))
    return _standard(x, tuple(range(2, x.ndim)), epsilon) * gain.reshape(shape) + bias.reshape(shape)


@rule("GroupNormalization")
def _group_norm(x: Any, gain: Any, bias: Any, num_groups: int, epsilon: float, stash_type: int = 1) -> Any:
    if len(gain) == num_groups:  # before version 21
        gain, bias = (np.repeat(v, x.shape[1] // num_groups) for v in (gain, bias))
    groups = x.reshape(x.shape[0], num_groups, x.shape[1] // num_groups, *x.shape[2:])
    shape = (1, -1, *[1] * (x.ndim - 2))
    out = _standard(groups, tuple(range(2, groups.ndim)), epsilon).reshape(x.shape)
    return out * gain.reshape(shape) + bias.reshape(shape)


@rule("BatchNormalization")
def _batch_norm(x: Any, gain: Any, bias: Any, mean: Any, variance: Any, epsilon: float, **a: Any) -> Any:
    shape = (1, -1, *[1] * (x.ndim - 2))
    gain, bias, mean, variance = (v.reshape(shape) for v in (gain, bias, mean, variance))
    return (x - mean) / np.sqrt(variance + epsilon) * gain + bias


@rule("MeanVarianceNormalization")
def _mvn(x: Any, axes: Any) -> Any:
    spread = x.std(tuple(axes), keepdims=True)
    if spread.size and spread.min() < 1e-2:
        raise ValueError("a variance from the difference of two means has no precision here")
    return (x - x.mean(tuple(axes), keepdims=True)) / (spread + 1e-9)


@rule("LRN")
def _lrn(x: Any, size: int, alpha: float, beta: float, bias: float) -> Any:
    # onnx's evaluator counts batches instead of channels.
    before, after = (size - 1) // 2, size // 2
    squares = np.pad(x * x, [(0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)])
    total = sum(squares[:, k : k + x.shape[1]] for k in range(size))
    return x / (bias + alpha / size * total) ** beta


@rule("LpNormalization")
def _lp_norm(x: Any, axis: int, p: int) -> Any:
    norm = np.abs(x).sum(axis, keepdims=True) if p == 1 else np.sqrt((x * x).sum(axis, keepdims=True))
    return x / norm


# ---- products


RULES["MatMul"] = np.matmul
RULES["Det"] = np.linalg.det
RULES["Einsum"] = lambda *xs, equation: np.einsum(equation, *xs)


@rule("Gemm")
def _gemm(x: Any, y: Any, c: Any = None, alpha: float = 1, beta: float = 1, transA: int = 0, transB: int = 0) -> Any:
    out = alpha * ((x.T if transA else x) @ (y.T if transB else y))
    return out if c is None else out + beta * c


def _less(x: Any, zero: Any, axis: int = 0) -> Any:
    """x less its zero point, which is for a tensor or for each index of an axis, as int32."""
    return x.astype(np.int32) if zero is None else x.astype(np.int32) - _along(zero, x, axis).astype(np.int32)


@rule("ConvInteger")
def _conv_integer(x: Any, w: Any, x_zero: Any = None, w_zero: Any = None, **a: Any) -> Any:
    return _conv(_less(x, x_zero), _less(w, w_zero), **a)


@rule("QLinearMatMul")
def _qlinear_matmul(x: Any, x_scale: Any, x_zero: Any, y: Any, y_scale: Any, y_zero: Any, scale: Any, zero: Any) -> Any:
    return _quantize(np.matmul(_less(x, x_zero), _less(y, y_zero)) * (x_scale * y_scale), scale, zero)


@rule("QLinearConv")
def _qlinear_conv(x: Any, x_scale: Any, x_zero: Any, w: Any, w_scale: Any, w_zero: Any, scale: Any, zero: Any,
                  bias: Any = None, **a: Any) -> Any:  # fmt: skip
    sums = _conv(_less(x, x_zero), _less(w, w_zero), bias, **a)
    return _quantize(sums * x_scale * _along(np.asarray(w_scale), sums, 1), scale, zero)


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


# ---- quantisation


def _along(parameter: Any, x: Any, axis: int) -> Any:
    """A parameter per tensor, or per index of an axis, as it broadcasts with x."""
    return (
        parameter
        if parameter.ndim == 0
        else parameter.reshape([-1 if k == axis % x.ndim else 1 for k in range(x.ndim)])
    )


@rule("QuantizeLinear")
def _quantize(x: Any, scale: Any, zero: Any = None, axis: int = 1, **a: Any) -> Any:
    kind = np.dtype(np.uint8) if zero is None else zero.dtype
    limits = np.iinfo(kind)
    offset = 0 if zero is None else _along(zero, x, axis).astype(np.float64)
    return np.clip(np.rint(x / _along(scale, x, axis)) + offset, limits.min, limits.max).astype(kind)


@rule("DequantizeLinear")
def _dequantize(x: Any, scale: Any, zero: Any = None, axis: int = 1, **a: Any) -> Any:
    offset = 0 if zero is None else _along(zero, x, axis).astype(np.float64)
    return (x.astype(np.float64) - offset) * _along(scale, x, axis)


@rule("DynamicQuantizeLinear")
def _dynamic_quantize(x: Any) -> Any:
    high, low = max(float(x.max(initial=0)), 0), min(float(x.min(initial=0)), 0)
    scale = (high - low) / 255
    if not scale:
        raise ValueError("a scale of zero")
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return [np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8), np.array(scale), np.array(zero, np.uint8)]


# ---- any operator

POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})


@cache
def defaults(op: str, domain: str, opset: int) -> dict[str, Any]:
    """Defaults of attributes that the schema states. Raises SchemaError for an operator that the version does not have."""
    schema = defs.get_schema(op, opset, domain)
    found = {
        k: helper.get_attribute_value(a.default_value) for k, a in schema.attributes.items() if a.default_value.type
    }
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in found.items()}


def compute(op: str, arrays: list[Any], attributes: dict[str, Any], opset: int, outputs: int = 1) -> list[np.ndarray]:
    """The results of a node. Raises whatever numpy or the evaluator does for what makes no sense."""
    given = defaults(op, "", opset) | attributes
    if op in ("Cast", "CastLike"):
        raise AssertionError("casts are calculated where types are known")
    while arrays and arrays[-1] is None:
        arrays = arrays[:-1]
    try:
        if op in RULES:
            results = RULES[op](*arrays, **(given | {"op": op} if op in POOLS else given))
            return [np.asarray(r) for r in (results if isinstance(results, list) else [results])]
    except ValueError as error:
        if "reference evaluator" not in str(error):
            raise
    return _reference(op, arrays, attributes, opset, outputs)


def _reference(op: str, arrays: list[Any], attributes: dict[str, Any], opset: int, outputs: int) -> list[np.ndarray]:
    names = ["" if a is None else f"x{k}" for k, a in enumerate(arrays)]
    node = helper.make_node(op, names, [f"y{k}" for k in range(outputs)], **attributes)
    found = _evaluator(node.SerializeToString(), opset).run(
        None, {n: a for n, a in zip(names, arrays, strict=True) if n}
    )
    return [np.asarray(r) for r in found]


@cache
def _evaluator(node: bytes, opset: int) -> ReferenceEvaluator:
    return ReferenceEvaluator(onnx.NodeProto.FromString(node), opsets={"": opset})
