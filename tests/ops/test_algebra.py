"""Einsum, determinants, columns back to images, bits as another type."""

from __future__ import annotations

import numpy as np
import pytest

from .compare import both_ways, check, random

EQUATIONS = {
    "ij,jk->ik": [(3, 4), (4, 5)],
    "bij,bjk": [(2, 3, 4), (2, 4, 5)],
    "ii->i": [(4, 4)],
    "ii": [(4, 4)],
    "iij->j": [(3, 3, 4)],
    "ij->ji": [(3, 4)],
    "ij->": [(3, 4)],
    "i,j->ij": [(3,), (4,)],
    "i,i->": [(7,), (7,)],
    " ij , j -> i ": [(3, 4), (4,)],
    "ij,ij->ij": [(3, 4), (3, 4)],
    "bij,bij->b": [(2, 3, 4), (2, 3, 4)],
    "...ij,...jk->...ik": [(2, 3, 4), (2, 4, 6)],
    "b...,b...->...": [(2, 3, 4), (2, 3, 4)],
    "bhwc,hkc->bhwk": [(2, 3, 4, 5), (3, 7, 5)],
    "bhid,bhjd->bhij": [(2, 3, 5, 4), (2, 3, 7, 4)],
    "ij,jk,kl->il": [(2, 3), (3, 4), (4, 5)],
    "abc,cd,def->abef": [(2, 3, 4), (4, 5), (5, 2, 3)],
}


@pytest.mark.costly
@pytest.mark.parametrize("equation", EQUATIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_einsum(equation: str, dtype: type) -> None:
    operands = [random(*s, seed=k, dtype=dtype) % 7 for k, s in enumerate(EQUATIONS[equation])]
    check("Einsum", *operands, equation=equation, rtol=1e-4, atol=1e-4)


@pytest.mark.costly
@pytest.mark.parametrize("equation", ["bij,bjk->bik", "...ij,...jk->...ik", "ij,ij->i"])
def test_einsum_of_extents_known_at_run_time(equation: str) -> None:
    shapes = {
        "bij,bjk->bik": [(2, 3, 4), (2, 4, 5)],
        "...ij,...jk->...ik": [(2, 3, 4), (2, 4, 5)],
        "ij,ij->i": [(3, 4), (3, 4)],
    }
    check(
        "Einsum",
        *(random(*s, seed=k) for k, s in enumerate(shapes[equation])),
        equation=equation,
        symbolic=True,
        rtol=1e-4,
    )


@pytest.mark.costly
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_determinant(n: int) -> None:
    check("Det", random(2, 3, n, n), rtol=1e-4)
    check("Det", random(n, n), rtol=1e-4)


def test_determinant_with_exchanged_rows_and_of_a_singular_matrix() -> None:
    check("Det", np.array([[0, 1, 2], [0, 0, 3], [1, 1, 1]], np.float32))
    check("Det", np.zeros((3, 3), np.float32))


def test_columns_back_to_an_image() -> None:
    check("Col2Im", random(1, 12, 30), np.array([6, 7]), np.array([2, 2]), constants=[1, 2])
    check("Col2Im", random(2, 18, 12), np.array([9, 10]), np.array([2, 3]), constants=[1, 2], strides=[3, 2],
          pads=[1, 0, 0, 1], dilations=[2, 2])  # fmt: skip


PAIRS = [(np.float32, np.int32), (np.int32, np.float32), (np.uint32, np.int32), (np.float16, np.uint16), (np.int16, np.float16),
         (np.uint16, np.int16), (np.int8, np.uint8), (np.bool_, np.uint8), (np.uint8, np.bool_)]  # fmt: skip


@pytest.mark.parametrize(("dtype", "to"), PAIRS)
def test_bits_as_another_type(dtype: type, to: type) -> None:
    x = random(9, dtype=dtype) % 2 if to is np.bool_ else random(9, dtype=dtype)
    code = {
        np.float32: 1,
        np.uint8: 2,
        np.int8: 3,
        np.uint16: 4,
        np.int16: 5,
        np.int32: 6,
        np.bool_: 9,
        np.float16: 10,
    }[to]
    check("BitCast", x, to=code, outputs=[to], opset=26, want=[x.view(to)])


@pytest.mark.parametrize(("dtype", "int64"), both_ways([np.int64]))
def test_wide_bits_as_another_type(dtype: type, int64: str) -> None:
    x = np.array([-1, 0, 2**40, -(2**63)], dtype)
    check("BitCast", x, to=13, outputs=[np.uint64], opset=26, int64=int64, want=[x.view(np.uint64)])
