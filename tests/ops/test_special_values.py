"""NaN, infinities, numbers below the normal ones, both zeros and the extremes of every type, through every pointwise operator
and cast, all pairs of them for operators of two operands. The CPU provider is the oracle, of the signs of zeros too; where it
is wrong or has no rule, `INEXACT`, `WRONG` and `undefined` say so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from bench import numbers
from tests import support

from .compare import both_ways, expected, model

INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float32, np.float16]
# The CPU provider makes exp(x) - 1 of small x and approximations of the others; it calls the sign of a NaN of f16 zero. The
# truth in f64 takes its place.
INEXACT = {"Elu", "Celu", "Selu", "Gelu", "Sigmoid", "Tanh", "Sign"}
# On int64 the CPU provider compares 32 bits of some of these; onnx's evaluator takes its place.
WRONG = {"Max", "Min", "Sign"}


def special(dtype: Any) -> np.ndarray:
    """The numbers of a type where operators and conversions differ."""
    if np.dtype(dtype) == np.float16 and not numbers.measured().reads_halves:
        pytest.skip("the adapter does not read and write all numbers of f16")
    if np.dtype(dtype).kind == "b":
        return np.array([False, True])
    if np.dtype(dtype).kind in "iu":
        limits = np.iinfo(dtype)
        edges = [0, 1, 2, 3, 7, *(2**k + d for k in (7, 8, 15, 16, 24, 31, 32, 53, 63) for d in (-1, 0, 1))]
        values = {v for e in [*edges, int(limits.max), int(limits.max) - 1] for v in (e, -e, -e - 1)}
        return np.array(sorted(v for v in values if limits.min <= v <= limits.max), dtype)
    limits = np.finfo(dtype)
    whole = [1, 2, 3, 127, 128, 255, 256, 2.0**15, 2.0**16 - 32, 2.0**24 - 1]
    if np.dtype(dtype) == np.float32:
        whole += [
            2.0**31 - 128,
            2.0**31,
            2.0**31 + 256,
            2.0**32 - 256,
            2.0**32,
            2.0**63 - 2.0**39,
            2.0**63,
            2.0**64 - 2.0**40,
            2.0**64,
        ]
    values = [
        0,
        0.3,
        0.5,
        0.99999,
        1.5,
        2.5,
        3.7,
        30.25,
        *whole,
        limits.max,
        limits.tiny,
        limits.tiny / 2,
        limits.smallest_subnormal,
    ]
    with np.errstate(all="ignore"):
        found = np.array([*values, np.inf, np.nan], np.float64).astype(dtype)
    found = np.concatenate([found, -found])
    if numbers.measured().flushes:
        found = found[(found == 0) | ~(np.abs(found) < limits.tiny)]
    return np.unique(found.view(f"u{found.itemsize}")).view(dtype)


def undefined(x: np.ndarray, to: Any) -> np.ndarray:
    """What a conversion of C++ leaves open and compilers make differently: floats that do not fit u32 or u64."""
    if x.dtype.kind != "f" or to not in (np.uint32, np.uint64):
        return np.zeros(x.shape, bool)
    return ~((x > -1) & (x.astype(np.float64) < 2.0 ** (8 * np.dtype(to).itemsize)))


def near(got: np.ndarray, want: np.ndarray, units: float) -> np.ndarray:
    """Where floats agree to `units` of the last place and in the sign of zeros; errors that an adapter may make below the
    normal numbers do not count."""
    agree = numbers.errors(got, want.astype(np.float64)) <= units
    if numbers.measured().flushes:
        with np.errstate(all="ignore"):
            agree |= np.abs(got.astype(np.float64) - want) <= 2 * numbers.LEAST_NORMAL
    return agree & ((got != 0) | (want != 0) | (np.signbit(got) == np.signbit(want)))


def same(got: np.ndarray, want: np.ndarray, units: float = 4) -> np.ndarray:
    """Where two results agree: integers and bools exactly."""
    assert got.dtype == want.dtype
    return near(got, want, units) if got.dtype.kind == "f" else got == want


def difference(agree: np.ndarray, got: np.ndarray, want: np.ndarray, *xs: np.ndarray) -> str:
    xs = tuple(np.broadcast_to(x, agree.shape) for x in xs)
    return "\n".join(
        f"({', '.join(repr(x[tuple(i)]) for x in xs)}): {got[tuple(i)]!r}, not {want[tuple(i)]!r}"
        for i in np.argwhere(~agree)[:12]
    )


def run(built: Any, arrays: list[np.ndarray], int64: str = "native") -> tuple[np.ndarray, np.ndarray]:
    """Our result and the oracle's."""
    feeds = {f"x{k}": a for k, a in enumerate(arrays)}
    got = support.run_model(built, *arrays, int64=int64)[0]
    with np.errstate(all="ignore"):
        if arrays[0].dtype == np.int64 and built.graph.node[0].op_type in WRONG:
            return got, np.asarray(ReferenceEvaluator(built).run(None, feeds)[0])
        return got, expected(built, feeds)[0]


