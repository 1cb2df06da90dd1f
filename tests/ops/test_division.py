"""Results that a device's division decides: they hold where it is as inexact as WGSL allows.

WGSL lets a division be off by 2.5 units of the last place, and by anything where the divisor's reciprocal is below the
normal numbers; products may be fused with sums. Software adapters divide exactly, so the kernels get a division here that
multiplies with a reciprocal, flushes it to zero and is off by two units.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import pytest

from onnxruntime_ep_wgpu.program.program import Program
from tests import support

from . import compare

EXACT = "return (a * s) / (b * s);"
SLOPPY = """
  let reciprocal = 1f / (b * s);
  let flushed = select(reciprocal, 0f, abs(reciprocal) < 1.1754944e-38f);
  let q = (a * s) * flushed;
  return bitcast<f32>(bitcast<u32>(q) + select(2u, 0u, q == 0f || isnan_f32(q) || isinf_f32(q)));
"""


def with_sloppy_division(program: Program) -> Program:
    used = 0

    def change(text: str) -> str:
        nonlocal used
        used += EXACT in text
        names = "" if "fn isinf_f32" in text else "fn isinf_f32(a: f32) -> bool { return abs(a) > 3.4028234e+38f; }\n"
        names += (
            ""
            if "fn isnan_f32" in text
            else "fn isnan_f32(a: f32) -> bool { return (bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u; }\n"
        )
        return (names + text).replace(EXACT, SLOPPY) if EXACT in text else text

    kernels = tuple(dataclasses.replace(k, wgsl=tuple(change(t) for t in k.wgsl)) for k in program.kernels)
    assert used, "no kernel divides"
    return dataclasses.replace(program, kernels=kernels)


def run(built: onnx.ModelProto, *arrays: np.ndarray) -> list[np.ndarray]:
    return support.Runner(with_sloppy_division(support.compile_model(built)))(*arrays)


def check(op: str, *arrays: Any, **how: Any) -> None:
    given = [np.asarray(a) for a in arrays]
    built = compare.model(op, given, **how)
    declared = [value.name for value in built.graph.input]
    feeds = {f"x{k}": a for k, a in enumerate(given) if f"x{k}" in declared}
    for got, want in zip(run(built, *feeds.values()), compare.expected(built, feeds), strict=True):
        np.testing.assert_array_equal(got, want)


def test_no_template_divides_behind_the_functions_back() -> None:
    """The kernel text that this file replaces is the one there is."""
    from onnxruntime_ep_wgpu.compiler.templates import files

    assert files.template("prelude/float").count(EXACT) == 1


def test_quotients_by_numbers_without_a_normal_reciprocal() -> None:
    x = np.float32([3e38, -3e38, 1.0, 3e38, 0.0, 1e-30, np.inf, np.nan])
    y = np.float32([3e38, 1.5e38, 3.3e38, 2e38, 3e38, -3e38, 3e38, 3e38])
    built = compare.model("Div", [x, y])
    np.testing.assert_allclose(run(built, x, y)[0], x / y, rtol=1e-6, atol=1e-38)
    tiny = np.float32([1e-39, -2e-40])
    built = compare.model("Reciprocal", [tiny])
    np.testing.assert_allclose(run(built, tiny)[0], 1 / tiny, rtol=1e-6)


@pytest.mark.parametrize("scale", [0.1, 0.0078125, 3.7e-3, 1 / 3])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16])
def test_quantised_ties_go_to_even(scale: float, dtype: Any) -> None:
    ties = np.arange(-700, 700).astype(np.float32) * np.float32(scale) / np.float32(2)
    check("QuantizeLinear", ties, np.float32(scale), np.asarray(3, dtype), outputs=[dtype], opset=21)


@pytest.mark.costly
@pytest.mark.parametrize("mode", ["half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric"])
@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest_neighbours_at_ties(mode: str, nearest: str) -> None:
    x = np.arange(2 * 12, dtype=np.float32).reshape(1, 1, 2, 12)
    for sizes in ([1, 1, 4, 8], [1, 1, 3, 18], [1, 1, 5, 7]):
        check(
            "Resize",
            x,
            np.zeros(0, np.float32),
            np.zeros(0, np.float32),
            np.int64(sizes),
            constants=(1, 2, 3),
            mode="nearest",
            nearest_mode=nearest,
            coordinate_transformation_mode=mode,
            opset=19,
        )


def test_remainders_of_any_numbers_are_exact() -> None:
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 0x7F800000, 4000).astype(np.uint32)
    bits[:500] %= 0x1000000  # around the least normal number
    x, y = bits[:2000].view(np.float32), bits[2000:].view(np.float32)
    x = np.where(rng.random(2000) < 0.5, -x, x)
    built = compare.model("Mod", [x, y], fmod=1)
    got = support.run_model(built, x, y)[0]
    np.testing.assert_array_equal(got.view(np.uint32), np.fmod(x, y).view(np.uint32))
