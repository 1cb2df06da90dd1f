"""Reductions and running totals: axes in any order, every element type, empty tensors, NaN and infinity."""

from __future__ import annotations

import numpy as np
import pytest

from tests import support

from .compare import both_ways, check, model, random

REDUCTIONS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceProd",
    "ReduceMax",
    "ReduceMin",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
    "ReduceLogSumExp",
]


def _axes(*axes: int) -> np.ndarray:
    return np.array(axes, np.int64)


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (-1, -2), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_axes(op: str, axes: tuple[int, ...], keepdims: int) -> None:
    check(op, np.abs(random(5, 37, 3)) + 0.1, _axes(*axes), constants=[1], keepdims=keepdims, rtol=1e-4)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_all_axes_are_reduced_when_none_are_given(op: str) -> None:
    check(op, np.abs(random(3, 4)) + 0.1)
    check(op, np.abs(random(3, 4)) + 0.1, _axes(), constants=[1], noop_with_empty_axes=1)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2"])
@pytest.mark.parametrize("shape", [(1, 5000), (5000, 1), (33, 257), (2, 3, 70, 70)])
def test_long_and_short_rows(op: str, shape: tuple[int, ...]) -> None:
    check(op, random(*shape), _axes(-1), constants=[1], rtol=1e-4, atol=1e-4)
    check(op, random(*shape), _axes(0), constants=[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean"])
@pytest.mark.parametrize(("dtype", "int64"), both_ways([np.float16, np.int32, np.int64, np.uint32, np.uint64]))
def test_types(op: str, dtype: type, int64: str) -> None:
    check(op, random(4, 9, dtype=dtype) % 7, _axes(1), constants=[1], int64=int64)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.bool_])
def test_narrow_types(op: str, dtype: type) -> None:
    check(op, random(4, 9, dtype=dtype), _axes(1), constants=[1])


@pytest.mark.parametrize("op", REDUCTIONS)
def test_special_values(op: str) -> None:
    rows = [[1, np.inf, 2], [1, -np.inf, 2], [np.inf, -np.inf, 0], [1, np.nan, 2], [np.nan, np.inf, 0], [0, -0.0, 0]]
    x = np.array(rows, np.float32)
    # The CPU provider sees a NaN only where it comes first in a row; ours always does, as numpy.
    exact = {"ReduceMax": x.max(1, keepdims=True), "ReduceMin": x.min(1, keepdims=True)}
    check(op, x, _axes(1), constants=[1], want=[exact[op]] if op in exact else None)


@pytest.mark.parametrize(
    "op", ["ReduceSum", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"]
)
def test_empty_rows_give_the_identity(op: str) -> None:
    want = {"ReduceProd": 1.0, "ReduceLogSum": -np.inf, "ReduceLogSumExp": -np.inf}.get(op, 0.0)
    check(op, np.zeros((3, 0), np.float32), _axes(1), constants=[1], keepdims=0, want=[np.full(3, want, np.float32)])


def test_no_rows() -> None:
    check("ReduceSum", np.zeros((0, 4), np.float32), _axes(1), constants=[1], want=[np.zeros((0, 1), np.float32)])


def test_axes_were_attributes_before_version_13() -> None:
    check("ReduceMax", random(3, 5, 2), opset=11, axes=[0, 2], keepdims=0)
    check("ReduceSum", random(3, 5, 2), opset=11, axes=[-1])


@pytest.mark.costly
def test_shapes_that_are_unknown_until_a_run() -> None:
    built = model("ReduceMean", [random(1, 1, 1), _axes(2)], symbolic=True, constants=[1], keepdims=0)
    runner = support.Runner(support.compile_model(built))
    for shape in ((1, 1, 1), (2, 3, 5), (1, 7, 4000), (400, 2, 9)):
        x = random(*shape)
        np.testing.assert_allclose(runner(x)[0], x.mean(2), rtol=1e-4, atol=1e-6)


@pytest.mark.costly
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("shape", [(7,), (3, 500), (40, 6), (1, 1)])
def test_running_totals(exclusive: int, reverse: int, shape: tuple[int, ...]) -> None:
    for axis in range(len(shape)):
        check("CumSum", random(*shape), np.array(axis), constants=[1], exclusive=exclusive, reverse=reverse, atol=1e-4)


@pytest.mark.parametrize(("dtype", "int64"), both_ways([np.int32, np.int64, np.float16]))
def test_running_totals_of_other_types(dtype: type, int64: str) -> None:
    x = random(5, 70, dtype=dtype)
    x = (x / 8).astype(dtype)
    want = np.cumsum(x.astype(np.float32 if dtype is np.float16 else dtype), 1).astype(dtype)
    check("CumSum", x, np.array(1), constants=[1], int64=int64, want=[want])
