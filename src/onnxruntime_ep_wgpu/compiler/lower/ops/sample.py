"""Sampling of images at computed positions: GridSample, AffineGrid, RoiAlign. Positions outside an image never access memory
outside the tensor."""

from __future__ import annotations

from typing import Annotated, Literal

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ...dims import Dim, equal
from ..builder import Builder, Operand
from .choices import Flag, Spelled
from .index import INDICES, Allowed, index32
from .reduction import reduce_axes
from .registry import FLOATS, INTEGERS, MICROSOFT, op

GridMode = Literal["linear", "nearest", "cubic"]
OldGridMode = Literal["bilinear", "nearest", "bicubic"]
Outside = Literal["zeros", "border", "reflection"]
RegionMode = Annotated[Literal["avg", "max"], Spelled(any_case=True)]
RegionPlaces = Literal["half_pixel", "output_half_pixel"]


@op("GridSample", types=FLOATS)
@op("GridSample", domain=MICROSOFT, types=FLOATS)
def grid_sample_16(
    b: Builder,
    x: Operand,
    grid: Operand,
    *,
    align_corners: Flag = 0,
    mode: OldGridMode = "bilinear",
    padding_mode: Outside = "zeros",
) -> Operand:
    """Versions 16 to 19 and com.microsoft's, with names of interpolations for images of two axes."""
    names: dict[OldGridMode, GridMode] = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
    y: Operand = grid_sample(b, x, grid, align_corners=align_corners, mode=names[mode], padding_mode=padding_mode)
    return y


@op("GridSample", since=20, types=FLOATS)
def grid_sample(
    b: Builder,
    x: Operand,
    grid: Operand,
    *,
    align_corners: Flag = 0,
    mode: GridMode = "linear",
    padding_mode: Outside = "zeros",
) -> Operand:
    """y[image, channel, at...] interpolates x[image, channel] at grid[image, at...]. The grid's last axis has x first."""
    rank = x.rank - 2
    if rank < 1 or grid.rank != x.rank:
        raise UnsupportedError(f"images {x} and a grid {grid} must have the same rank of at least 3")
    axes = range(rank)
    shape = (*x.shape[:2], *grid.shape[1:-1])
    b.require(equal(x.shape[0], grid.shape[0]), "{} images and {} grids", x.shape[0], grid.shape[0])
    names = ("image", "channel", *(f"at{k}" for k in axes))
    return b.map(
        "grid_sample",
        x.dtype,
        shape,
        names,
        (1,) * x.rank,
        {"x": (x, (1,) * x.rank), "grid": (grid, (1,) * x.rank)},
        parameters={f"in{k}": x.shape[2 + k] for k in axes},
        cost=48,
        reuse=True,
        RANK=rank,
        MODE=mode,
        PADDING=padding_mode,
        ALIGNED=bool(align_corners),
    )


@op("AffineGrid", types=FLOATS, size=INTEGERS, ranks={"theta": 3})
def affine_grid(b: Builder, theta: Operand, size: Operand, *, align_corners: Flag = 0) -> Operand:
    """Returns the positions of an image's elements, of `size` (N, C, spatial...), under the map theta (N, n, n + 1), x first."""
    extents = size.dims("the size of the grid")
    rank = len(extents) - 2
    fits = (equal(theta.shape[0], extents[0]), equal(theta.shape[1], rank), equal(theta.shape[2], rank + 1))
    for it in fits:
        b.require(it, f"theta {{}} is not a map of {rank} axes for each of {{}} images", theta, extents[0])
    shape = (extents[0], *extents[2:], rank)
    return b.map(
        "affine_grid",
        theta.dtype,
        shape,
        ("image", *(f"at{k}" for k in range(rank)), "c"),
        (1,) * (rank + 2),
        {"theta": (theta, (1, 1, 1))},
        parameters={f"out{k}": extents[2 + k] for k in range(rank)},
        cost=8,
        reuse=True,
        RANK=rank,
        ALIGNED=bool(align_corners),
    )


@op("RoiAlign", types=FLOATS, images=INDICES)
def roi_align(
    b: Builder,
    x: Operand,
    rois: Operand,
    images: Operand,
    *,
    coordinate_transformation_mode: RegionPlaces = "output_half_pixel",
    mode: RegionMode = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Operand:
    """Returns each region of interest (x1, y1, x2, y2) as a grid of bins. A bin is the mean or the maximum of positions
    sampled in it.

    The maximum is over the weighted neighbours of a position, not over their sums, as in the operator's reference.
    """
    each = (1, 1, 1, 1)
    ratio = max(sampling_ratio, 0)
    # The rows and columns of samples per bin. With one sample per pixel, samples are at least half a pixel apart. They are
    # closer than a pixel only if there are no more of them than pixels in the bin.
    rows, columns = (ratio, ratio) if ratio else (x.shape[2] + 6, x.shape[3] + 6)
    share: Dim = rows
    parts, longest = 1, b.target.longest_loop
    if longest is not None and isinstance(rows, int) and isinstance(columns, int):
        most = max(1, min(rows, longest // (columns + 1)))  # a row counts as one more iteration
        share, parts = most, -(-rows // most)
    shape = (rois.shape[0], x.shape[1], output_height, output_width, parts)
    operands = {
        "x": (x, each),
        "rois": (rois, (1, 1)),
        "images": (index32(b, images, Allowed(0, x.shape[0] - 1, f"the batch of {x}")), (1,)),
    }
    found = b.map(
        "roi_align",
        DType.FLOAT32,
        shape,
        ("roi", "channel", "row", "column", "part"),
        (*each, 1),
        operands,
        parameters={
            "extent_image": x.shape[0],
            "h": x.shape[2],
            "w": x.shape[3],
            "rows": rows,
            "columns": columns,
            "share": share,
        },
        cost=64,
        reuse=True,
        iterations=share * (columns + 1),
        HALF=coordinate_transformation_mode == "half_pixel",
        SCALE=float(spatial_scale),
        WIDTH=output_width,
        HEIGHT=output_height,
        RATIO=ratio,
        LARGEST=mode == "max",
    )
    if parts == 1:
        found = b.reshape(found, shape[:4])
    else:
        found = reduce_axes(b, "ReduceMax" if mode == "max" else "ReduceSum", found, [4], keepdims=False)
    return b.cast(found, x.dtype)
