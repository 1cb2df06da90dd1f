"""Normalisations."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import RULES, rule


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
def _batch_norm(
    x: Any,
    gain: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    epsilon: float,
    momentum: float = 0.9,
    training_mode: int = 0,
    **a: Any,
) -> Any:
    shape, before, own = (1, -1, *[1] * (x.ndim - 2)), (mean, variance), (0, *range(2, x.ndim))
    if training_mode:
        mean, variance = x.mean(own), x.var(own)
    columns = [v.reshape(shape) for v in (gain, bias, mean, variance)]
    y = (x - columns[2]) / np.sqrt(columns[3] + epsilon) * columns[0] + columns[1]
    if not training_mode:
        return y
    return [y, *(momentum * v + (1 - momentum) * w for v, w in zip(before, (mean, variance), strict=True))]


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
