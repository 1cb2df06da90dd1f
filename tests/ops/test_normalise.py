"""Softmax, layer and batch normalisation."""

from __future__ import annotations

import numpy as np
import pytest

from .compare import check, random


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
