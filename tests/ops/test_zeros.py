"""The sign of zero, through every operator that makes one of several elements.

Of reductions the truth is IEEE 754's, whatever the order of the elements: a sum is minus zero where all terms are, and minus zero
is less than zero. The CPU provider gives that for zeros of one sign in rows along; of two signs it gives the first of them. Where
sums begin with a zero, in windows and in products, it is the oracle.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import support
from tests.targets import EVERY_ORDER

from .compare import expected, model

F = np.float32
LENGTHS = (1, 2, 3, 33, 100, 2050)


def zeros(columns: int) -> np.ndarray:
    """Rows of zeros: of one sign, of both in turn, of one sign but for the first or the last; and rows that have another number."""
    place = np.arange(columns)
    signs = [place >= 0, place < 0, place % 2 == 0, place % 2 == 1, place > 0, place < columns - 1, place == 0]
    rows = np.where(np.array(signs), -0.0, 0.0)
    return np.concatenate([rows, np.where(place == columns // 2, [[-1.0], [1.0]], -0.0)])


def assert_same(got: np.ndarray, want: np.ndarray) -> None:
    """Numbers, and the signs of all."""
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def truth(op: str, x: np.ndarray) -> np.ndarray:
    """A reduction of the rows of x."""
    sums, minus = x.sum(1) + 0.0, np.signbit(x)
    signed = np.where((sums == 0) & minus.all(1), -0.0, sums)
    size = np.abs(x).sum(1)
    most, least = (np.where(f(x, 1) == 0, 0.0, f(x, 1)) for f in (np.max, np.min))
    zero = (x == 0).any(1)
    found = {
        "ReduceSum": signed,
        "ReduceMean": signed / x.shape[1],
        "ReduceMax": np.where((most == 0) & (minus | (x != 0)).all(1), -0.0, most),
        "ReduceMin": np.where((least == 0) & (minus & (x == 0)).any(1), -0.0, least),
        "ReduceProd": np.where(zero, np.where(minus.sum(1) % 2, -0.0, 0.0), x.prod(1)),
        "ReduceL1": size,
        "ReduceL2": size,
        "ReduceSumSquare": size,
        "GlobalMaxPool": np.where((most == 0) & (minus | (x != 0)).all(1), -0.0, most),
        "GlobalAveragePool": sums / x.shape[1],
    }
    return np.asarray(found[op])


@EVERY_ORDER
@pytest.mark.parametrize("dtype", [F, np.float16])
@pytest.mark.parametrize("across", [False, True], ids=["along", "across"])
@pytest.mark.parametrize("columns", LENGTHS)
@pytest.mark.parametrize(
    "op",
    ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare"],
)
def test_reductions(op: str, columns: int, across: bool, dtype: Any) -> None:
    x = zeros(columns).astype(dtype)
    want = truth(op, x.astype(np.float64)).astype(dtype)
    given = np.ascontiguousarray(x.T) if across else x
    built = model(op, [given, np.array([0 if across else 1])], constants=[1], keepdims=0, symbolic=columns == 33)
    assert_same(support.run_model(built, given)[0], want)
    if not across:
        cpu = expected(built, {"x0": given})[0][:2]
        assert_same(cpu, want[:2])


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceMin"])
def test_all_of_a_large_tensor(op: str) -> None:
    x = np.full((300, 301), -0.0, F)
    assert_same(support.run_model(model(op, [x], keepdims=0), x)[0], np.array(-0.0, F))
    x[17, 3] = 0.0
    assert_same(support.run_model(model(op, [x], keepdims=0), x)[0], np.array(-0.0 if op == "ReduceMin" else 0.0, F))
    assert_same(support.run_model(model(op, [0 * x], keepdims=0), np.abs(x))[0], np.array(0.0, F))


def test_the_sum_of_nothing_is_zero() -> None:
    x = np.zeros((3, 0), F)
    built = model("ReduceSum", [x, np.array([1])], constants=[1], keepdims=0, symbolic=True)
    assert_same(support.run_model(built, x)[0], np.zeros(3, F))


@EVERY_ORDER
@pytest.mark.parametrize("columns", LENGTHS)
@pytest.mark.parametrize("op", ["GlobalMaxPool", "GlobalAveragePool"])
def test_global_pools(op: str, columns: int) -> None:
    x = zeros(columns).astype(F)[None]
    got, want = support.run_model(model(op, [x]), x)[0][0, :, 0], truth(op, x[0].astype(np.float64)).astype(F)
    np.testing.assert_array_max_ulp(got, want, 2)  # the accuracy of a division
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("columns", LENGTHS)
def test_running_totals(columns: int, reverse: int, exclusive: int) -> None:
    x = zeros(columns).astype(F)
    built = model("CumSum", [x, np.array(1)], constants=[1], reverse=reverse, exclusive=exclusive)
    assert_same(support.run_model(built, x)[0], expected(built, {"x0": x})[0])


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("columns", LENGTHS)
def test_zeros_are_equal_where_places_are_asked_for(columns: int, last: int, op: str) -> None:
    x = zeros(columns).astype(F)
    built = model(op, [x], outputs=[np.int64], axis=1, select_last_index=last)
    np.testing.assert_array_equal(support.run_model(built, x)[0], expected(built, {"x0": x})[0])
    best = model("TopK", [x, np.array([columns])], outputs=[F, np.int64], constants=[1], largest=int(op == "ArgMax"))
    for got, want in zip(support.run_model(best, x), expected(best, {"x0": x}), strict=True):
        assert_same(got, want)


PAIRS = np.array([[a, b] for a in (-0.0, 0.0, -1.0, 1.0) for b in (-0.0, 0.0)], F)


@pytest.mark.parametrize("given", ["constants", "inputs", "attributes"])
@pytest.mark.parametrize("high", [-0.0, 0.0, 6.0])
@pytest.mark.parametrize("low", [-0.0, 0.0, -6.0])
def test_bounds(low: float, high: float, given: str) -> None:
    x, limits = PAIRS[:, 0].copy(), [np.array(low, F), np.array(high, F)]
    if given == "attributes":
        built, arrays = model("Clip", [x], opset=6, min=low, max=high), [x]
    else:
        constants = [1, 2] if given == "constants" else []
        built, arrays = model("Clip", [x, *limits], constants=constants), [x] if constants else [x, *limits]
    assert_same(support.run_model(built, *arrays)[0], expected(built, {f"x{k}": a for k, a in enumerate(arrays)})[0])


@pytest.mark.parametrize("op", ["Max", "Min", "Add", "Sub", "Mul", "Sum", "Mean", "Relu"])
def test_pairs(op: str) -> None:
    arrays = [np.ascontiguousarray(column) for column in PAIRS.T][: 1 if op == "Relu" else 2]
    built = model(op, arrays)
    assert_same(support.run_model(built, *arrays)[0], expected(built, {f"x{k}": a for k, a in enumerate(arrays)})[0])


def _weights(*shape: int) -> np.ndarray:
    return np.abs(np.random.default_rng(0).normal(size=shape)).astype(F)


SUMS: dict[str, tuple[str, tuple[int, ...], list[np.ndarray], dict[str, Any]]] = {
    "average": ("AveragePool", (1, 2, 6, 6), [], {"kernel_shape": [2, 2]}),
    "average-padded": ("AveragePool", (1, 2, 6, 6), [], {"kernel_shape": [3, 3], "pads": [1] * 4}),
    "average-one": ("AveragePool", (1, 2, 9), [], {"kernel_shape": [1]}),
    "largest": ("MaxPool", (1, 2, 6, 6), [], {"kernel_shape": [3, 3], "pads": [1] * 4}),
    "columns": ("Col2Im", (1, 4, 4), [np.array([3, 3]), np.array([2, 2])], {}),
    "matmul-1": ("MatMul", (1, 1), [_weights(1, 4)], {}),
    "matmul-7": ("MatMul", (3, 5), [_weights(5, 7)], {}),
    "matmul-64": ("MatMul", (33, 64), [_weights(64, 64)], {}),
    "gemm": ("Gemm", (3, 5), [_weights(5, 7), np.full(7, -0.0, F)], {}),
    "conv-1": ("Conv", (1, 1, 8, 8), [_weights(1, 1, 1, 1)], {"pads": [1] * 4}),
    "conv-3": ("Conv", (1, 3, 8, 8), [_weights(4, 3, 3, 3)], {}),
    "conv-depthwise": ("Conv", (1, 8, 8, 8), [_weights(8, 1, 3, 3)], {"group": 8, "pads": [1] * 4}),
    "conv-groups": ("Conv", (1, 8, 8, 8), [_weights(8, 4, 3, 3), np.full(8, -0.0, F)], {"group": 2}),
    "transposed": ("ConvTranspose", (1, 8, 5, 5), [_weights(8, 1, 3, 3)], {"group": 8}),
    "transposed-1": ("ConvTranspose", (1, 1, 5, 5), [_weights(1, 1, 1, 1)], {}),
}


@pytest.mark.costly
@EVERY_ORDER
@pytest.mark.parametrize("name", SUMS)
def test_windows_and_products(name: str) -> None:
    op, shape, others, how = SUMS[name]
    for zero in (-0.0, 0.0):
        x = np.full(shape, zero, F)
        built = model(op, [x, *others], constants=range(1, 1 + len(others)), **how)
        assert_same(support.run_model(built, x)[0], expected(built, {"x0": x})[0])


@EVERY_ORDER
@pytest.mark.parametrize("outputs", [1, 2])
def test_the_largest_of_zeros_of_both_signs_is_no_minus_zero(outputs: int) -> None:
    x = np.full((1, 2, 6, 6), -0.0, F)
    x[0, 0, 2, 2] = 0.0
    want = np.full((1, 2, 3, 3), -0.0, F)
    want[0, 0, 1, 1] = 0.0
    types: list[Any] = [F, np.int64][:outputs]
    built = model("MaxPool", [x], outputs=types, kernel_shape=[2, 2], strides=[2, 2])
    assert_same(support.run_model(built, x)[0], want)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("zero", [-0.0, 0.0])
def test_images_between_their_elements(zero: float, mode: str) -> None:
    x = np.full((1, 1, 4, 4), zero, F)
    grid = np.random.default_rng(0).uniform(-1, 1, (1, 3, 3, 2)).astype(F)
    built = model("GridSample", [x, grid], mode=mode)
    assert_same(support.run_model(built, x, grid)[0], expected(built, {"x0": x, "x1": grid})[0])
