"""Images sampled at computed places: every mode and padding, places far outside, regions of interest."""

from __future__ import annotations

import numpy as np
import pytest

from tests import targets
from tests.support import specialising

from .compare import check, model, random

REGIONS = np.array([[0, 0, 5, 5], [2.5, 1, 9, 7], [-3, -2, 20, 20], [4, 4, 4, 4], [6, 6, 2, 3]], np.float32)


@pytest.mark.costly
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


@pytest.mark.costly
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("places", ["half_pixel", "output_half_pixel"])
def test_regions_of_any_size_are_sampled_once_per_pixel(mode: str, places: str) -> None:
    """One bin has 90,000 samples in the image, and a million outside; lavapipe ends a loop after 65,535 without a word."""
    regions = [[0, 0, 300, 300], [3, 5, 290, 12], [-9000, -400, 9000, 700], [150.5, 1, 151, 299], [400, 400, 900, 900]]
    x = random(2, 2, 300, 310)
    x[:, :, 280:, 290:] += 9  # what is cut off would be missed
    arrays = [x, np.array(regions, np.float32), np.array([0, 1, 1, 0, 1])]
    how = {"mode": mode, "sampling_ratio": 0, "coordinate_transformation_mode": places, "opset": 16}
    with targets.using(targets.Way("software")):
        (fixed,) = check("RoiAlign", *arrays, rtol=1e-4, atol=1e-4, **how)
        (found,) = specialising(model("RoiAlign", arrays, symbolic=True, **how))(*arrays)  # known in a run
        np.testing.assert_array_equal(found, fixed)


def weights_of(start: float, size: float, samples: int, extent: int) -> np.ndarray:
    """The weight of each of `extent` pixels in a bin from `start` on, in float64, relative to its samples."""
    at = start + (np.arange(samples) + 0.5) * size / samples
    inside = (at >= -1) & (at <= extent)
    at = np.clip(at, 0, extent - 1)
    low = at.astype(int)
    out = np.zeros(extent)
    np.add.at(out, low, inside * (1 - (at - low)))
    np.add.at(out, np.minimum(low + 1, extent - 1), inside * (at - low))
    return out / samples


@pytest.mark.parametrize("target", targets.TARGETS)
def test_more_samples_than_an_invocation_has_loops(target: str) -> None:
    if targets.pretended(targets.Way(target)):
        return  # loops of GPUs have any length
    x, ratio = random(1, 2, 8, 9), 300
    boxes = np.maximum(REGIONS[:, 2:] - REGIONS[:, :2], 1)
    want = np.empty((len(REGIONS), 2, 1, 1))
    for k, ((left, top, *_), (width, height)) in enumerate(zip(REGIONS, boxes, strict=True)):
        rows, columns = weights_of(top, height, ratio, 8), weights_of(left, width, ratio, 9)
        want[k, :, 0, 0] = np.einsum("cij,i,j->c", x[0].astype(np.float64), rows, columns)
    with targets.using(targets.Way(target)):
        how = {"coordinate_transformation_mode": "output_half_pixel", "sampling_ratio": ratio, "opset": 16}
        check(
            "RoiAlign", x, REGIONS, np.zeros(5, np.int64), want=[want.astype(np.float32)], rtol=1e-4, atol=1e-5, **how
        )


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
