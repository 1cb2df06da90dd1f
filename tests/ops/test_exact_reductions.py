"""Reductions of integers: exact where the result fits its type, else the nearest limit of the type, whatever is in between.

The truth is Python's integers. The CPU provider calculates in floats of 64 bits, which limits it to the same results up to 2^53.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest

from tests import support

from .compare import both_ways, check, model

REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare",
    "ReduceLogSum",
)  # fmt: skip
TYPES = both_ways([np.int32, np.uint32, np.int64, np.uint64])


def _product(numbers: list[int]) -> int:
    """The product, or a number beyond all types with its sign: whole ones of thousands of factors take seconds."""
    product = 1
    for number in numbers:
        product *= number
        if abs(product) > 2**70:
            product = int(math.copysign(2**70, product))
    return product


def truth(op: str, row: np.ndarray) -> int:
    """The reduction of one row, as its type holds it; a logarithm that there is none of is the least number."""
    numbers, limits = [int(v) for v in row], np.iinfo(row.dtype)
    total = sum(numbers)
    if op == "ReduceLogSum":
        with localcontext(prec=60):
            exact = int(Decimal(total).ln()) if total > 0 else limits.min
    else:
        exact = {
            "ReduceSum": lambda: total,
            "ReduceMean": lambda: int(math.copysign(1, total)) * (abs(total) // len(numbers)) if numbers else 0,
            "ReduceProd": lambda: _product(numbers),
            "ReduceMax": lambda: max(numbers, default=limits.min),
            "ReduceMin": lambda: min(numbers, default=limits.max),
            "ReduceL1": lambda: sum(map(abs, numbers)),
            "ReduceL2": lambda: math.isqrt(sum(v * v for v in numbers)),
            "ReduceSumSquare": lambda: sum(v * v for v in numbers),
        }[op]()
    return min(max(exact, int(limits.min)), int(limits.max))


def rows(dtype: Any, columns: int) -> np.ndarray:
    """Rows whose sums, squares or products leave the type on the way, at the end, or just not."""
    random, limits = np.random.default_rng(columns), np.iinfo(dtype)
    low, high, root = int(limits.min), int(limits.max), math.isqrt(int(limits.max))
    edge = np.array([low, high, 0, 1, high // 2, low // 2], dtype)
    one = -1 if low else 1
    ones = np.ones((4, columns), dtype)
    ones[1:, columns // 2 :] = one
    ones[2:, : min(columns, 20)] = 2
    ones[3, 0] = high
    found = [
        np.full((1, columns), low, dtype),
        np.full((1, columns), high, dtype),
        np.zeros((1, columns), dtype),
        ones,
        random.integers(low, high, (3, columns), dtype, endpoint=True),
        random.choice(edge, (3, columns)),
        random.integers(-root if low else 0, root, (3, columns), dtype),
        random.integers(-3 if low else 0, 4, (3, columns), dtype),
        np.where(np.arange(columns) % 2, dtype(high), dtype(low + (low < 0)))[None],
    ]
    return np.concatenate(found)


def run(built: Any, x: np.ndarray, int64: str) -> np.ndarray:
    return support.run_model(built, x, int64=int64)[0]


@pytest.mark.costly
@pytest.mark.parametrize("columns", [1, 2, 3, 33, 700])
@pytest.mark.parametrize("across", [False, True], ids=["along", "across"])
@pytest.mark.parametrize(("dtype", "int64"), TYPES)
@pytest.mark.parametrize("op", REDUCTIONS)
def test_rows(op: str, dtype: Any, int64: str, across: bool, columns: int) -> None:
    x = rows(dtype, columns)
    want = np.array([truth(op, row) for row in x], dtype)
    built = model(op, [x.T if across else x, np.array([0 if across else 1])], constants=[1], keepdims=int(across))
    got = run(built, np.ascontiguousarray(x.T) if across else x, int64)
    np.testing.assert_array_equal(got, want[None] if across else want)


@pytest.mark.costly
@pytest.mark.parametrize("columns", [0, 3, 300])
@pytest.mark.parametrize(("dtype", "int64"), TYPES)
@pytest.mark.parametrize("op", REDUCTIONS)
def test_extents_that_a_run_tells(op: str, dtype: Any, int64: str, columns: int) -> None:
    x = rows(dtype, columns) if columns else np.zeros((3, 0), dtype)
    built = model(op, [x, np.array([1])], constants=[1], keepdims=0, symbolic=True)
    np.testing.assert_array_equal(run(built, x, int64), np.array([truth(op, row) for row in x], dtype))


@pytest.mark.costly
@pytest.mark.parametrize("what", ["whole", "parts"])
@pytest.mark.parametrize(("dtype", "int64"), both_ways([np.int32, np.int64]))
@pytest.mark.parametrize("op", REDUCTIONS)
def test_rows_that_are_reduced_in_two_steps(op: str, dtype: Any, int64: str, what: str) -> None:
    """All of a large tensor, and columns that are far apart, which a GPU cuts into parts."""
    x = rows(dtype, 2048)[[1, 3, 7, 8, 13]].T.copy()
    if what == "whole":
        x = np.tile(x, (8, 1))
        built, want = model(op, [x], keepdims=0), np.array(truth(op, x.ravel()), dtype)
    else:
        built = model(op, [x, np.array([0])], constants=[1], keepdims=0)
        want = np.array([truth(op, row) for row in x.T], dtype)
    np.testing.assert_array_equal(run(built, x, int64), want)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("dtype", "int64"), both_ways([np.int32, np.int64]))
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceL2"])
def test_rows_that_are_cut_into_chunks(op: str, dtype: Any, int64: str) -> None:
    """More than an invocation of a software adapter loops over, and a number of elements that f32 does not hold."""
    x = np.ones((1, 2**24 + 1), dtype)
    x[0, -1] = 0
    want = {"ReduceSum": 2**24, "ReduceMean": 0, "ReduceL2": 2**12}[op]
    assert run(model(op, [x, np.array([1])], constants=[1], keepdims=0), x, int64) == [want]


@pytest.mark.costly
@pytest.mark.parametrize(("dtype", "int64"), TYPES)
@pytest.mark.parametrize("op", REDUCTIONS)
def test_elements_are_rows_where_no_axis_is_reduced(op: str, dtype: Any, int64: str) -> None:
    x = rows(dtype, 3)
    built = model(op, [x, np.array([], np.int64)], constants=[1], noop_with_empty_axes=1)
    want = [[truth(op, np.array([v], dtype)) for v in row] for row in x]
    np.testing.assert_array_equal(run(built, x, int64), np.array(want, dtype))


@pytest.mark.costly
@pytest.mark.parametrize("axes", [(1,), (0,), (0, 1)])
@pytest.mark.parametrize(("dtype", "int64"), both_ways([np.int32, np.int64]))
@pytest.mark.parametrize("op", REDUCTIONS)
def test_limits_are_those_of_the_cpu_provider(op: str, dtype: Any, int64: str, axes: tuple[int, ...]) -> None:
    high = np.iinfo(dtype).max
    x = np.array([[50000, 50000, 46341], [3, -5, 7], [0, 0, 0], [2**20, -(2**20), 2**20], [-7, 0, -7]], dtype)
    check(op, x, np.array(axes), constants=[1], int64=int64)
    if dtype is np.int32 or op not in ("ReduceL2", "ReduceMean"):  # of which the exact ones are no floats
        check(op, np.array([[high, high], [-high - 1, -high - 1]], dtype), np.array([1]), constants=[1], int64=int64)


@pytest.mark.costly
@pytest.mark.parametrize(("dtype", "int64"), both_ways([np.int32, np.int64]))
def test_sums_within_einsum_and_products_are_those_of_the_cpu_provider(dtype: Any, int64: str) -> None:
    """A sum over one operand stops at the limits, sums of products wrap, and so do running totals."""
    high = np.iinfo(dtype).max
    x, y = np.array([[high, high, 3]], dtype), np.array([[high, high, 1]], dtype)
    check("Einsum", x, equation="ij->i", int64=int64)
    check("Einsum", x, y, equation="ij,ij->i", int64=int64)
    check("Einsum", x, y, equation="ij,kj->ik", int64=int64)
    check("MatMul", x, np.ascontiguousarray(y.T), int64=int64)
    check("CumSum", x, np.array(1), constants=[1], int64=int64)
