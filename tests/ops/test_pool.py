"""Pooling: geometry, padding that counts or not, indices, one to three axes, narrow types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from .compare import check, random

WINDOWS: list[dict[str, Any]] = [
    {"kernel_shape": [2, 2]},
    {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 1, 1]},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
    {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1},
    {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER"},
    {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"kernel_shape": [2, 2], "dilations": [2, 3]},
    {"kernel_shape": [2, 3], "dilations": [3, 2], "pads": [1, 2, 1, 0], "strides": [2, 1]},
]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_windows(op: str, window: dict[str, Any], symbolic: bool) -> None:
    check(op, random(2, 3, 9, 11), symbolic=symbolic, rtol=1e-4, **window)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_the_only_window_may_end_outside_where_sizes_are_rounded_up(op: str, symbolic: bool) -> None:
    window: dict[str, Any] = {"kernel_shape": [3, 2], "dilations": [2, 1], "strides": [3, 2], "pads": [1, 0, 1, 0]}
    for rows in (1, 2, 3) if op == "AveragePool" else (2, 3):  # of one row no element is in it, and a mean of none is 0
        check(op, random(2, 3, rows, 5), symbolic=symbolic, ceil_mode=1, **window)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_average_that_counts_the_padding(window: dict[str, Any]) -> None:
    check("AveragePool", random(2, 3, 9, 11), count_include_pad=1, **window)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("storage_order", [0, 1])
@pytest.mark.parametrize("int64", ["native", "pair"])
def test_indices_of_the_largest(window: dict[str, Any], storage_order: int, int64: str) -> None:
    x = np.round(random(2, 3, 9, 11) * 2)  # equal elements: the first counts
    check("MaxPool", x, outputs=[np.float32, np.int64], storage_order=storage_order, int64=int64, **window)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.float16])
def test_max_pool_types(dtype: type) -> None:
    x = random(2, 3, 9, 11, dtype=dtype)
    check("MaxPool", x, kernel_shape=[3, 2], pads=[1, 1, 1, 1], strides=[2, 2])


def test_average_pool_float16() -> None:
    check("AveragePool", random(2, 3, 9, 11, dtype=np.float16), kernel_shape=[3, 2], pads=[1, 1, 1, 1])


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_one_and_three_axes(op: str) -> None:
    check(op, random(2, 3, 17), kernel_shape=[3], strides=[2], pads=[1, 0])
    check(op, random(1, 2, 5, 6, 7), kernel_shape=[3, 2, 2], pads=[1, 0, 1, 1, 1, 0], strides=[2, 1, 2])


@pytest.mark.costly
def test_indices_over_three_axes() -> None:
    for order in (0, 1):
        check(
            "MaxPool",
            random(2, 2, 5, 4, 6),
            kernel_shape=[2, 2, 2],
            outputs=[np.float32, np.int64],
            storage_order=order,
        )


def test_max_pool_of_special_values() -> None:
    x = np.full((1, 1, 4, 4), -np.inf, np.float32)
    x[0, 0, 1, 1], x[0, 0, 3, 3] = np.inf, -5
    check("MaxPool", x, kernel_shape=[2, 2])
    x[0, 0, 0, 0] = np.nan
    want = np.array([[np.nan, np.inf, -np.inf], [np.inf, np.inf, -np.inf], [-np.inf, -np.inf, -5]], np.float32)
    check("MaxPool", x, kernel_shape=[2, 2], want=[want.reshape(1, 1, 3, 3)])


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
@pytest.mark.parametrize("shape", [(2, 3, 9), (2, 3, 9, 11), (1, 40, 3, 4, 5), (3, 2, 1, 1)])
def test_global(op: str, shape: tuple[int, ...]) -> None:
    check(op, random(*shape), rtol=1e-4)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_norms(p: int) -> None:
    check("LpPool", random(2, 3, 9, 7), kernel_shape=[3, 2], p=p, rtol=1e-4)
    check("GlobalLpPool", random(2, 3, 9, 7), p=p, rtol=1e-4)


def test_empty_batch() -> None:
    check("MaxPool", random(0, 3, 4, 4), kernel_shape=[2, 2], want=[np.zeros((0, 3, 3, 3), np.float32)])
