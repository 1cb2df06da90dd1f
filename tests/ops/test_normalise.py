"""Softmax, layer and batch normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import support

from .compare import check, model, random


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 40, 300), (1, 1, 1)])
def test_softmax_along_an_axis(op: str, axis: int, shape: tuple[int, ...]) -> None:
    check(op, random(*shape) * 10, axis=axis, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax_of_flattened_rows_before_version_13(op: str, axis: int) -> None:
    check(op, random(3, 5, 7), opset=11, axis=axis, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_of_special_values(op: str) -> None:
    x = np.array([[0, 1000, -1000], [-np.inf, 0, 1], [np.nan, 0, 1], [3e38, 3e38, -3e38]], np.float32)
    check(op, x)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_float16(op: str) -> None:
    check(op, random(4, 33, dtype=np.float16))


def test_softmax_of_nothing() -> None:
    check("Softmax", np.zeros((0, 4), np.float32))
    check("Softmax", np.zeros((4, 0), np.float32), want=[np.zeros((4, 0), np.float32)])


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 9, 768), (40, 3, 33)])
def test_layer_normalization(axis: int, shape: tuple[int, ...]) -> None:
    inner = shape[axis:]
    check(
        "LayerNormalization",
        random(*shape) + 3,
        random(*inner, seed=1),
        random(*inner, seed=2),
        axis=axis,
        rtol=1e-4,
        atol=1e-5,
    )


def test_layer_normalization_without_bias_and_with_statistics() -> None:
    check(
        "LayerNormalization",
        random(4, 6, 9),
        random(9, seed=1),
        outputs=[np.float32] * 3,
        epsilon=0.1,
        rtol=1e-4,
        atol=1e-5,
    )


def test_layer_normalization_far_from_zero() -> None:
    x = random(5, 300).astype(np.float64) + 1000
    want = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    x32 = x.astype(np.float32)
    exact = x32.astype(np.float64)
    want = (exact - exact.mean(1, keepdims=True)) / np.sqrt(exact.var(1, keepdims=True) + 1e-5)
    check("LayerNormalization", x32, np.ones(300, np.float32), want=[want.astype(np.float32)], rtol=1e-3, atol=1e-3)


def test_layer_normalization_float16() -> None:
    check(
        "LayerNormalization",
        random(4, 65, dtype=np.float16),
        random(65, dtype=np.float16, seed=1),
        random(65, dtype=np.float16, seed=2),
    )


@pytest.mark.parametrize("constants", [(), (1, 2, 3, 4)])
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 5), (2, 3, 5, 4), (2, 3, 2, 3, 4)])
def test_batch_normalization(constants: tuple[int, ...], shape: tuple[int, ...]) -> None:
    parameters = [random(3, seed=k) for k in range(1, 4)]
    variance = np.abs(random(3, seed=4)) + 0.1
    check("BatchNormalization", random(*shape), *parameters, variance, constants=constants, epsilon=1e-3, rtol=1e-4)


def batch_parameters(channels: int) -> list[np.ndarray]:
    """Scale, bias, running mean and running variance."""
    return [*(random(channels, seed=k) for k in range(1, 4)), np.abs(random(channels, seed=4)) + 0.1]


@pytest.mark.parametrize("constants", [(), (1, 2), (1, 2, 3, 4)])
@pytest.mark.parametrize("shape", [(7, 3), (1, 3), (2, 3, 5), (3, 1, 33, 4), (2, 33, 2, 3, 4), (2, 3, 1, 1)])
def test_batch_normalization_in_training(constants: tuple[int, ...], shape: tuple[int, ...]) -> None:
    check(
        "BatchNormalization",
        random(*shape) + 3,
        *batch_parameters(shape[1]),
        constants=constants,
        outputs=[np.float32] * 3,
        training_mode=1,
        momentum=0.7,
        epsilon=1e-3,
        rtol=1e-4,
        atol=1e-5,
    )


def test_batch_normalization_in_training_of_free_sizes() -> None:
    x, parameters = random(3, 5, 7) * 4, batch_parameters(5)
    check("BatchNormalization", x, *parameters, symbolic=True, outputs=[np.float32] * 3, training_mode=1, rtol=1e-4)


@pytest.mark.parametrize("opset", [7, 9])
def test_batch_normalization_in_training_before_version_14(opset: int) -> None:
    """It is five results that ask for training there; the last one is the inverse deviation."""
    x, parameters = random(2, 3, 5, 4) + 1, batch_parameters(3)
    check("BatchNormalization", x, *parameters, opset=opset, outputs=[np.float32] * 5, rtol=1e-4, atol=1e-5)


def test_batch_normalization_in_training_in_halves_with_statistics_in_float32() -> None:
    x = random(4, 3, 65, dtype=np.float16)
    wide = x.astype(np.float64)
    scale, bias, mean, variance = batch_parameters(3)
    own_mean, own_variance = wide.mean((0, 2)), wide.var((0, 2))
    y = (wide - own_mean[:, None]) / np.sqrt(own_variance + 1e-5)[:, None] * scale[:, None] + bias[:, None]
    running = [0.9 * mean + 0.1 * own_mean, 0.9 * variance + 0.1 * own_variance]
    results = [np.float16, np.float32, np.float32]
    want = [array.astype(dtype) for array, dtype in zip([y, *running], results, strict=True)]
    got = check(
        "BatchNormalization", x, scale, bias, mean, variance, outputs=results, training_mode=1, want=want, rtol=1e-5
    )
    assert [array.dtype for array in got] == results


def test_batch_normalization_in_training_far_from_zero() -> None:
    """The variance is that of differences from the mean, so none is lost where the mean is large."""
    x = random(4, 2, 300) + np.float32(1000)
    exact, ones = x.astype(np.float64), np.ones(2, np.float32)
    centred = exact - exact.mean((0, 2), keepdims=True)
    y = centred / np.sqrt(exact.var((0, 2), keepdims=True) + 1e-5)
    want = [it.astype(np.float32) for it in (y, 0.9 + 0.1 * exact.mean((0, 2)), 0.9 + 0.1 * exact.var((0, 2)))]
    arrays = (x, ones, 0 * ones, ones, ones)
    check("BatchNormalization", *arrays, outputs=[np.float32] * 3, training_mode=1, want=want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 2), (2, 3, 0)])
def test_batch_normalization_in_training_of_nothing(shape: tuple[int, ...]) -> None:
    parameters = batch_parameters(shape[1])
    check("BatchNormalization", np.ones(shape, np.float32), *parameters, outputs=[np.float32] * 3, training_mode=1)


def test_batch_normalization_in_training_of_special_values() -> None:
    x = random(2, 3, 4)
    x[0, 0, 1], x[1, 1, 2] = np.nan, np.inf
    check("BatchNormalization", x, *batch_parameters(3), outputs=[np.float32] * 3, training_mode=1, rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 3), (0, 3, 2)])
def test_image_scaler(shape: tuple[int, ...], dtype: Any) -> None:
    """ONNX Runtime has no kernel for CPUs."""
    x, bias = random(*shape, dtype=dtype), [0.5, -1.0, 2.0]
    x.flat[:2] = [np.inf, np.nan][: x.size]
    for how, added in (({"bias": bias}, np.reshape(bias, (3, *(1,) * (x.ndim - 2)))), ({}, 0)):
        (got,) = support.run_model(model("ImageScaler", [x], opset=9, outputs=[dtype], scale=0.25, **how), x)
        np.testing.assert_allclose(got.astype("f"), x.astype("f") * 0.25 + added, rtol=1e-3, atol=1e-3)
