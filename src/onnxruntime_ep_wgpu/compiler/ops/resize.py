"""Resize and Upsample: each output element interpolates the input elements around the place it comes from.

Axes that keep their size are passed through; the others have a coordinate transformation (output position to input
position) and taps with weights. Positions are calculated in f32, as ONNX Runtime does.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...errors import UnsupportedError
from ...program.dtypes import DType
from ..builder import Builder, Operand
from ..dims import Dim, floordiv
from .registry import ANY, FLOATS, op
from .shape import axis_of
from .window import body

INTERPOLATED = FLOATS | {DType.UINT8, DType.INT8, DType.INT32}


@dataclass(frozen=True)
class _Scaled:
    """One resized axis. `scale` is output per input, None when it is the ratio of the extents."""

    axis: int
    inputs: Dim
    outputs: Dim
    scale: float | None
    start: float = 0.0  # the region of interest, as parts of the extent
    end: float = 1.0


@op("Resize", since=11, types=ANY)
def resize(
    b: Builder,
    x: Operand,
    roi: Operand | None = None,
    scales: Operand | None = None,
    sizes: Operand | None = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Operand:
    """Scales or sizes, for all axes or for `axes`; scales are constants, sizes may be expressions of the input shapes."""
    if antialias:
        raise UnsupportedError("antialiasing")
    where = [axis_of(a, x.rank) for a in axes] if axes else list(range(x.rank))
    region = (
        roi.floats("the region of interest")
        if roi is not None and coordinate_transformation_mode == "tf_crop_and_resize"
        else []
    )
    if sizes is not None and sizes.size != 0:
        extents = sizes.dims("the target size")
        scaled = _by_size(x, where, extents, keep_aspect_ratio_policy)
    elif scales is not None and scales.size != 0:
        scaled = _by_scale(x, where, scales.floats("the scale"))
    else:
        raise UnsupportedError("neither scales nor sizes are given")
    if region:
        half = len(region) // 2
        scaled = [
            _Scaled(s.axis, s.inputs, s.outputs, s.scale, region[k], region[half + k]) for k, s in enumerate(scaled)
        ]
    else:
        scaled = [s for s in scaled if s.outputs != s.inputs or s.scale not in (None, 1.0)]
    transform = _Transform(coordinate_transformation_mode, nearest_mode, extrapolation_value)
    return _resized(b, x, scaled, mode, transform, cubic_coeff_a, bool(exclude_outside))


@op("Resize", types=ANY)
def resize_10(b: Builder, x: Operand, scales: Operand, *, mode: str = "nearest") -> Operand:
    """Version 10: positions are multiplied; nearest rounds down when it enlarges and up when it shrinks."""
    return _upsampled(b, x, scales.floats("the scale"), mode)


@op("Upsample", types=ANY)
def upsample(
    b: Builder,
    x: Operand,
    scales_input: Operand | None = None,
    *,
    scales: list[float] | None = None,
    mode: str = "nearest",
) -> Operand:
    factors = scales_input.floats("the scale") if scales_input is not None else list(scales or [])
    return _upsampled(b, x, factors, mode)


def _upsampled(b: Builder, x: Operand, factors: list[float], mode: str) -> Operand:
    scaled = [s for s in _by_scale(x, list(range(x.rank)), factors) if s.outputs != s.inputs or s.scale != 1.0]
    return _resized(b, x, scaled, mode, _Transform("asymmetric", "simple", 0.0), -0.75, False)


def _by_scale(x: Operand, where: list[int], scales: list[float]) -> list[_Scaled]:
    if len(scales) != len(where):
        raise UnsupportedError(f"{len(scales)} scales for {len(where)} axes")
    return [_Scaled(a, x.shape[a], _scaled_extent(x.shape[a], s), s) for a, s in zip(where, scales, strict=True)]


def _scaled_extent(extent: Dim, scale: float) -> Dim:
    """The extent times the scale, rounded down after the product is rounded to f32."""
    if isinstance(extent, int):
        return int(np.float32(extent) * np.float32(scale))
    exact = Fraction(scale).limit_denominator(4096)
    return floordiv(extent * exact.numerator, exact.denominator)


def _by_size(x: Operand, where: list[int], extents: list[Dim], policy: str) -> list[_Scaled]:
    if len(extents) != len(where):
        raise UnsupportedError(f"{len(extents)} sizes for {len(where)} axes")
    if policy == "stretch":
        return [_Scaled(a, x.shape[a], e, None) for a, e in zip(where, extents, strict=True)]
    ratios = []
    for a, e in zip(where, extents, strict=True):
        have = x.shape[a]
        if not isinstance(have, int) or not isinstance(e, int) or not have:
            raise UnsupportedError("keeping the aspect ratio of an extent that depends on the input")
        ratios.append(e / have)
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [_Scaled(a, x.shape[a], int(x.shape[a] * scale + 0.5), scale) for a in where]  # type: ignore[operator]


@dataclass(frozen=True)
class _Transform:
    mode: str
    nearest: str
    extrapolation: float

    def lines(self, s: _Scaled, k: int) -> list[str]:
        """WGSL statements for `place<k>`, the f32 input position of output position `o<k>`."""
        scale = f"quotient_f32(f32($out{k}), f32($in{k}))" if s.scale is None else f"{float(np.float32(s.scale))!r}f"
        o = f"f32(o{k})"
        half = f"quotient_f32({o} + 0.5f, scale{k}) - 0.5f"
        last = f"(f32($in{k}) - 1f)"
        texts = {
            "half_pixel": half,
            "pytorch_half_pixel": f"select(0f, {half}, $out{k} > 1u)",
            "asymmetric": f"quotient_f32({o}, scale{k})",
            "align_corners": f"select(quotient_f32({o} * {last}, f32($out{k}) - 1f), 0f, $out{k} == 1u)",
            "tf_half_pixel_for_nn": f"quotient_f32({o} + 0.5f, scale{k})",
            "half_pixel_symmetric": f"0.5f * f32($in{k}) * (1f - quotient_f32(f32($out{k}), scale{k} * f32($in{k}))) + {half}",
            "tf_crop_and_resize": f"select({(s.start + s.end) / 2!r}f * {last}, {s.start!r}f * {last} + {o} * {s.end - s.start!r}f"
            f" * {last} / (f32($out{k}) - 1f), $out{k} > 1u)",
        }
        if self.mode not in texts:
            raise UnsupportedError(f"coordinate_transformation_mode={self.mode!r}")
        text = texts[self.mode]
        return [*([f"let scale{k} = {scale};"] if "scale" in text else []), f"let place{k} = {text};"]

    def nearest_index(self, s: _Scaled, k: int) -> list[str]:
        """WGSL statements for `i<k>`, the u32 index of the nearest element."""
        if (
            self.mode == "asymmetric"
            and self.nearest in ("floor", "simple")
            and s.scale is not None
            and s.scale >= 1
            and s.scale == int(s.scale)
        ):
            return [f"let i{k} = o{k} / {int(s.scale)}u;"]
        # A place may be off by a few rounding errors (5e-7 seen on an H200); halves and wholes are where the choice depends on it.
        lines = [*self.lines(s, k), f"let twice{k} = round(2f * place{k});"]
        lines.append(
            f"let near{k} = select(place{k}, 0.5f * twice{k}, abs(2f * place{k} - twice{k}) <= 1e-6f * max(1f, abs(twice{k})));"
        )
        p = f"near{k}"
        simple = f"ceil({p})" if s.scale is not None and s.scale < 1 else f"floor({p})"
        rounded = {
            "round_prefer_floor": f"ceil({p} - 0.5f)",
            "round_prefer_ceil": f"floor({p} + 0.5f)",
            "floor": f"floor({p})",
            "ceil": f"ceil({p})",
            "simple": simple,
        }
        if self.nearest not in rounded:
            raise UnsupportedError(f"nearest_mode={self.nearest!r}")
        return [*lines, f"let i{k} = u32(clamp({rounded[self.nearest]}, 0f, f32($in{k}) - 1f));"]


def _resized(
    b: Builder,
    x: Operand,
    scaled: list[_Scaled],
    mode: str,
    transform: _Transform,
    coefficient: float,
    exclude_outside: bool,
) -> Operand:
    if not scaled:
        return x
    if mode != "nearest" and x.dtype not in INTERPOLATED:
        raise UnsupportedError(f"{mode} interpolation of {x.dtype.label}")
    shape = list(x.shape)
    for s in scaled:
        shape[s.axis] = s.outputs
    names, groups, indices = _coordinates(x.rank, [s.axis for s in scaled])
    lines: list[str] = []
    if mode == "nearest":
        for k, s in enumerate(scaled):
            lines += transform.nearest_index(s, k)
        element = f"x_at({', '.join(indices)})"
    else:
        for k, s in enumerate(scaled):
            lines += transform.lines(s, k)
        lines += _linear(scaled, indices) if mode == "linear" else _cubic(scaled, indices, coefficient, exclude_outside)
        element = "total" if x.dtype.is_float else "$out_t(total)"
    if transform.mode == "tf_crop_and_resize":
        outside = " || ".join(f"place{k} < 0f || place{k} > f32($in{k}) - 1f" for k in range(len(scaled)))
        lines.append(f"if ({outside}) {{ return $out_t({float(transform.extrapolation)!r}f); }}")
    elif mode not in ("nearest", "linear", "cubic"):
        raise UnsupportedError(f"mode={mode!r}")
    lines.append(f"return {element};")
    parameters: dict[str, Dim] = {f"in{k}": s.inputs for k, s in enumerate(scaled)} | {
        f"out{k}": s.outputs for k, s in enumerate(scaled)
    }
    taps = {"nearest": 1, "linear": 2, "cubic": 4}[mode] ** len(scaled)
    return b.map(
        body(lines),
        x.dtype,
        tuple(shape),
        names,
        groups,
        {"x": (x, groups)},
        parameters=parameters,
        cost=min(64, 4 + 4 * taps),
        reuse=taps > 1 or mode == "nearest",
    )


def _coordinates(rank: int, axes: list[int]) -> tuple[list[str], list[int], list[str]]:
    """Output coordinates (`o0`... for resized axes, whole runs of others), their groups, and the input's coordinates."""
    names: list[str] = []
    groups: list[int] = []
    indices: list[str] = []
    for axis in range(rank):
        if axis in axes:
            k = axes.index(axis)
            names.append(f"o{k}")
            indices.append(f"i{k}")
        elif axis and axis - 1 not in axes:
            groups[-1] += 1
            continue
        else:
            names.append(f"kept{axis}")
            indices.append(f"kept{axis}")
        groups.append(1)
    return names, groups, indices


