"""Images sampled at computed places: every mode and padding, places far outside, regions of interest."""

from __future__ import annotations

import numpy as np
import pytest

from .compare import check, random

REGIONS = np.array([[0, 0, 5, 5], [2.5, 1, 9, 7], [-3, -2, 20, 20], [4, 4, 4, 4], [6, 6, 2, 3]], np.float32)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
def test_grid_sample(mode: str, padding: str, corners: int) -> None:
    grid = np.random.default_rng(0).uniform(-1.6, 1.6, (2, 5, 6, 2)).astype(np.float32)
    how = {"mode": mode, "padding_mode": padding, "align_corners": corners, "rtol": 1e-4, "atol": 1e-5}
    check("GridSample", random(2, 3, 4, 7), grid, **how)
    check("GridSample", random(2, 3, 4, 7), grid, symbolic=True, **how)
    if mode != "cubic":
        volumes = np.random.default_rng(1).uniform(-1.6, 1.6, (2, 5, 6, 2, 3)).astype(np.float32)
        check("GridSample", random(2, 3, 4, 7, 3), volumes, **how)


def test_grid_sample_version_16() -> None:
    grid = np.random.default_rng(0).uniform(-1, 1, (1, 3, 3, 2)).astype(np.float32)
    for mode in ("bilinear", "bicubic", "nearest"):
        check("GridSample", random(1, 2, 4, 5), grid, mode=mode, opset=16, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 5, 4), (2, 3, 1, 4), (2, 3, 5, 4, 3)])
def test_affine_grid(corners: int, size: tuple[int, ...]) -> None:
    rank = len(size) - 2
    check("AffineGrid", random(2, rank, rank + 1), np.array(size), constants=[1], align_corners=corners)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("places", ["half_pixel", "output_half_pixel"])
def test_roi_align(mode: str, ratio: int, places: str) -> None:
    check("RoiAlign", random(2, 3, 8, 9), REGIONS, np.array([0, 1, 1, 0, 1]), mode=mode, sampling_ratio=ratio, output_height=3,
          output_width=2, spatial_scale=0.7, coordinate_transformation_mode=places, opset=16, rtol=1e-4, atol=1e-5)  # fmt: skip


def test_roi_align_version_10_and_of_no_regions() -> None:
    check(
        "RoiAlign",
        random(2, 3, 8, 9),
        REGIONS,
        np.array([0, 1, 1, 0, 1]),
        output_height=3,
        opset=10,
        rtol=1e-4,
        atol=1e-5,
    )
    empty = np.zeros((0, 4), np.float32)
    check("RoiAlign", random(2, 3, 8, 9), empty, np.zeros(0, np.int64), opset=16)
