"""Matrix products: every way shapes broadcast, sizes around tiles, float16, empty extents, infinities."""

from __future__ import annotations

import numpy as np
import pytest

from tests import support, targets

from .compare import both_ways, check, model, random

pytestmark = targets.EVERY_KERNEL

SHAPES = [
    ((3, 5), (5, 7)),
    ((1, 1), (1, 1)),
    ((65, 33), (33, 129)),
    ((5,), (5, 3)),
    ((3, 5), (5,)),
    ((5,), (5,)),
    ((2, 3, 5), (5, 4)),
    ((2, 3, 5), (2, 5, 4)),
    ((1, 3, 5), (2, 5, 4)),
    ((2, 1, 3, 5), (4, 5, 6)),
    ((4, 5, 6), (2, 1, 6, 3)),
    ((5,), (2, 5, 4)),
    ((2, 4, 5), (5,)),
    ((3, 300), (300, 2)),
    ((2, 3, 4), (1, 1, 1, 4, 5)),
    ((17, 64), (64, 64)),
]


@pytest.mark.costly
@pytest.mark.parametrize(("left", "right"), SHAPES)
@pytest.mark.parametrize("weights", [False, True])
def test_matmul(left: tuple[int, ...], right: tuple[int, ...], weights: bool) -> None:
    check("MatMul", random(*left), random(*right, seed=1), constants=[1] if weights else [], rtol=1e-4, atol=1e-4)


@pytest.mark.costly
@pytest.mark.parametrize(("dtype", "int64"), both_ways([np.int32, np.uint32, np.int64, np.uint64]))
@pytest.mark.parametrize(("left", "right"), [SHAPES[k] for k in (0, 3, 5, 8, 9, 11, 13)])
def test_integers(left: tuple[int, ...], right: tuple[int, ...], dtype: type, int64: str) -> None:
    scale = dtype(2**20 + 3) if np.dtype(dtype).itemsize == 8 else dtype(3)
    check("MatMul", random(*left, dtype=dtype) * scale, random(*right, dtype=dtype, seed=1) * scale, int64=int64)


@pytest.mark.costly
def test_matmul_float16_accumulates_in_float32() -> None:
    check("MatMul", random(9, 70, dtype=np.float16), random(70, 5, dtype=np.float16, seed=1), rtol=1e-4, atol=1e-4)
    x = np.full((1, 64), 250, np.float16)
    y = np.concatenate([np.full((32, 1), 250), np.full((32, 1), -250)]).astype(np.float16)
    check("MatMul", x, y, want=[np.zeros((1, 1), np.float16)])


@pytest.mark.costly
def test_matmul_of_special_values() -> None:
    x = np.array([[np.inf, 1], [np.nan, 1], [0, 1]], np.float32)
    y = np.array([[1, 0, -1], [1, 1, 1]], np.float32)
    check("MatMul", x, y)


@pytest.mark.costly
def test_matmul_of_empty_extents() -> None:
    check("MatMul", random(3, 0), random(0, 4), want=[np.zeros((3, 4), np.float32)])
    check("MatMul", random(0, 3), random(3, 4), want=[np.zeros((0, 4), np.float32)])
    check("MatMul", random(2, 3), random(3, 0), want=[np.zeros((2, 0), np.float32)])


@pytest.mark.costly
def test_matmul_of_dimensions_that_are_unknown_until_a_run() -> None:
    built = model("MatMul", [random(1, 1, 1), random(1, 1, 1)], symbolic=True)
    runner = support.Runner(support.compile_model(built))
    for left, right in (
        ((2, 3, 5), (2, 5, 7)),
        ((1, 70, 9), (1, 9, 130)),
        ((4, 1, 1), (4, 1, 1)),
        ((1, 3, 5), (6, 5, 2)),
    ):
        x, y = random(*left), random(*right, seed=1)
        np.testing.assert_allclose(runner(x, y)[0], x @ y, rtol=1e-4, atol=1e-4)


@pytest.mark.costly
@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("right", [0, 1])
@pytest.mark.parametrize("bias", [None, (), (1,), (7,), (5, 1), (5, 7), (1, 7)])
def test_gemm(left: int, right: int, bias: tuple[int, ...] | None) -> None:
    x, y = random(*((6, 5) if left else (5, 6))), random(*((7, 6) if right else (6, 7)), seed=1)
    c = None if bias is None else np.asarray(random(*bias, seed=2), np.float32)
    given = [x, y] if c is None else [x, y, c]
    check("Gemm", *given, transA=left, transB=right, alpha=0.5, beta=2.0, rtol=1e-4, atol=1e-5)
