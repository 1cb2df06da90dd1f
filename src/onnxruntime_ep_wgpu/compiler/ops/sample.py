"""Sampling images at computed places: GridSample, AffineGrid, RoiAlign. Places outside never leave the tensor."""

from __future__ import annotations

from ...errors import UnsupportedError
from ..builder import Builder, Operand
from ..dims import equal
from .index import INDICES, Allowed, index32, picked
from .registry import FLOATS, INTEGERS, op
from .window import body

# WGSL for the place p in elements of an axis of n, from g in -1 to 1.
_PLACES = {0: "(({g} + 1f) * f32({n}) - 1f) * 0.5f", 1: "({g} + 1f) * 0.5f * (f32({n}) - 1f)"}


@op("GridSample", types=FLOATS)
def grid_sample(
    b: Builder, x: Operand, grid: Operand, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Operand:
    """y[image, channel, at...] interpolates x[image, channel] at grid[image, at...], whose last axis is x first."""
    rank = x.rank - 2
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    if mode not in ("linear", "nearest", "cubic") or padding_mode not in ("zeros", "border", "reflection"):
        raise UnsupportedError(f"mode={mode!r} with padding_mode={padding_mode!r}")
    axes = range(rank)
    at = ", ".join(f"at{k}" for k in axes)
    lines = ["var total = 0f;"]
    for k in axes:
        place = _PLACES[align_corners].format(g=f"grid_at(image, {at}, {rank - 1 - k}u)", n=f"$in{k}")
        lines.append(f"let p{k} = clamp({place}, -1e9f, 1e9f);")
    for k in axes:
        if mode == "nearest":
            lines += [f"{{ let i{k} = i32(round(p{k})); let w{k} = 1f;"]
            continue
        first, taps = (0, 2) if mode == "linear" else (-1, 4)
        lines += [
            f"for (var t{k} = 0; t{k} < {taps}; t{k}++) {{",
            f"let i{k} = i32(floor(p{k})) + t{k} + {first};",
            f"let d{k} = abs(p{k} - floor(p{k}) - f32(t{k} + {first}));",
        ]
        near = f"((1.25f * d{k} - 2.25f) * d{k} * d{k} + 1f)"
        far = f"(((-0.75f * d{k} + 3.75f) * d{k} - 6f) * d{k} + 3f)"
        lines.append(f"let w{k} = {f'1f - d{k}' if mode == 'linear' else f'select({far}, {near}, d{k} <= 1f)'};")
    lines += [_inside(k, padding_mode, align_corners) for k in axes]
    element = f"x_at(image, channel, {', '.join(f'u32(s{k})' for k in axes)})"
    sample = f"total += {' * '.join(f'w{k}' for k in axes)} * {element};"
    if padding_mode == "zeros":
        sample = f"if ({' && '.join(f's{k} >= 0 && s{k} < i32($in{k})' for k in axes)}) {{ {sample} }}"
    lines += [sample, *["}"] * rank, "return total;"]
    shape = (*x.shape[:2], *grid.shape[1:-1])
    b.require(equal(x.shape[0], grid.shape[0]), "{} images and {} grids", x.shape[0], grid.shape[0])
    names = ("image", "channel", *(f"at{k}" for k in axes))
    return b.map(
        body(lines),
        x.dtype,
        shape,
        names,
        (1,) * x.rank,
        {"x": (x, (1,) * x.rank), "grid": (grid, (1,) * x.rank)},
        parameters={f"in{k}": x.shape[2 + k] for k in axes},
        cost=48,
        reuse=True,
    )


def _inside(k: int, padding: str, align_corners: int) -> str:
    """WGSL for `s<k>`, the element that stands for place i<k>; with zeros it may still lie outside."""
    if padding == "zeros":
        return f"let s{k} = i{k};"
    if padding == "border":
        return f"let s{k} = clamp(i{k}, 0, i32($in{k}) - 1);"
    mirrored = f"reflected(i{k}, i32($in{k}))" if align_corners else f"mirrored(i{k}, i32($in{k}))"
    return f"let s{k} = i32({mirrored});"


@op("AffineGrid", types=FLOATS, size=INTEGERS)
def affine_grid(b: Builder, theta: Operand, size: Operand, *, align_corners: int = 0) -> Operand:
    """Places of the elements of an image of `size` (N, C, spatial...) under the map theta (N, n, n + 1), x first."""
    extents = size.dims("the size of the grid")
    rank = len(extents) - 2
    lines = [f"var total = theta_at(image, c, {rank}u);"]
    for k in range(rank):
        at, n = f"f32(at{k})", f"f32($out{k})"
        place = (
            f"select(2f * {at} / ({n} - 1f) - 1f, 1f, $out{k} == 1u)"
            if align_corners
            else f"(2f * {at} + 1f) / {n} - 1f"
        )
        lines.append(f"total += theta_at(image, c, {rank - 1 - k}u) * ({place});")
    shape = (extents[0], *extents[2:], rank)
    return b.map(
        body([*lines, "return total;"]),
        theta.dtype,
        shape,
        ("image", *(f"at{k}" for k in range(rank)), "c"),
        (1,) * (rank + 2),
        {"theta": (theta, (1, 1, 1))},
        parameters={f"out{k}": extents[2 + k] for k in range(rank)},
        cost=8,
        reuse=True,
    )


@op("RoiAlign", types=FLOATS, images=INDICES)
def roi_align(
    b: Builder,
    x: Operand,
    rois: Operand,
    images: Operand,
    *,
    coordinate_transformation_mode: str = "output_half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Operand:
    """Each region of interest (x1, y1, x2, y2) as a grid of bins, each the mean or largest of places sampled in it.

    The largest is taken of the weighted neighbours of a place, not of their sum, as the operator's reference does.
    """
    half = coordinate_transformation_mode == "half_pixel"
    lines = [picked("images_at(roi)", "image", x.shape[0]), f"let shift = {'0.5f' if half else '0f'};"]
    for name, low, high, size in (("x", 0, 2, output_width), ("y", 1, 3, output_height)):
        lines += [
            f"let {name}0 = rois_at(roi, {low}u) * {float(spatial_scale)!r}f - shift;",
            f"let {name}1 = rois_at(roi, {high}u) * {float(spatial_scale)!r}f - shift;",
            f"let {name}s = {f'{name}1 - {name}0' if half else f'max({name}1 - {name}0, 1f)'};",
            f"let {name}b = {name}s / {size}f;",
            f"let {name}n = {f'{sampling_ratio}u' if sampling_ratio > 0 else f'u32(clamp(ceil({name}s / {size}f), 0f, 4096f))'};",
        ]
    largest = mode == "max"
    lines += [
        "var total = 0f;",
        "var first = true;",
        "for (var sy = 0u; sy < yn; sy++) { for (var sx = 0u; sx < xn; sx++) {",
        "var py = y0 + f32(row) * yb + (f32(sy) + 0.5f) * yb / f32(yn);",
        "var px = x0 + f32(column) * xb + (f32(sx) + 0.5f) * xb / f32(xn);",
        "let outside = py < -1f || py > f32($h) || px < -1f || px > f32($w);",
        "py = clamp(py, 0f, f32($h) - 1f); px = clamp(px, 0f, f32($w) - 1f);",
        "let r0 = u32(py); let c0 = u32(px); let r1 = min(r0 + 1u, $h - 1u); let c1 = min(c0 + 1u, $w - 1u);",
        "let fy = py - f32(r0); let fx = px - f32(c0);",
        "var a = (1f - fy) * (1f - fx) * x_at(image, channel, r0, c0);",
        "var b = (1f - fy) * fx * x_at(image, channel, r0, c1);",
        "var c = fy * (1f - fx) * x_at(image, channel, r1, c0);",
        "var d = fy * fx * x_at(image, channel, r1, c1);",
        "if (outside) { a = 0f; b = 0f; c = 0f; d = 0f; }",
        "let v = max(max(a, b), max(c, d)); total = select(max(total, v), v, first); first = false;"
        if largest
        else "total += a + b + c + d;",
        "} }",
        "return total;" if largest else "return total / f32(max(xn * yn, 1u));",
    ]
    shape = (rois.shape[0], x.shape[1], output_height, output_width)
    each = (1, 1, 1, 1)
    operands = {
        "x": (x, each),
        "rois": (rois, (1, 1)),
        "images": (index32(b, images, Allowed(0, x.shape[0] - 1, f"the batch of {x}")), (1,)),
    }
    return b.map(
        body(lines),
        x.dtype,
        shape,
        ("roi", "channel", "row", "column"),
        each,
        operands,
        parameters={"extent_image": x.shape[0], "h": x.shape[2], "w": x.shape[3]},
        cost=64,
        reuse=True,
    )
