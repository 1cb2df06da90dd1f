"""NaN, infinities, both zeros and numbers near the largest, through operators that look at more than one element, through bounds
and exponents: every pair of them in a row, and rows of one of them alone.

The CPU provider is the oracle but for NaN, which it drops or keeps by its place in a row: numpy in f64 is then.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests import support

from .compare import both_ways, expected, model
from .test_special_values import difference, same

VALUES = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 3e38, -3e38], np.float32)
BOUNDS = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], np.float32)


def rows(columns: int, large: float = 3e38) -> np.ndarray:
    """(row, column): pairs beside ones, repeated, and rows of one value; the largest is `large`."""
    values = np.where(np.abs(VALUES) == VALUES[-2], np.sign(VALUES) * large, VALUES)
    found = [[a, b, 1.0] for a, b in itertools.product(values, repeat=2)] + [[v] * 3 for v in values]
    return np.tile(np.array(found, np.float32), (1, -(-columns // 3)))[:, :columns]


def check(
    built: Any, arrays: list[np.ndarray], truth: np.ndarray | None = None, units: float = 64, slack: float = 1e-6
) -> None:
    """One result against the truth, else the CPU provider's; `slack` is what may be left of sums that cancel."""
    feeds = {it.name: a for it, a in zip(built.graph.input, arrays, strict=True)}
    got = support.run_model(built, *arrays)[0]
    want = expected(built, feeds)[0] if truth is None else truth.astype(got.dtype)
    assert got.shape == want.shape
    agree = same(got, want, units) | ((got == 0) & (want == 0))
    if got.dtype.kind == "f":
        with np.errstate(all="ignore"):
            agree |= np.abs(got - want) <= slack
    assert agree.all(), difference(agree, got, want)


lengths = pytest.mark.parametrize("columns", [3, 70])


@lengths
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_nan_is_the_largest_and_the_smallest(op: str, columns: int) -> None:
    x = rows(columns)
    truth = (np.max if op == "ReduceMax" else np.min)(x.astype(np.float64), axis=1, keepdims=True)
    check(model(op, [x, np.array([1])], opset=18, constants=[1]), [x], truth)


@lengths
@pytest.mark.parametrize(
    "op", ["ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare"]
)
def test_sums(op: str, columns: int) -> None:
    x = rows(columns, 1e15)
    check(
        model(op, [x, np.array([1])], opset=18, constants=[1]),
        [x],
        slack=1e10 if op in ("ReduceSum", "ReduceMean") else 1e-6,
    )


@lengths
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_weights(op: str, columns: int) -> None:
    """A row of minus infinity alone is NaN, as the definition says."""
    x = rows(columns)
    check(model(op, [x], opset=13), [x])


@lengths
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_places(op: str, last: int, columns: int) -> None:
    x = rows(columns)
    check(model(op, [x], outputs=[np.int64], axis=1, select_last_index=last, opset=13), [x])


@lengths
def test_running_sums(columns: int) -> None:
    x = rows(columns)
    check(model("CumSum", [x, np.array(1)], constants=[1], opset=14), [x])


@lengths
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_windows(op: str, columns: int) -> None:
    x = rows(columns, 1e38)
    wide = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), 2, axis=1)
    with np.errstate(all="ignore"):
        truth = (wide.max(-1) if op == "MaxPool" else wide.mean(-1))[:, None, None]
    check(model(op, [x[:, None, None]], kernel_shape=[1, 2], opset=12), [x[:, None, None]], truth)


@lengths
@pytest.mark.parametrize("scale", [2.0, 0.6, 3.5])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resized(mode: str, scale: float, columns: int) -> None:
    """An infinity at the border is repeated, and not multiplied with a weight of 0."""
    x = rows(columns)[:, None, None]
    scales = np.array([1, 1, 1, scale], np.float32)
    check(model("Resize", [x, None, scales], constants=[2], mode=mode, opset=13), [x])


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("low", BOUNDS, ids=str)
def test_bounds(low: float, constant: bool) -> None:
    """The greater of the lower bound and x, of that and the upper bound the smaller; a bound that is NaN gives NaN."""
    for high in BOUNDS:
        given = [np.array(low, np.float32), np.array(high, np.float32)]
        built = model("Clip", [VALUES, *given], constants=[1, 2] if constant else [], opset=13)
        truth = np.minimum(np.maximum(VALUES, low), high)
        check(built, [VALUES] if constant else [VALUES, *given], truth, 0)


@pytest.mark.costly
@pytest.mark.parametrize(("dtype", "int64"), both_ways([np.int32, np.int64]))
def test_whole_powers_of_integers(dtype: Any, int64: str) -> None:
    """An exponent of floats takes nothing from the base's digits."""
    base = np.array([0, 1, -1, 2, -3, 7, 10, -12345, 46341, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    x, y = np.meshgrid(base, np.arange(0, 64, dtype=np.float32))
    exact = [[int(a) ** int(b) for a, b in zip(*pair, strict=True)] for pair in zip(x, y, strict=True)]
    fits = np.array([[np.iinfo(dtype).min <= value <= np.iinfo(dtype).max for value in row] for row in exact])
    want = np.array(
        [[value if fit else 0 for value, fit in zip(*pair, strict=True)] for pair in zip(exact, fits, strict=True)]
    )
    got = support.run_model(model("Pow", [x, y], opset=15), x, y, int64=int64)[0]
    agree = (got == want.astype(dtype)) | ~fits
    assert agree.all(), difference(agree, got, want, x, y)
