"""Resize and Upsample: each output element interpolates the input elements around its source position.

Axes that keep their size are passed through. The others have a coordinate transformation (output position to input position)
and taps with weights. With antialiasing there are as many taps as the factor that an axis shrinks by, and axes are resized
one after another. Positions are computed in f32, as in ONNX Runtime.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ....records import dataclass
from ...dims import Dim, floordiv, maximum
from ...dims import scaled as extent_scaled
from ...nodes.coordinates import named, separate_coordinates
from ..builder import Builder, Operand
from .choices import Flag
from .named_axes import axis_of
from .registry import ANY, FLOATS, KnownShape, op

USUAL = 64  # elements along an axis with an extent that a run decides
INTERPOLATED = FLOATS | {DType.UINT8, DType.INT8, DType.INT32}
Interpolation = Literal["nearest", "linear", "cubic"]
Transformation = Literal[
    "half_pixel",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "align_corners",
    "tf_crop_and_resize",
]
"""Transformations of coordinates that `wgsl/bodies/resize_places.wgsl` implements."""
NearestMode = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil", ""]
"""With "", nearest rounds down when it enlarges and up when it shrinks, as before opset 11. The CPU provider still accepts
that."""
AspectPolicy = Literal["stretch", "not_larger", "not_smaller"]


@dataclass(frozen=True)
class _Scaled:
    """One resized axis. `scale` is outputs per input; None for the ratio of the extents."""

    axis: int
    inputs: Dim
    outputs: Dim
    scale: float | None
    start: float = 0.0  # the region of interest, as fractions of the extent
    end: float = 1.0

    @property
    def is_whole(self) -> bool:
        """Whether the region is all of the axis."""
        return (self.start, self.end) == (0.0, 1.0)


@op("Resize", since=11, types=ANY, keeps_format=True)
def resize(
    b: Builder,
    x: Operand,
    roi: Operand | None = None,
    scales: Operand | None = None,
    sizes: Operand | None = None,
    *,
    antialias: Flag = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: Transformation = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: Flag = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: AspectPolicy = "stretch",
    mode: Interpolation = "nearest",
    nearest_mode: NearestMode = "round_prefer_floor",
    result_shapes: Sequence[KnownShape | None] = (),
) -> Operand:
    """Scales or sizes are for all axes or for `axes`. Kernels are specialised for scales; sizes may be expressions of the
    input shapes."""
    if antialias and mode == "nearest":
        raise UnsupportedError("antialias is supported for the modes linear and cubic, not for nearest")
    where = [axis_of(a, x.rank) for a in axes] if axes else list(range(x.rank))
    region = (
        b.assumed_floats(roi, "the region of interest", lambda n: [0.0] * (n // 2) + [1.0] * (n - n // 2))
        if roi is not None and coordinate_transformation_mode == "tf_crop_and_resize"
        else []
    )
    if region and len(region) != 2 * len(where):
        raise UnsupportedError(
            f"a region of interest of {len(region)} numbers, where {len(where)} axes have two each: a start and an end"
        )
    if sizes is not None and sizes.size != 0:
        extents = sizes.dims("the target size", len(where))
        scaled = _by_size(b, x, where, extents, keep_aspect_ratio_policy)
    elif scales is not None and scales.size != 0:
        scaled = _by_scale(x, where, _scales(b, x, scales, where, result_shapes))
    else:
        raise UnsupportedError("neither scales nor sizes are given")
    if region:
        half = len(region) // 2
        scaled = [
            _Scaled(s.axis, s.inputs, s.outputs, s.scale, region[k], region[half + k]) for k, s in enumerate(scaled)
        ]
    # An unchanged axis has no positions: in f32, those of a long axis are not whole numbers.
    scaled = [it for it in scaled if it.outputs != it.inputs or it.scale not in (None, 1.0) or not it.is_whole]
    transform = _Transform(coordinate_transformation_mode, nearest_mode, extrapolation_value)
    interpolation = _Interpolation(mode, cubic_coeff_a, bool(exclude_outside), bool(antialias))
    return _resized(b, x, scaled, interpolation, transform)


@op("Resize", types=ANY, keeps_format=True)
def resize_10(
    b: Builder,
    x: Operand,
    scales: Operand,
    *,
    mode: Interpolation = "nearest",
    result_shapes: Sequence[KnownShape | None] = (),
) -> Operand:
    """Version 10: positions are multiplied by the scale; nearest rounds down when it enlarges and up when it shrinks."""
    return _upsampled(b, x, _scales(b, x, scales, range(x.rank), result_shapes), mode)


@op("Upsample", types=ANY, keeps_format=True)
def upsample(
    b: Builder,
    x: Operand,
    scales_input: Operand | None = None,
    *,
    scales: list[float] | None = None,
    mode: Interpolation = "nearest",
    result_shapes: Sequence[KnownShape | None] = (),
) -> Operand:
    if scales_input is None:
        return _upsampled(b, x, list(scales or []), mode)
    return _upsampled(b, x, _scales(b, x, scales_input, range(x.rank), result_shapes), mode)


def _scales(
    b: Builder, x: Operand, scales: Operand, where: Sequence[int], declared: Sequence[KnownShape | None]
) -> list[float]:
    """Returns the scales of axes. If a run decides them, assumes those that result in the declared shape, or else an image of
    twice the size."""
    shape = declared[0] if declared and declared[0] is not None and len(declared[0]) == x.rank else (None,) * x.rank

    def usual(axis: int) -> float:
        have, wanted = x.shape[axis], shape[axis]
        if not isinstance(have, int) or not have or not wanted:
            return 1.0 if axis < 2 else 2.0
        ratio = wanted / have
        return ratio if extent_scaled(have, ratio) == wanted else (wanted + 0.5) / have

    return b.assumed_floats(scales, "the scale", lambda count: [*map(usual, where), *[1.0] * count][:count])


def _upsampled(b: Builder, x: Operand, factors: list[float], mode: Interpolation) -> Operand:
    scaled = [s for s in _by_scale(x, list(range(x.rank)), factors) if s.outputs != s.inputs or s.scale != 1.0]
    return _resized(b, x, scaled, _Interpolation(mode), _Transform("asymmetric", "", 0.0))


def _by_scale(x: Operand, where: list[int], scales: list[float]) -> list[_Scaled]:
    if len(scales) != len(where):
        raise UnsupportedError(f"{len(scales)} scales for {len(where)} axes")
    if not all(0 < scale < math.inf for scale in scales):
        raise UnsupportedError(f"the scales {scales} must be positive and finite")
    return [_Scaled(a, x.shape[a], extent_scaled(x.shape[a], s), s) for a, s in zip(where, scales, strict=True)]


def _by_size(b: Builder, x: Operand, where: list[int], extents: list[Dim], policy: str) -> list[_Scaled]:
    if len(extents) != len(where):
        raise UnsupportedError(f"{len(extents)} sizes for {len(where)} axes")
    if policy == "stretch":
        return [_Scaled(a, x.shape[a], e, None) for a, e in zip(where, extents, strict=True)]
    what = "a size that keeps the aspect ratio"
    have = b.assumed_ints([x.shape[a] for a in where], what, lambda count: [USUAL] * count)
    wanted = b.assumed_ints(extents, what, lambda _: have)
    if not all(have):
        raise UnsupportedError("an empty extent has no aspect ratio")
    ratios = [e / d for e, d in zip(wanted, have, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [_Scaled(a, x.shape[a], int(d * scale + 0.5), scale) for a, d in zip(where, have, strict=True)]


@dataclass(frozen=True)
class _Transform:
    """The source of an element: the transformation of coordinates, the rounding of `nearest`, and the value outside the
    region."""

    mode: str
    nearest: str
    extrapolation: float

    def factor(self, s: _Scaled) -> int:
        """The number of repetitions of each element of an axis, if nearest only repeats elements; else 0."""
        whole = s.scale is not None and s.scale >= 1 and s.scale == int(s.scale)
        return int(s.scale or 0) if self.mode == "asymmetric" and self.nearest in ("floor", "") and whole else 0

    def rounding(self, s: _Scaled) -> str:
        if self.nearest:
            return self.nearest
        if s.scale is not None:
            return "ceil" if s.scale < 1 else "floor"
        if not isinstance(s.inputs, int) or not isinstance(s.outputs, int):
            raise UnsupportedError(
                "nearest_mode='' depends on whether the size grows or shrinks, which is not known before a run"
            )
        return "ceil" if s.outputs < s.inputs else "floor"


@dataclass(frozen=True)
class _Interpolation:
    """The interpolation of the elements around a position. `coefficient` is that of Keys' kernel."""

    mode: Interpolation
    coefficient: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False

    @property
    def reach(self) -> int:
        """The number of elements to each side with a weight, for an axis that does not shrink."""
        return 2 if self.mode == "cubic" else 1


