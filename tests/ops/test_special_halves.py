"""The same numbers as in `test_special_values` in bfloat16, and in the types of 8 and 4 bits that models only store: NaN,
infinities, numbers below the normal ones, both zeros, extremes, and the ties between two neighbours.

The oracle is what the CPU provider makes of the same numbers in float32, rounded by ml_dtypes, to the nearest even.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from bench import numbers
from tests import support

from .compare import expected, model
from .test_special_values import BINARY, INEXACT, INTEGERS, UNARY, difference, special, undefined

BF16 = ml_dtypes.bfloat16
MINIFLOATS = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz]
ORDERED = {"Max", "Min", "Relu", "Abs", "Neg", "Sign", "Identity", "Floor", "Ceil", "Round"}


def brain() -> np.ndarray:
    """The special numbers of float32 that bfloat16 has, and every power of two with its neighbours."""
    powers = 2.0 ** np.arange(-126, 128, 21)
    near = [0.3, 0.99999, 30.25, 1.0078125, 255, 256, 257, *powers, *(powers * 1.9921875)]
    wide = np.concatenate([special(np.float32), np.array(near, np.float32), -np.array(near, np.float32)])
    found = wide.astype(BF16)
    if numbers.measured().flushes:
        found = found[(found == 0) | ~(np.abs(found.astype(np.float32)) < numbers.LEAST_NORMAL)]
    return np.unique(found.view(np.uint16)).view(BF16)


def steps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """How many numbers of the type lie between two results; 0 for the same bits and for two NaN."""
    unsigned = np.dtype(f"u{got.itemsize}")
    sign = 1 << (8 * got.itemsize - 1)
    a, b = (x.view(unsigned).astype(np.int64) for x in (got, want))
    a, b = (np.where(x & sign, -(x & (sign - 1)) - 1, x) for x in (a, b))
    both = np.isnan(got.astype(np.float32)) & np.isnan(want.astype(np.float32))
    return np.where(both, 0, np.abs(a - b))


def check(got: np.ndarray, want: np.ndarray, most: int, *xs: np.ndarray) -> None:
    assert got.dtype == want.dtype
    agree = steps(got, want) <= most
    if numbers.measured().flushes:
        with np.errstate(all="ignore"):
            agree |= np.abs(got.astype(np.float64) - want.astype(np.float64)) <= 2 * numbers.LEAST_NORMAL
    assert agree.all(), difference(agree, got, want, *xs)


def in_float32(op: str, arrays: list[np.ndarray], **how: Any) -> np.ndarray:
    wide = [a.astype(np.float32) for a in arrays]
    with np.errstate(all="ignore"):
        if op in INEXACT:
            return next(o for o in numbers.OPERATORS if o.name == op).truth(wide[0].astype(np.float64))
        return expected(model(op, wide, **how), {f"x{k}": a for k, a in enumerate(wide)})[0]


def rounded(values: np.ndarray, dtype: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return values.astype(np.float32).astype(dtype)


@pytest.mark.parametrize("op", [*UNARY, "Identity"])
def test_brain_floats(op: str) -> None:
    x = brain()
    got = support.run_model(model(op, [x]), x)[0]
    check(got, rounded(in_float32(op, [x]), BF16), 0 if op in ORDERED else 1, x)


@pytest.mark.parametrize("op", ["IsNaN", "IsInf"])
def test_kinds_of_brain_floats(op: str) -> None:
    x = brain()
    got = support.run_model(model(op, [x], outputs=[bool]), x)[0]
    np.testing.assert_array_equal(got, in_float32(op, [x], outputs=[bool]))


@pytest.mark.parametrize("op", BINARY)
def test_pairs_of_brain_floats(op: str) -> None:
    x, y = (np.ascontiguousarray(a) for a in np.meshgrid(brain(), brain()))
    how = {"fmod": 1} if op == "Mod" else {}
    got, want = support.run_model(model(op, [x, y], **how), x, y)[0], rounded(in_float32(op, [x, y], **how), BF16)
    if op in ("Max", "Min"):
        want = np.where((want == 0) & (got == 0), got, want)  # which zero is the larger is not said
    check(got, want, 0 if op in ORDERED else 1, x, y)


@pytest.mark.parametrize("op", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
def test_comparisons_of_brain_floats(op: str) -> None:
    x, y = (np.ascontiguousarray(a) for a in np.meshgrid(brain(), brain()))
    got = support.run_model(model(op, [x, y], outputs=[bool]), x, y)[0]
    np.testing.assert_array_equal(got, in_float32(op, [x, y], outputs=[bool]))


@pytest.mark.parametrize("int64", ["native", "pair"])
@pytest.mark.parametrize("to", [np.float32, np.float16, *INTEGERS, np.bool_], ids=lambda t: np.dtype(t).name)
def test_casts_of_brain_floats(to: Any, int64: str) -> None:
    x = brain()
    how = {"outputs": [to], "to": helper.np_dtype_to_tensor_dtype(np.dtype(to))}
    got = support.run_model(model("Cast", [x], **how), x, int64=int64)[0]
    want = in_float32("Cast", [x], **how) if to is not np.float32 else x.astype(np.float32)
    agree = (got == want) | ((got != got) & (want != want)) | undefined(x.astype(np.float32), to)
    assert agree.all(), difference(agree, got, want, x)
    if np.dtype(to).kind == "f":
        assert (np.signbit(got) == np.signbit(want))[want == 0].all()


@pytest.mark.parametrize("int64", ["native", "pair"])
@pytest.mark.parametrize("source", [np.float32, np.float16, *INTEGERS, np.bool_], ids=lambda t: np.dtype(t).name)
def test_casts_to_brain_floats(source: Any, int64: str) -> None:
    x = special(source)
    how = {"outputs": [BF16], "to": helper.np_dtype_to_tensor_dtype(np.dtype(BF16))}
    got = support.run_model(model("Cast", [x], **how), x, int64=int64)[0]
    check(got, rounded(x, BF16), 0, x)


def ties(dtype: Any) -> np.ndarray:
    """Every number of a narrow type in float32, what lies half way between two, and what lies next to that."""
    every = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    finite = np.unique(every[np.isfinite(every)])
    middle = (finite[1:] + finite[:-1]) / 2
    beyond = finite[-1] * np.array([1.03, 1.0625, 1.07, 1.125, 1.25, 2, 1e9], np.float32)
    sides = [np.nextafter(middle, np.float32(side) * np.float32(np.inf)) for side in (1, -1)]
    return np.concatenate([every, middle, *sides, beyond, -beyond, [np.inf, -np.inf, np.nan, -0.0]]).astype(np.float32)


@pytest.mark.parametrize("source", [np.float32, np.float16, BF16], ids=lambda t: np.dtype(t).name)
@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("to", MINIFLOATS, ids=lambda t: np.dtype(t).name)
def test_casts_to_eight_bits(to: Any, saturate: int, source: Any) -> None:
    if source is np.float16 and not numbers.measured().reads_halves:
        pytest.skip("the adapter does not read and write all numbers of f16")
    x = ties(to).astype(source)
    how = {"outputs": [to], "to": helper.np_dtype_to_tensor_dtype(np.dtype(to)), "saturate": saturate}
    got = support.run_model(model("Cast", [x], **how), x)[0]
    wide = x.astype(np.float32)
    # Not saturating, the CPU provider makes 448 of 480 in e4m3fn, and NaN of what rounds beyond the largest number of e5m2.
    want = expected(model("Cast", [wide], **how), {"x0": wide})[0].view(to) if saturate else rounded(wide, to)
    check(got.view(to), want, 0, x)


@pytest.mark.parametrize("to", [np.float32, np.float16, BF16], ids=lambda t: np.dtype(t).name)
@pytest.mark.parametrize("source", MINIFLOATS, ids=lambda t: np.dtype(t).name)
def test_casts_of_eight_bits(source: Any, to: Any) -> None:
    x = np.arange(256, dtype=np.uint8).view(source)
    how = {"outputs": [to], "to": helper.np_dtype_to_tensor_dtype(np.dtype(to))}
    got = support.run_model(model("Cast", [x], **how), x)[0]
    check(got, rounded(x, to), 0, x)
