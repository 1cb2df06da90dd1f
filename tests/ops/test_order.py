"""ArgMax, ArgMin, Hardmax, TopK: ties, NaN, every element type, short rows and long ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests import support

from .compare import both_ways, check, model, random

NUMBERS = [np.float32, np.float16, np.int8, np.int32, np.int64, np.uint8, np.uint64]


def _count(k: int) -> np.ndarray:
    return np.array([k], np.int64)


def _with_ties_and_nan() -> np.ndarray:
    x = random(3, 5, 37)
    x[0, 0, 5:9] = x[0, 0].max()
    x[0, 1, 3] = x[1, 0, 0] = x[1, 2, 36] = np.nan
    x[2, 2] = np.nan
    x[2, 3] = -np.inf
    x[2, 4, 7] = np.inf
    return x


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("last", [0, 1])
def test_best_position_with_ties_and_nan(op: str, axis: int, keepdims: int, last: int) -> None:
    x = _with_ties_and_nan()
    check(op, x, axis=axis, keepdims=keepdims, select_last_index=last, outputs=[np.int64])


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize(("dtype", "int64"), both_ways(NUMBERS))
@pytest.mark.parametrize("columns", [1, 33, 3000])
def test_best_position_types(op: str, dtype: type, int64: str, columns: int) -> None:
    x = random(5, columns, dtype=dtype)
    want = [getattr(np, op.lower())(x, 1)]
    check(op, x, axis=1, keepdims=0, outputs=[np.int64], int64=int64, want=want)


def test_best_position_of_no_rows() -> None:
    x = np.zeros((0, 3), np.float32)
    check("ArgMax", x, axis=1, outputs=[np.int64], want=[np.zeros((0, 1), np.int64)])


@pytest.mark.parametrize(("opset", "axis"), [(11, 1), (20, 1), (20, -1)])
def test_hardmax(opset: int, axis: int) -> None:
    x = random(3, 4, 5)
    x[1, 2] = x[0, 0, 0]
    check("Hardmax", x, axis=axis, opset=opset)


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("columns", [1, 2, 3, 37, 3000])
def test_hardmax_is_where_argmax_is_with_nan_anywhere(dtype: type, columns: int) -> None:
    """The CPU provider's maximum of a long row with NaN depends on the place of the NaN; a NaN is never marked."""
    x = random(40, columns, dtype=dtype)
    x[np.random.default_rng(4).random(x.shape) < np.linspace(0, 1, 40)[:, None] ** 2] = np.nan
    x[::5, 0], x[1::7, -1], x[3::7] = np.nan, np.inf, x[3:4]
    # As a loop from the first element on: NaN there is never beaten, and elsewhere never wins.
    first = np.where(np.isnan(x[:, 0]), 0, np.argmax(np.where(np.isnan(x), -np.inf, x), 1))
    want = np.zeros_like(x)
    want[np.arange(40), first] = ~np.isnan(x[:, 0])
    check("Hardmax", x, axis=1, want=[want])
    check("ArgMax", x, axis=1, keepdims=0, outputs=[np.int64], want=[first])


@pytest.mark.costly
@pytest.mark.parametrize(("dtype", "int64"), both_ways(NUMBERS))
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(("columns", "k"), [(40, 7), (700, 7), (700, 700)], ids=str)
def test_top_k_types(dtype: type, int64: str, largest: int, columns: int, k: int) -> None:
    x = random(3, columns, dtype=dtype)
    order = np.argsort(x if not largest else -x.astype(np.float64), axis=1, kind="stable")[:, :k]
    want = [np.take_along_axis(x, order, 1), order]
    check("TopK", x, _count(k), constants=[1], largest=largest, outputs=[dtype, np.int64], int64=int64, want=want)


@pytest.mark.parametrize(("dtype", "int64"), [(np.int64, "native"), (np.int64, "pair"), (np.uint64, "pair")])
def test_top_k_of_large_integers(dtype: type, int64: str) -> None:
    x = np.array([[2**40 + k * 7919 % 501 for k in range(500)]], dtype)
    x[0, 3:5] = np.iinfo(dtype).max, np.iinfo(dtype).min
    check("TopK", x, _count(9), constants=[1], outputs=[dtype, np.int64], int64=int64)


@pytest.mark.costly
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("k", [1, 3])
def test_top_k_axes(axis: int, k: int) -> None:
    check("TopK", random(4, 300, 3), _count(k), constants=[1], axis=axis, outputs=[np.float32, np.int64])


@pytest.mark.costly
def test_top_k_of_many_results_and_of_none() -> None:
    x = random(2, 3000)
    for k in (1024, 1025, 3000, 0):
        check("TopK", x, _count(k), constants=[1], outputs=[np.float32, np.int64])


def _row(kind: str, columns: int, chance: np.random.Generator) -> np.ndarray:
    x = chance.standard_normal(columns).astype(np.float32)
    if kind == "one value":
        x[:] = x[0]
    elif kind == "few values":
        x = np.round(x)
    elif kind in ("ascending", "descending"):
        x = np.sort(x)[:: 1 if kind == "ascending" else -1]
    elif kind == "an outlier":
        x[chance.integers(columns)] = 1e30
    elif kind == "close together":  # keys differ in their last digits alone
        x = np.float32(1) + chance.integers(0, 300, columns).astype(np.float32) * np.float32(2**-23)
    elif kind == "specials":
        x = chance.choice(np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1], np.float32), columns)
    return x