def _resized(
    b: Builder, x: Operand, scaled: list[_Scaled], interpolation: _Interpolation, transform: _Transform
) -> Operand:
    if not scaled:
        return x
    if interpolation.mode != "nearest" and x.dtype not in INTERPOLATED:
        raise UnsupportedError(f"{interpolation.mode} interpolation of {x.dtype.label} is not supported")
    memory = b.formats.of([x.view])
    x, scaled = b.view(x, memory.permuted(x.view)), [replace(s, axis=memory.place(s.axis)) for s in scaled]
    if not interpolation.antialias:
        taps = {"nearest": 1, "linear": 2, "cubic": 4}[interpolation.mode] ** len(scaled)
        return memory.in_result_order(
            _mapped(b, x, x.dtype, scaled, scaled, interpolation, transform, min(64, 4 + 4 * taps))
        )
    # One axis after another, the last one first, as on the CPU provider, which rounds integers in between.
    result = x
    between = DType.FLOAT32 if x.dtype.is_float else x.dtype
    for k in reversed(range(len(scaled))):
        # An element outside the region along one axis stays outside after the next axis is resized.
        placed = scaled[k:] if transform.mode == "tf_crop_and_resize" else scaled[k : k + 1]
        result = _mapped(b, result, between if k else x.dtype, scaled[k : k + 1], placed, interpolation, transform, 48)
    return memory.in_result_order(result)


