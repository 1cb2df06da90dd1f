"""Resize: every coordinate transformation, rounding and interpolation, by scales and by sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests.support import compile_model, make_model, run_model

from .compare import check, check_model, expected, model, random

TRANSFORMS = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
FACTORS = [(2.0, 3.0), (0.6, 0.5), (1.3, 0.8), (1.0, 2.5)]


def _scales(*factors: float) -> np.ndarray:
    return np.array((1, 1, *factors), np.float32)


def _resize(
    x: np.ndarray, scales: np.ndarray | None = None, sizes: list[int] | None = None, roi: Any = None, **how: Any
) -> None:
    given = [
        x,
        None if roi is None else np.array(roi, np.float32),
        scales,
        None if sizes is None else np.array(sizes, np.int64),
    ]
    while given[-1] is None:
        given.pop()
    check("Resize", *given, constants=[1, 2, 3], rtol=1e-4, atol=1e-5, **how)


@pytest.mark.costly
@pytest.mark.parametrize("transform", [*TRANSFORMS, "tf_half_pixel_for_nn"])
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest(transform: str, rounding: str) -> None:
    old = {"opset": 11, "roi": []} if transform == "tf_half_pixel_for_nn" else {}
    for factors in FACTORS:
        _resize(
            random(2, 3, 7, 5),
            _scales(*factors),
            coordinate_transformation_mode=transform,
            nearest_mode=rounding,
            **old,
        )


@pytest.mark.costly
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("symbolic", [False, True])
def test_linear(transform: str, symbolic: bool) -> None:
    for factors in FACTORS:
        _resize(
            random(2, 3, 7, 5),
            _scales(*factors),
            mode="linear",
            coordinate_transformation_mode=transform,
            symbolic=symbolic,
        )


@pytest.mark.costly
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("exclude_outside", [0, 1])
def test_cubic(transform: str, exclude_outside: int) -> None:
    for factors in FACTORS:
        how = {"coordinate_transformation_mode": transform, "cubic_coeff_a": -0.5 - 0.25 * exclude_outside}
        _resize(random(2, 3, 7, 5), _scales(*factors), mode="cubic", exclude_outside=exclude_outside, **how)


@pytest.mark.costly
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_sizes(mode: str, transform: str) -> None:
    for height, width in ((14, 10), (3, 9), (1, 1), (7, 5)):
        _resize(random(2, 3, 7, 5), sizes=[2, 3, height, width], mode=mode, coordinate_transformation_mode=transform)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_some_axes_only(mode: str) -> None:
    _resize(random(2, 3, 7, 5), np.array([2.0, 1.5], np.float32), axes=[2, 3], mode=mode)
    _resize(random(2, 3, 7, 5), sizes=[4, 11], axes=[2, 3], mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_region_of_interest(mode: str) -> None:
    roi = [0, 0, 0.2, 0.1, 1, 1, 0.9, 1.4]
    _resize(
        random(1, 2, 7, 5),
        sizes=[1, 2, 6, 8],
        roi=roi,
        mode=mode,
        coordinate_transformation_mode="tf_crop_and_resize",
        extrapolation_value=9.5,
    )


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_an_axis_outside_the_region_keeps_its_elements_however_long_it_is(mode: str, symbolic: bool) -> None:
    """With 70,000 pictures positions in f32 would lie between two of them."""
    _resize(
        random(70_000, 1, 2, 3),
        sizes=[70_000, 1, 2, 2],
        roi=[0, 0, 0, 0.2, 1, 1, 1, 0.7],
        mode=mode,
        symbolic=symbolic,
        coordinate_transformation_mode="tf_crop_and_resize",
    )


# What f32 makes of these products is not their whole part: 225 times 0.52, or 69 times 7/23.
@pytest.mark.parametrize(
    "extent, scale", [(225, 0.52), (450, 0.52), (69, 7 / 23), (71, 7 / 23), (323, 3 / 19), (58, 15 / 29)]
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_extents_are_scaled_as_f32_rounds(extent: int, scale: float, symbolic: bool) -> None:
    x = random(1, 1, extent, 2)
    _resize(x, _scales(scale, 1), symbolic=symbolic, mode="linear")
    check(
        "Resize", x, _scales(scale, 1), constants=[1], opset=10, symbolic=symbolic, mode="linear", rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_scales_that_are_none_are_refused(scale: float) -> None:
    with pytest.raises(UnsupportedError, match="must be positive and finite"):
        compile_model(
            make_model(
                [helper.make_node("Resize", ["x", "", "s"], ["y"])],
                {"x": (np.float32, [1, 1, "h", "w"])},
                {"s": _scales(2, scale)},
            )
        )


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_aspect_ratio(policy: str) -> None:
    _resize(random(1, 1, 6, 4), sizes=[12, 5], axes=[2, 3], keep_aspect_ratio_policy=policy)


@pytest.mark.costly
@pytest.mark.parametrize("shape", [(2, 3, 9), (1, 2, 4, 5, 6)])
def test_other_ranks(shape: tuple[int, ...]) -> None:
    for mode in ("nearest", "linear"):
        scales = np.array((1, 1, *(2.0 for _ in shape[2:])), np.float32)
        _resize(random(*shape), scales, mode=mode)


@pytest.mark.costly
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
def test_integers(dtype: type) -> None:
    _resize(random(1, 2, 5, 6, dtype=dtype), _scales(2, 2))
    if dtype is not np.int8:
        x = random(1, 2, 5, 6, dtype=dtype) * (1 if dtype is np.uint8 else 1000)
        _resize(x, _scales(2, 2), mode="linear", coordinate_transformation_mode="asymmetric")


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_cubic_values_beyond_their_type_wrap_before_the_next_node(dtype: type) -> None:
    """A node that shares the kernel reads them before they are stored."""
    limits = np.iinfo(dtype)
    x = np.random.default_rng(1).integers(limits.min, limits.max, (1, 2, 5, 6), endpoint=True).astype(dtype)
    scales = np.array([1, 1, 2, 2], np.float32)
    stored = run_model(model("Resize", [x, None, scales], mode="cubic", constants=(2,)), x)[0]
    built = model("Resize", [x, None, scales], mode="cubic", constants=(2,))
    built.graph.node.append(helper.make_node("Cast", ["y0"], ["z"], to=1))
    del built.graph.output[:]
    built.graph.output.append(helper.make_tensor_value_info("z", 1, None))
    np.testing.assert_array_equal(run_model(built, x)[0], stored.astype(np.float32))


def test_float16() -> None:
    _resize(random(1, 2, 5, 6, dtype=np.float16), _scales(2, 2), mode="linear")


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample_and_the_first_resize(mode: str) -> None:
    x = random(1, 2, 5, 6)
    check("Upsample", x, opset=7, scales=[1.0, 1.0, 2.0, 3.0], mode=mode)
    check("Upsample", x, _scales(2, 3), constants=[1], opset=9, mode=mode)
    check("Resize", x, _scales(2, 3), constants=[1], opset=10, mode=mode)
    check("Resize", x, _scales(0.6, 0.5), constants=[1], opset=10, mode=mode)


# ---- antialiasing


@pytest.mark.costly
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude_outside", [0, 1])
def test_antialiased(transform: str, mode: str, exclude_outside: int) -> None:
    how = {
        "mode": mode,
        "coordinate_transformation_mode": transform,
        "exclude_outside": exclude_outside,
        "antialias": 1,
    }
    for factors in ((0.5, 0.3), (0.6, 1.7), (0.13, 1.0)):
        _resize(random(2, 3, 9, 13), _scales(*factors), **how)
    _resize(random(2, 3, 9, 13), sizes=[2, 3, 1, 5], **how)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiased_images_of_sizes_that_runs_decide(mode: str) -> None:
    _resize(random(2, 3, 9, 13), _scales(0.4, 0.7), mode=mode, antialias=1, symbolic=True)
    _resize(random(2, 3, 9, 13), sizes=[4, 5], axes=[2, 3], mode=mode, antialias=1, symbolic=True)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiased_bytes_are_those_of_the_cpu_provider_bit_for_bit(mode: str) -> None:
    x = np.random.default_rng(0).integers(0, 256, (1, 2, 9, 14)).astype(np.uint8)
    for factors in ((0.5, 0.5), (0.6, 0.3), (1.7, 0.25)):
        _resize(x, _scales(*factors), mode=mode, antialias=1)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiased_int32_is_rounded_after_each_axis(mode: str) -> None:
    """A sum of f32 that is near a half may be rounded to either side."""
    x = np.random.default_rng(0).integers(-9999, 9999, (1, 2, 9, 14)).astype(np.int32)
    for factors in ((0.5, 0.5), (0.6, 0.3), (1.7, 0.25)):
        built = model("Resize", [x, None, _scales(*factors)], constants=[2], mode=mode, antialias=1)
        (found,), (wanted,) = run_model(built, x), expected(built, {"x0": x})
        assert found.dtype == np.int32
        assert np.abs(found - wanted).max() <= 1
        assert np.mean(found != wanted) < 0.05


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiased_int8(mode: str) -> None:
    """The CPU provider has bytes without sign in mind: below 0 it gives 0. Those here are those of uint8, 128 below."""
    x = np.random.default_rng(0).integers(-128, 128, (1, 2, 9, 14)).astype(np.int8)
    above = (x.astype(np.int16) + 128).astype(np.uint8)
    for factors in ((0.5, 0.5), (0.6, 0.3), (1.7, 0.25)):
        built = [
            model("Resize", [it, None, _scales(*factors)], constants=[2], mode=mode, antialias=1) for it in (x, above)
        ]
        found, wanted = run_model(built[0], x)[0], expected(built[1], {"x0": above})[0]
        assert found.dtype == np.int8
        np.testing.assert_array_equal(found.astype(np.int16), wanted.astype(np.int16) - 128)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiased_halves_are_rounded_once(mode: str) -> None:
    x = random(1, 2, 9, 13, dtype=np.float16)
    _resize(x, _scales(0.4, 0.3), mode=mode, antialias=1)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiased_special_values(mode: str) -> None:
    x = random(1, 3, 9, 13)
    x[0, 0, 4, 5], x[0, 1, 2, 2], x[0, 2, 8, 12] = np.nan, np.inf, -3e38
    _resize(x, _scales(0.45, 0.35), mode=mode, antialias=1)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiased_region_of_interest(mode: str) -> None:
    how = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "antialias": 1}
    for beyond in (9.5, np.inf):
        roi = [0, 0, 0.2, 0.1, 1, 1, 0.9, 1.4]
        _resize(random(1, 2, 9, 13), sizes=[1, 2, 4, 5], roi=roi, extrapolation_value=beyond, **how)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_antialiased_aspect_ratio(mode: str, policy: str) -> None:
    _resize(random(1, 2, 9, 13), sizes=[5, 4], axes=[3, 2], keep_aspect_ratio_policy=policy, mode=mode, antialias=1)


@pytest.mark.costly
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("shape", [(9, 13), (2, 9, 13, 3), (1, 2, 6, 7, 9), (2, 3, 9)])
def test_antialiased_images_of_other_ranks(mode: str, shape: tuple[int, ...]) -> None:
    """The CPU provider lacks some of these: the reference has them, with the rounding errors of f64."""
    x = random(*shape)
    scales = np.array([1 if extent <= 3 else 0.4 + 0.03 * axis for axis, extent in enumerate(shape)], np.float32)
    built = model("Resize", [x, None, scales], constants=[2], mode=mode, antialias=1)
    check_model(built, [x], want=ReferenceEvaluator(built).run(None, {"x0": x}), rtol=1e-4, atol=1e-5)


def test_empty_antialiased_images() -> None:
    _resize(random(0, 3, 9, 13), _scales(0.4, 0.3), mode="linear", antialias=1)


def test_antialiasing_of_the_nearest_element_is_refused() -> None:
    built = model("Resize", [random(1, 2, 5, 6), None, _scales(0.5, 0.5)], constants=[2], mode="nearest", antialias=1)
    with pytest.raises(UnsupportedError, match="antialias is supported"):
        compile_model(built)