def _linear(scaled: list[_Scaled], indices: list[str]) -> list[str]:
    """Two taps per axis; the first axis is outermost."""
    lines = []
    for k in range(len(scaled)):
        lines.append(f"let inside{k} = clamp(place{k}, 0f, f32($in{k}) - 1f);")
        lines.append(f"let low{k} = u32(inside{k});")
        lines.append(f"let high{k} = min(low{k} + 1u, $in{k} - 1u);")
        lines.append(f"let part{k} = inside{k} - f32(low{k});")

    def blend(k: int, chosen: dict[str, str]) -> str:
        if k == len(scaled):
            return f"f32(x_at({', '.join(chosen.get(i, i) for i in indices)}))"
        low, high = (blend(k + 1, {**chosen, f"i{k}": f"{side}{k}"}) for side in ("low", "high"))
        return f"({low} * (1f - part{k}) + {high} * part{k})"

    return [*lines, f"let total = {blend(0, {})};"]


def _cubic(scaled: list[_Scaled], indices: list[str], a: float, exclude_outside: bool) -> list[str]:
    """Four taps per axis by Keys' kernel; outside elements repeat the border or, excluded, have no weight."""
    lines = ["var total = 0f;", "var weight = 0f;"]
    for k in range(len(scaled)):
        lines.append(f"for (var t{k} = -1; t{k} < 3; t{k}++) {{")
        lines.append(f"let base{k} = floor(place{k});")
        lines.append(f"let d{k} = abs(place{k} - base{k} - f32(t{k}));")
        near = f"(({a + 2!r}f * d{k} - {a + 3!r}f) * d{k} * d{k} + 1f)"
        far = f"((({a!r}f * d{k} - {5 * a!r}f) * d{k} + {8 * a!r}f) * d{k} - {4 * a!r}f)"
        lines.append(f"let w{k} = select({far}, {near}, d{k} <= 1f){f' * w{k - 1}' if k else ''};")
        lines.append(f"let at{k} = i32(base{k}) + t{k};")
        if exclude_outside:
            lines.append(f"if (at{k} < 0 || at{k} >= i32($in{k})) {{ continue; }}")
        lines.append(f"let i{k} = u32(clamp(at{k}, 0, i32($in{k}) - 1));")
    lines.append(f"weight += w{len(scaled) - 1};")
    lines.append(f"total += w{len(scaled) - 1} * f32(x_at({', '.join(indices)}));")
    lines += ["}"] * len(scaled)
    return [*lines, "total /= weight;"] if exclude_outside else lines