def _mapped(
    b: Builder,
    x: Operand,
    dtype: DType,
    scaled: list[_Scaled],
    placed: list[_Scaled],
    interpolation: _Interpolation,
    transform: _Transform,
    cost: int,
) -> Operand:
    """Returns x resized along the axes of `scaled`. The body has the positions along the axes of `placed`."""
    shape = list(x.shape)
    for s in scaled:
        shape[s.axis] = s.outputs
    groups, numbers = separate_coordinates(x.rank, {s.axis for s in placed})
    by_number, places = ({numbers[s.axis]: s for s in some} for some in (scaled, placed))
    constants: dict[str, Any] = {"RANK": len(groups), "MODE": transform.mode}
    constants |= {"A": interpolation.coefficient, "EXCLUDE_OUTSIDE": interpolation.exclude_outside}
    constants |= {"EXTRAPOLATION": float(transform.extrapolation)}
    if interpolation.antialias:
        constants |= _antialiased(x.dtype, interpolation)
    parameters: dict[str, Dim] = {}
    iterations: Dim = 0
    corners = 1
    for k in range(len(groups)):
        constants |= {f"PLACED{k}": k in places, f"RESIZED{k}": k in by_number, f"FACTOR{k}": 0, f"CORNERS{k}": corners}
        if k in places:
            s = places[k]
            parameters |= {f"in{k}": s.inputs, f"out{k}": s.outputs}
            constants |= {f"SCALE{k}": 0 if s.scale is None else float(np.float32(s.scale))}
            constants |= {f"START{k}": s.start, f"END{k}": s.end}
            if interpolation.mode == "nearest":
                constants |= {f"FACTOR{k}": transform.factor(s), f"ROUNDING{k}": transform.rounding(s)}
        if k in by_number:
            corners *= 2
            if interpolation.antialias:
                constants |= {f"WIDE{k}": 0.0 if s.scale is None else max(1.0, 1 / s.scale)}
                iterations = 2 * interpolation.reach * _elements_per_result(s) + 1
    constants[f"CORNERS{len(groups)}"] = corners
    left = corners
    for k in range(len(groups)):
        left //= 2 if k in by_number else 1
        constants[f"BIT{k}"] = left if k in by_number else corners
    return b.map(
        "resize_antialias" if interpolation.antialias else f"resize_{interpolation.mode}",
        dtype,
        tuple(shape),
        named("o", groups),
        groups,
        {"x": (x, groups)},
        parameters=parameters,
        cost=cost,
        reuse=True,
        iterations=iterations,
        **constants,
    )


def _antialiased(dtype: DType, interpolation: _Interpolation) -> dict[str, Any]:
    """Constants of the body for elements of a type."""
    kind = "floats" if dtype.is_float else "bytes" if dtype.bits == 8 else "integers"
    constants: dict[str, Any] = {
        "KIND": kind,
        "CUBIC": interpolation.mode == "cubic",
        "REACH": float(interpolation.reach),
    }
    if kind == "bytes":
        limits = np.iinfo(dtype.numpy)
        constants |= {"LOWEST": int(limits.min), "HIGHEST": int(limits.max)}
    return constants


def _elements_per_result(s: _Scaled) -> Dim:
    """The maximum number of input elements per output element, along an axis that shrinks; else 1."""
    if s.scale is not None:
        return max(1, math.ceil(1 / s.scale))
    outputs = maximum(s.outputs, 1)
    return maximum(1, floordiv(s.inputs + outputs - 1, outputs))