@pytest.mark.costly
@pytest.mark.parametrize(("source", "int64"), both_ways([*FLOATS, *INTEGERS, np.bool_]))
@pytest.mark.parametrize("to", [*FLOATS, *INTEGERS, np.bool_], ids=lambda t: np.dtype(t).name)
def test_casts(source: Any, to: Any, int64: str) -> None:
    if source is to:
        return
    special(to)  # skips what the adapter cannot store
    x = special(source)
    built = model("Cast", [x], outputs=[to], to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))
    got, want = run(built, [x], int64)
    agree = same(got, want, 0.5) | undefined(x, to)
    assert agree.all(), difference(agree, got, want, x)


@pytest.mark.parametrize("int64", ["native", "pair"])
@pytest.mark.parametrize("to", [np.uint32, np.uint64])
def test_floats_that_do_not_fit_unsigned_integers(to: Any, int64: str) -> None:
    """The same on every adapter: negative numbers wrap where their magnitude fits (for u64 a signed one), the rest is 0."""
    bits = 8 * np.dtype(to).itemsize
    x = special(np.float32)
    built = model("Cast", [x], outputs=[to], to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))
    got = support.run_model(built, x, int64=int64)[0]
    low = -(2**32) + 1 if bits == 32 else -(2**63)
    for value, result in zip(x.tolist(), got.tolist(), strict=True):
        if np.isfinite(value) and low <= int(value) < 2**bits:
            assert result == int(value) % 2**bits, value
        else:
            assert result == (2**63 if bits == 64 and value < 0 else 0), value


BINARY = ["Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Mod", "PRelu"]


@pytest.mark.parametrize("op", BINARY)
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: np.dtype(t).name)
def test_pairs_of_floats(op: str, dtype: Any) -> None:
    x, y = (np.ascontiguousarray(a) for a in np.meshgrid(special(dtype), special(dtype)))
    got, want = run(model(op, [x, y], **({"fmod": 1} if op == "Mod" else {})), [x, y])
    agree = same(got, want)
    if op in ("Max", "Min"):
        agree |= (got == 0) & (want == 0)  # which zero is the larger is not said
    assert agree.all(), difference(agree, got, want, x, y)


@pytest.mark.parametrize("op", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
@pytest.mark.parametrize(("dtype", "int64"), both_ways([*FLOATS, *INTEGERS]))
def test_comparisons(op: str, dtype: Any, int64: str) -> None:
    x, y = (np.ascontiguousarray(a) for a in np.meshgrid(special(dtype), special(dtype)))
    got, want = run(model(op, [x, y], outputs=[bool]), [x, y], int64)
    agree = same(got, want)
    assert agree.all(), difference(agree, got, want, x, y)


UNARY = sorted({o.name for o in numbers.OPERATORS if o.inputs == 1 and o.name not in ("Swish",)})


@pytest.mark.parametrize("op", [*UNARY, "IsNaN", "IsInf", "Identity"])
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: np.dtype(t).name)
def test_floats(op: str, dtype: Any) -> None:
    x = special(dtype)
    built = model(op, [x], outputs=[bool] if op.startswith("Is") else [])
    got, want = run(built, [x])
    if op in INEXACT:
        truth = next(o for o in numbers.OPERATORS if o.name == op).truth(x.astype(np.float64))
        want, agree = truth, near(got, truth, 4)
    else:
        agree = same(got, want)
    assert agree.all(), difference(agree, got, want, x)


@pytest.mark.parametrize(
    "op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Mod", "BitwiseAnd", "BitwiseOr", "BitwiseXor"]
)
@pytest.mark.parametrize(("dtype", "int64"), both_ways(INTEGERS))
def test_pairs_of_integers(op: str, dtype: Any, int64: str) -> None:
    x, y = (np.ascontiguousarray(a) for a in np.meshgrid(special(dtype), special(dtype)))
    if op in ("Div", "Mod"):
        keep = (y != 0) & ~((y.astype(object) == -1) & (x == np.iinfo(dtype).min))
        x, y = x[keep], y[keep]
    got, want = run(model(op, [x, y]), [x, y], int64)
    agree = same(got, want)
    assert agree.all(), difference(agree, got, want, x, y)


@pytest.mark.parametrize("op", ["Abs", "Neg", "Sign", "BitwiseNot", "Relu", "Identity"])
@pytest.mark.parametrize(("dtype", "int64"), both_ways(INTEGERS))
def test_integers(op: str, dtype: Any, int64: str) -> None:
    if np.dtype(dtype).kind == "u" and op in ("Neg", "Relu"):
        return
    x = special(dtype)
    got, want = run(model(op, [x]), [x], int64)
    agree = same(got, want)
    assert agree.all(), difference(agree, got, want, x)
