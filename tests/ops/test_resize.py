"""Resize: every coordinate transformation, rounding and interpolation, by scales and by sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests.support import compile_model, make_model

from .compare import check, random

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
    with pytest.raises(UnsupportedError, match="are not above 0"):
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


def test_float16() -> None:
    _resize(random(1, 2, 5, 6, dtype=np.float16), _scales(2, 2), mode="linear")


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample_and_the_first_resize(mode: str) -> None:
    x = random(1, 2, 5, 6)
    check("Upsample", x, opset=7, scales=[1.0, 1.0, 2.0, 3.0], mode=mode)
    check("Upsample", x, _scales(2, 3), constants=[1], opset=9, mode=mode)
    check("Resize", x, _scales(2, 3), constants=[1], opset=10, mode=mode)
    check("Resize", x, _scales(0.6, 0.5), constants=[1], opset=10, mode=mode)


def test_antialiasing_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="antialiasing"):
        _resize(random(1, 2, 5, 6), _scales(0.5, 0.5), mode="linear", antialias=1)
