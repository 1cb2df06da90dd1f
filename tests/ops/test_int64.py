"""64-bit integers are exact, on adapters that have them and on those where they are pairs of 32-bit words.

Python's integers are the oracle. A division by zero gives the dividend and leaves no remainder, on both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tests import support

SETTINGS = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
BOTH = pytest.mark.parametrize("int64", ["native", "pair"])
SIGNED = pytest.mark.parametrize("signed", [True, False])
EDGES = [0, 1, 2, 3, 10, 2**16, 2**24 + 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**33 + 5, 2**53 + 1, 2**62, 2**63 - 1]


def numbers(signed: bool) -> st.SearchStrategy[int]:
    """All magnitudes equally often, and the edges of words."""
    magnitude = st.one_of(st.sampled_from(EDGES), st.integers(0, 63).flatmap(lambda bits: st.integers(0, 2**bits)))
    if signed:
        return st.one_of(magnitude, magnitude.map(lambda n: -n), st.just(-(2**63))).filter(lambda n: n < 2**63)
    return st.one_of(magnitude, magnitude.map(lambda n: 2**64 - 1 - n))


def pairs(signed: bool) -> st.SearchStrategy[list[tuple[int, int]]]:
    return st.lists(st.tuples(numbers(signed), numbers(signed)), min_size=1, max_size=60)


def wrap(value: int, signed: bool) -> int:
    value %= 2**64
    return value - 2**64 if signed and value >= 2**63 else value


@cache
def runner(op: str, inputs: tuple[int, ...], output: int, int64: str, **attributes: Any) -> support.Runner:
    names = [f"x{k}" for k in range(len(inputs))]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attributes)],
        op,
        [helper.make_tensor_value_info(n, t, ["n"]) for n, t in zip(names, inputs, strict=True)],
        [helper.make_tensor_value_info("y", output, ["n"])],
    )
    built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return support.Runner(support.compile_model(built, support.target(int64)))


def compute(
    op: str, cases: list[tuple[int, int]], signed: bool, int64: str, output: int | None = None, **attributes: Any
) -> list[Any]:
    code, dtype = (TensorProto.INT64, np.int64) if signed else (TensorProto.UINT64, np.uint64)
    run = runner(op, (code, code), output or code, int64, **attributes)
    x, y = (np.array([c[k] for c in cases], dtype) for k in (0, 1))
    return run(x, y)[0].tolist()


def truncated(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else x


OPERATORS: dict[str, Callable[[int, int], int]] = {
    "Add": lambda x, y: x + y,
    "Sub": lambda x, y: x - y,
    "Mul": lambda x, y: x * y,
    "Div": truncated,
    "Max": max,
    "Min": min,
    "BitwiseAnd": lambda x, y: x & y,
    "BitwiseOr": lambda x, y: x | y,
    "BitwiseXor": lambda x, y: x ^ y,
}


@pytest.mark.costly
@BOTH
@SIGNED
@pytest.mark.parametrize("op", OPERATORS)
def test_arithmetic(op: str, signed: bool, int64: str) -> None:
    @SETTINGS
    @given(pairs(signed))
    def holds(cases: list[tuple[int, int]]) -> None:
        assert compute(op, cases, signed, int64) == [wrap(OPERATORS[op](x, y), signed) for x, y in cases]

    holds()


@pytest.mark.costly
@BOTH
@SIGNED
@pytest.mark.parametrize("fmod", [0, 1])
def test_remainder(fmod: int, signed: bool, int64: str) -> None:
    @SETTINGS
    @given(pairs(signed))
    def holds(cases: list[tuple[int, int]]) -> None:
        want = [0 if not y else x - truncated(x, y) * y if fmod else x % y for x, y in cases]
        assert compute("Mod", cases, signed, int64, fmod=fmod) == want

    holds()


COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "Equal": lambda x, y: x == y,
    "Less": lambda x, y: x < y,
    "LessOrEqual": lambda x, y: x <= y,
    "Greater": lambda x, y: x > y,
    "GreaterOrEqual": lambda x, y: x >= y,
}


@pytest.mark.costly
@BOTH
@SIGNED
@pytest.mark.parametrize("op", COMPARISONS)
def test_comparison(op: str, signed: bool, int64: str) -> None:
    @SETTINGS
    @given(pairs(signed))
    def holds(cases: list[tuple[int, int]]) -> None:
        cases = [*cases, *((x, x) for x, _ in cases)]
        assert compute(op, cases, signed, int64, TensorProto.BOOL) == [COMPARISONS[op](x, y) for x, y in cases]

    holds()


@pytest.mark.costly
@BOTH
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shift(direction: str, int64: str) -> None:
    @SETTINGS
    @given(st.lists(st.tuples(numbers(False), st.one_of(st.integers(0, 70), numbers(False))), min_size=1, max_size=60))
    def holds(cases: list[tuple[int, int]]) -> None:
        want = [0 if n > 63 else wrap(x << n, False) if direction == "LEFT" else x >> n for x, n in cases]
        assert compute("BitShift", cases, False, int64, direction=direction) == want

    holds()


@pytest.mark.costly
@BOTH
@SIGNED
def test_power(signed: bool, int64: str) -> None:
    @SETTINGS
    @given(st.lists(st.tuples(numbers(signed), st.integers(0, 70)), min_size=1, max_size=30))
    def holds(cases: list[tuple[int, int]]) -> None:
        assert compute("Pow", cases, signed, int64) == [wrap(x**y, signed) for x, y in cases]

    holds()


UNARY: dict[str, Callable[[int], int]] = {
    "Neg": lambda x: -x,
    "Abs": abs,
    "Sign": lambda x: (x > 0) - (x < 0),
    "BitwiseNot": lambda x: ~x,
}


@pytest.mark.costly
@BOTH
@SIGNED
@pytest.mark.parametrize("op", UNARY)
def test_unary(op: str, signed: bool, int64: str) -> None:
    if op == "Neg" and not signed:
        return  # ONNX does not negate unsigned integers
    code = TensorProto.INT64 if signed else TensorProto.UINT64

    @SETTINGS
    @given(st.lists(numbers(signed), min_size=1, max_size=60))
    def holds(cases: list[int]) -> None:
        got = runner(op, (code,), code, int64)(np.array(cases, np.int64 if signed else np.uint64))[0].tolist()
        assert got == [wrap(UNARY[op](x), signed) for x in cases]

    holds()


@pytest.mark.costly
@BOTH
@SIGNED
def test_rounding_to_float32_is_to_the_nearest(signed: bool, int64: str) -> None:
    """Ties go to the even neighbour, as numpy rounds."""
    code = TensorProto.INT64 if signed else TensorProto.UINT64
    tie = st.integers(0, 39).flatmap(lambda k: st.integers(2**23, 2**24 - 1).map(lambda n: (2 * n + 1) << k))

    @SETTINGS
    @given(st.lists(st.one_of(numbers(signed), tie.filter(lambda n: n < 2**63)), min_size=1, max_size=60))
    def holds(cases: list[int]) -> None:
        x = np.array(cases, np.int64 if signed else np.uint64)
        got = runner("Cast", (code,), TensorProto.FLOAT, int64, to=TensorProto.FLOAT)(x)[0]
        np.testing.assert_array_equal(got, x.astype(np.float32))

    holds()


@pytest.mark.costly
@BOTH
@SIGNED
def test_float32_truncates_towards_zero(signed: bool, int64: str) -> None:
    code = TensorProto.INT64 if signed else TensorProto.UINT64
    low, high = (-(2.0**63), 2.0**63 - 2.0**39) if signed else (0.0, 2.0**64 - 2.0**40)

    @SETTINGS
    @given(st.lists(st.floats(low, high, width=32), min_size=1, max_size=60))
    def holds(cases: list[float]) -> None:
        x = np.array(cases, np.float32)
        got = runner("Cast", (TensorProto.FLOAT,), code, int64, to=code)(x)[0].tolist()
        assert got == [int(v) for v in x.tolist()]

    holds()


@pytest.mark.costly
@BOTH
@SIGNED
@pytest.mark.parametrize("narrow", [np.int32, np.uint32, np.int8, np.uint16])
def test_other_integers_keep_the_low_bits(narrow: type, signed: bool, int64: str) -> None:
    wide, dtype = (TensorProto.INT64, np.int64) if signed else (TensorProto.UINT64, np.uint64)
    code = helper.np_dtype_to_tensor_dtype(np.dtype(narrow))

    @SETTINGS
    @given(st.lists(numbers(signed), min_size=1, max_size=60))
    def holds(cases: list[int]) -> None:
        x = np.array(cases, dtype)
        small = x.astype(narrow)
        np.testing.assert_array_equal(runner("Cast", (wide,), code, int64, to=code)(x)[0], small)
        np.testing.assert_array_equal(runner("Cast", (code,), wide, int64, to=wide)(small)[0], small.astype(dtype))

    holds()


@BOTH
@pytest.mark.parametrize("fmod", [0, 1])
def test_quotients_that_remainders_follow(int64: str, fmod: int) -> None:
    """Compared in the kernel that calculates them, where a driver may know of what they are calculated."""
    x = np.array([*range(-40, 40), *(s * n for n in EDGES for s in (1, -1))], np.int64)
    nodes = [
        helper.make_node("Div", ["x", "a"], ["p"]),
        helper.make_node("Mod", ["p", "b"], ["q"], fmod=fmod),
        helper.make_node("Div", ["q", "a"], ["r"]),
        helper.make_node("Equal", ["r", "z"], ["e"]),
    ]
    for a, b in ((2, 5), (3, -7), (-2, 5)):
        model = support.make_model(
            nodes, {"x": (np.int64, ["n"]), "z": (np.int64, ["n"])}, {"a": np.int64(a), "b": np.int64(b)}
        )
        p = [truncated(int(n), a) for n in x]
        q = [n - truncated(n, b) * b if fmod else n % b for n in p]
        want = np.array([truncated(n, a) for n in q], np.int64)
        for other in (0, 1):
            (got,) = support.run_model(model, x, want + other, int64=int64)
            np.testing.assert_array_equal(got, np.full(len(x), not other))