ROWS = ["random", "one value", "few values", "ascending", "descending", "an outlier", "close together", "specials"]


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int16])
@pytest.mark.parametrize(("copies", "columns"), [(1, 257), (1, 1024), (1, 5003), (9, 1300)])
@pytest.mark.parametrize("k", [1, 40, 256, 257])
def test_selection_from_rows_of_every_kind(dtype: type, copies: int, columns: int, k: int) -> None:
    chance = np.random.default_rng(columns + k)
    x = np.stack([_row(kind, columns, chance) for kind in ROWS * copies])
    if dtype is np.int16:
        x = np.nan_to_num(np.clip(x, -300, 300) * 100)
    with np.errstate(over="ignore"):
        x = x.astype(dtype)
    # NaN is the largest; equal elements come in the order of their positions.
    order = np.lexsort((-x.astype(np.float64), ~np.isnan(x)))[:, :k]
    want = [np.take_along_axis(x, order, 1), order]
    check("TopK", x, _count(k), constants=[1], outputs=[dtype, np.int64], want=want)


@pytest.mark.costly
@pytest.mark.parametrize("columns", [5, 600])
def test_equal_elements_come_in_the_order_of_their_positions(columns: int) -> None:
    x = np.zeros((2, columns), np.float32)
    x[:, 1] = -0.0
    x[0, 4] = 1
    check("TopK", x, _count(4), constants=[1], outputs=[np.float32, np.int64])


@pytest.mark.costly
@pytest.mark.parametrize("columns", [9, 600])
def test_infinities_are_ordered_and_nan_is_the_largest(columns: int) -> None:
    x = random(1, columns)
    x[0, 1:6] = np.nan, np.inf, -np.inf, np.nan, np.inf
    values, positions = support.run_model(
        model("TopK", [x, _count(4)], constants=[1], outputs=[np.float32, np.int64]), x
    )
    np.testing.assert_array_equal(positions, [[1, 4, 2, 5]])
    np.testing.assert_array_equal(values, x[:, [1, 4, 2, 5]])
    built = model("TopK", [x, _count(1)], constants=[1], outputs=[np.float32, np.int64], largest=0)
    assert support.run_model(built, x)[1] == 3


def test_top_k_whose_extents_and_count_are_known_at_run_time() -> None:
    built = model("TopK", [np.zeros((1, 1), np.float32), _count(1)], symbolic=True, outputs=[np.float32, np.int64])
    built.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 1
    runner = support.Runner(support.compile_model(built))
    for columns, k in ((9, 2), (400, 30), (9, 9)):
        x = random(3, columns)
        order = np.argsort(-x, 1, kind="stable")[:, :k]
        values, positions = runner(x, _count(k))
        np.testing.assert_array_equal(positions, order)
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


@pytest.mark.costly
@pytest.mark.parametrize(("dtype", "int64"), both_ways(NUMBERS))
@pytest.mark.parametrize("known", [True, False])
def test_rows_of_any_length_are_sorted_and_equal_elements_keep_their_order(
    dtype: type, int64: str, known: bool
) -> None:
    """Lengths about those of the blocks that a workgroup sorts, and of two, four and eight of them."""
    rng = np.random.default_rng(7)
    built = model("TopK", [np.zeros((1, 1), dtype), _count(1)], symbolic=True, outputs=[dtype, np.int64])
    built.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 1
    program = support.compile_model(built, support.device(int64).target)
    for n in (1, 512, 513, 767, 1024, 1025, 2049, 4100, 4608, int(rng.integers(5000, 9000))):
        x = rng.integers(0, 1 + n // 3, (2, n)).astype(dtype)
        k = int(rng.integers(1 + n // 4, n + 1))
        order = np.argsort(-x.astype(np.float64), axis=1, kind="stable")[:, :k]
        want = [np.take_along_axis(x, order, 1), order]
        if known and n in (513, 1025, 4100):
            check("TopK", x, _count(k), constants=[1], outputs=[dtype, np.int64], int64=int64, want=want)
        elif not known:
            for found, wanted in zip(support.Runner(program)(x, _count(k)), want, strict=True):
                np.testing.assert_array_equal(found, wanted, f"{n} elements, k = {k}")


@pytest.mark.parametrize(("columns", "dispatches"), [(512, 1), (1025, 6), (2048, 6), (4096, 10), (1 << 20, 78)])
def test_dispatches_that_sort_grow_with_the_square_of_the_logarithm(columns: int, dispatches: int) -> None:
    built = model(
        "TopK", [np.zeros((1, columns), np.float32), _count(columns)], constants=[1], outputs=[np.float32, np.int64]
    )
    assert max(it.repeats for it in support.compile_model(built).dispatches) == dispatches


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("columns", [5, 700, 5000])
def test_nan_is_the_largest_in_top_k_whatever_its_sign(largest: int, columns: int) -> None:
    x = random(4, columns)
    x[:, 1::3] = np.inf
    x[:, ::4] = np.nan
    x[:, ::8] = np.copysign(np.nan, -1)
    # NumPy sorts NaN last; places break ties.
    order = np.argsort(x, 1, kind="stable")
    if largest:
        order = columns - 1 - np.argsort(x[:, ::-1], 1, kind="stable")[:, ::-1]
    want = order[:, : (k := columns - 1)]
    check(
        "TopK",
        x,
        _count(k),
        largest=largest,
        outputs=[np.float32, np.int64],
        want=[np.take_along_axis(x, want, 1), want],
    )
