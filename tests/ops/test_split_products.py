"""Products of f32 by matrix units of f16 (enableF16Products): errors beside f64, special values, every layout of operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.fields import settings_from
from onnxruntime_ep_wgpu.options import parse
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.settings import CompileSettings
from tests import support, targets

from .compare import model

TERM = 2**-21  # error of a term, of the largest one of a sum
SUM = 2**-23  # error of an addition of f32, of all terms

way = targets.each(targets.Way("matrices"), targets.Way("web-matrices", "pair"))


def compiled(built: onnx.ModelProto) -> Program:
    return support.compile_model(built, settings=CompileSettings(f16_products=True))


def is_split(program: Program) -> bool:
    return any("matrix_sum" in text for kernel in program.kernels for text in kernel.wgsl)


def product(x: np.ndarray, y: np.ndarray, op: str = "MatMul", *more: np.ndarray, **how: Any) -> np.ndarray:
    program = compiled(model(op, [x, y, *more], **how))
    assert is_split(program)
    constants = how.get("constants", ())
    return support.Runner(program)(*(it for k, it in enumerate([x, y, *more]) if k not in constants))[0]


def check(x: np.ndarray, y: np.ndarray, got: np.ndarray) -> None:
    x, y = x.astype(np.float64), y.astype(np.float64)
    left, right = np.abs(x), np.abs(y)
    largest = left.max(-1, keepdims=True) * right.max(-2, keepdims=True)
    bound = x.shape[-1] * (TERM * largest + 3 * SUM * (left @ right)) + np.finfo(np.float32).tiny
    error = np.abs(got - x @ y)
    assert (error <= bound).all(), (error / bound).max()


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.costly
@pytest.mark.parametrize(("m", "k", "n"), [(64, 64, 64), (70, 129, 65), (65, 100, 200)])
@pytest.mark.parametrize("batch", [(), (3,), (2, 2)], ids=str)
def test_errors_are_those_of_f32(m: int, k: int, n: int, batch: tuple[int, ...]) -> None:
    x, y = numbers(*batch, m, k), numbers(*batch, k, n, seed=1)
    got = product(x, y)
    check(x, y, got)
    exact = x.astype(np.float64) @ y.astype(np.float64)
    assert np.sqrt(np.mean((got - exact) ** 2)) < 2**-21 * np.sqrt(np.mean(exact**2))


@pytest.mark.costly
@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("constants", [(), (1,)], ids=str)
def test_operands_may_be_transposed_and_constant(trans_a: int, trans_b: int, constants: tuple[int, ...]) -> None:
    x, y, bias = numbers(72, 99), numbers(99, 66, seed=1), numbers(66, seed=2)
    given = x.T.copy() if trans_a else x, y.T.copy() if trans_b else y
    got = product(*given, "Gemm", bias, transA=trans_a, transB=trans_b, constants=constants)
    np.testing.assert_allclose(got, x.astype(np.float64) @ y + bias, rtol=1e-4, atol=1e-4)
    got = product(*given, "Gemm", np.zeros_like(bias), transA=trans_a, transB=trans_b, constants=constants)
    check(x, y, got)


@pytest.mark.parametrize(
    "exponent", [(-37, 37), (30, -36), (-20, -20), (18, 19), (37, -38), (-44, 30), (-44, -44)], ids=str
)
def test_rows_and_columns_have_scales_of_their_own(exponent: tuple[int, int]) -> None:
    x, y = numbers(64, 64), numbers(64, 64, seed=1)
    x, y = (np.float64(10) ** e * it for it, e in zip((x, y), exponent, strict=True))
    x[::2] *= 1e-3
    x[5], y[:, 7] = 0, 0
    # Adapters may flush subnormal numbers.
    x, y = (np.where(np.abs(it) < np.finfo(np.float32).tiny, 0, it).astype(np.float32) for it in (x, y))
    got, want = product(x, y), x.astype(np.float64) @ y
    large = np.abs(want) > 1.001 * float(np.finfo(np.float32).max)
    within = np.abs(want) < np.finfo(np.float32).max / 64
    np.testing.assert_array_equal(got[large], np.where(want > 0, np.inf, -np.inf)[large])
    check(x, y, np.where(within, got, want))


def test_one_scale_serves_a_row_of_many_magnitudes() -> None:
    x = numbers(64, 96) * np.float32(10) ** np.linspace(-30, 4, 96, dtype=np.float32)
    y = numbers(96, 64, seed=1) * np.float32(10) ** np.linspace(4, -30, 96, dtype=np.float32)[:, None]
    check(x, y, product(x, y))


def test_infinity_and_nan_are_what_they_are_in_f32() -> None:
    x, y = numbers(64, 64), numbers(64, 64, seed=1)
    x[1, 3], x[2, 5], x[3, 7], x[3, 8] = np.inf, -np.inf, np.inf, -np.inf
    x[4, 9] = np.nan
    y[3, 11], y[20, 12], y[21, 13] = 0, np.inf, np.nan
    with np.errstate(all="ignore"):
        want = x @ y
    got = product(x, y)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])
    finite = np.isfinite(want)
    np.testing.assert_allclose(got[finite], want[finite], rtol=1e-3, atol=1e-4)


def test_what_follows_is_fused() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "c"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    w, c = numbers(80, 96, seed=1), numbers(96, seed=2)
    program = compiled(support.make_model(nodes, {"x": (np.float32, [2, 64, 80])}, {"w": w, "c": c}))
    assert is_split(program)
    assert support.labels(program)[-1].startswith("matmul") and "Relu" in program.dispatches[-1].operators
    x = numbers(2, 64, 80)
    np.testing.assert_allclose(
        support.Runner(program)(x)[0], np.maximum(x.astype(np.float64) @ w + c, 0), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    ("x", "y", "how"),
    [
        ((63, 64), (64, 64), {}),
        ((64, 63), (63, 64), {}),
        ((64, 64), (64, 63), {}),
        ((64, 64), (64, 64), {"symbolic": True}),
    ],
    ids=str,
)
def test_small_products_and_unknown_sizes_stay_f32(x: tuple[int, ...], y: tuple[int, ...], how: dict[str, Any]) -> None:
    assert not is_split(compiled(model("MatMul", [numbers(*x), numbers(*y)], **how)))


def test_other_types_and_other_adapters_stay_as_they_are() -> None:
    x = numbers(64, 64)
    built = model("MatMul", [x, x])
    assert not is_split(support.compile_model(built))  # without the option
    with targets.using(targets.Way("gpu")):
        assert support.target().matrices == ()
        assert not is_split(compiled(built))
    windows = model("Conv", [numbers(1, 64, 12, 12), numbers(64, 64, 3, 3)])
    assert not is_split(compiled(windows))


def test_the_option_reaches_the_compiler() -> None:
    assert settings_from(CompileSettings, parse({"enableF16Products": "1"}).values).f16_products
    assert not settings_from(CompileSettings, parse({}).values).f16_products


def test_sessions_take_the_option_with_and_without_units() -> None:
    x, y = numbers(64, 64), numbers(64, 64, seed=1)
    built = model("MatMul", [x, y]).SerializeToString()
    feeds = {"x0": x, "x1": y}
    plain, asked = (webgpu_ep.session(built, enableF16Products=it).run(None, feeds)[0] for it in (0, 1))
    check(x, y, plain)
    check(x, y, asked)
