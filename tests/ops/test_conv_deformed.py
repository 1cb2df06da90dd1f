"""DeformConv: groups of channels and of offsets, masks, windows, places far outside, beside the CPU provider and by hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests.support import compile_model

from .compare import check, check_model, model, random


def _arrays(
    size: Sequence[int] = (7, 6),
    kernel: Sequence[int] = (3, 2),
    *,
    batch: int = 2,
    channels: int = 4,
    features: int = 6,
    mask: bool = True,
    bias: bool = True,
    far: float = 1.5,
    dtype: Any = np.float32,
    **attributes: Any,
) -> tuple[list[np.ndarray | None], dict[str, Any]]:
    """Inputs and attributes of a node whose taps move about `far` elements."""
    rank, taps = len(size), int(np.prod(kernel))
    how = {
        "group": 1,
        "offset_group": 1,
        "pads": [0] * 2 * rank,
        "strides": [1] * rank,
        "dilations": [1] * rank,
    } | attributes
    spans = [(extent - 1) * step + 1 for extent, step in zip(kernel, how["dilations"], strict=True)]
    room = [size[k] + how["pads"][k] + how["pads"][rank + k] - spans[k] for k in range(rank)]
    outputs = [room[k] // how["strides"][k] + 1 for k in range(rank)]
    rows = how["offset_group"] * taps
    arrays = [
        random(batch, channels, *size),
        random(features, channels // how["group"], *kernel, seed=1),
        random(batch, rows * rank, *outputs, seed=2) * far,
        random(features, seed=3) if bias else None,
        random(batch, rows, *outputs, seed=4) if mask else None,
    ]
    return [None if it is None else it.astype(dtype) for it in arrays], how


def by_hand(arrays: Sequence[np.ndarray | None], how: dict[str, Any]) -> np.ndarray:
    """What ONNX says of any number of axes, in float64."""
    x, w, offset, bias, mask = (None if it is None else it.astype(np.float64) for it in [*arrays, None, None][:5])
    assert x is not None and w is not None and offset is not None
    rank, kernel, outputs = x.ndim - 2, w.shape[2:], offset.shape[2:]
    per_group, per_offset = w.shape[1], x.shape[1] // how["offset_group"]
    offset = offset.reshape(len(x), how["offset_group"], *kernel, rank, *outputs)
    weights = np.ones((len(x), how["offset_group"], *kernel, *outputs)) if mask is None else mask.reshape(
        len(x), how["offset_group"], *kernel, *outputs
    )  # fmt: skip
    y = np.zeros((len(x), len(w), *outputs))
    for image, channel, *at in np.ndindex(*x.shape[:2], *outputs):
        part, group = channel // per_offset, channel // per_group
        for tap in np.ndindex(*kernel):
            place = [at[k] * how["strides"][k] + tap[k] * how["dilations"][k] - how["pads"][k] for k in range(rank)]
            place = [place[k] + offset[(image, part, *tap, k, *at)] for k in range(rank)]
            value = 0.0
            for corner in itertools.product((0, 1), repeat=rank):
                i = [int(np.floor(p)) + c for p, c in zip(place, corner, strict=True)]
                if all(0 <= n < extent for n, extent in zip(i, x.shape[2:], strict=True)):
                    near = [1 - abs(p - n) for p, n in zip(place, i, strict=True)]
                    value += np.prod(near) * x[(image, channel, *i)]
            value *= weights[(image, part, *tap, *at)]
            features = slice(group * len(w) // how["group"], (group + 1) * len(w) // how["group"])
            y[(image, features, *at)] += value * w[(features, channel % per_group, *tap)]
    return y if bias is None else y + bias.reshape(-1, *(1,) * rank)


CASES: tuple[dict[str, Any], ...] = (
    {},
    {"mask": False},
    {"mask": False, "bias": False},
    {"group": 2},
    {"group": 2, "offset_group": 4},
    {"group": 4, "offset_group": 2, "features": 8},
    {"pads": [1, 2, 0, 1]},
    {"strides": [2, 1], "dilations": [1, 2]},
    {"far": 20.0, "pads": [1, 1, 1, 1], "offset_group": 2},
    {"far": 0.0},
    {"kernel": (1, 1), "size": (1, 5), "channels": 1, "features": 1},
)


@pytest.mark.costly
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("case", range(len(CASES)))
def test_images(case: int, symbolic: bool) -> None:
    arrays, how = _arrays(**CASES[case])
    constants = [1] if symbolic else []
    check("DeformConv", *arrays, opset=22, symbolic=symbolic, constants=constants, rtol=1e-4, atol=1e-5, **how)


@pytest.mark.parametrize("size, kernel", [((9,), (3,)), ((4, 5, 3), (2, 1, 2))])
def test_other_numbers_of_axes(size: tuple[int, ...], kernel: tuple[int, ...]) -> None:
    arrays, how = _arrays(size, kernel, group=2, offset_group=2)
    built = model("DeformConv", arrays, opset=22, **how)
    check_model(built, arrays, want=[by_hand(arrays, how).astype(np.float32)], rtol=1e-4, atol=1e-5)


def test_the_measure_by_hand_is_the_reference() -> None:
    arrays, how = _arrays(group=2, offset_group=2, pads=[1, 0, 0, 2])
    built = model("DeformConv", arrays, opset=22, **how)
    (want,) = ReferenceEvaluator(built).run(None, {f"x{k}": it for k, it in enumerate(arrays)})
    np.testing.assert_allclose(by_hand(arrays, how), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16])
def test_halves(dtype: Any) -> None:
    arrays, how = _arrays(offset_group=2, pads=[1, 1, 1, 1], dtype=dtype)
    built = model("DeformConv", arrays, opset=22, **how)
    check_model(built, arrays, want=[by_hand(arrays, how).astype(dtype)], rtol=1e-4, atol=1e-4)


def test_empty_batches() -> None:
    arrays, how = _arrays()
    arrays = [it if it is None or k in (1, 3) else it[:0] for k, it in enumerate(arrays)]
    built = model("DeformConv", arrays, opset=22, **how)
    check_model(built, arrays, want=[np.zeros((0, 6, 5, 5), np.float32)])


def test_special_values() -> None:
    """What is not finite reaches the windows that read it; an offset that is infinite or no number is outside."""
    arrays, how = _arrays(mask=False)
    x, offset = arrays[0], arrays[2]
    assert x is not None and offset is not None
    x[0, 1, 3, 3], x[1, 2, 4, 2] = np.nan, np.inf
    offset[0, 3, 0, 0], offset[0, 4, 1, 1], offset[1, 5, 2, 2], offset[1, 0, 0, 0] = np.inf, -np.inf, np.nan, 3e38
    finite = offset.copy()
    finite[~np.isfinite(offset)] = 1e6
    built = model("DeformConv", arrays, opset=22, **how)
    with np.errstate(invalid="ignore"):
        want = by_hand([x, arrays[1], finite, arrays[3]], how)
    check_model(built, arrays, want=[want.astype(np.float32)], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "k, shape, words",
    [
        (2, (2, 11, 5, 5), "offsets"),
        (2, (2, 12, 5, 4), "offsets"),
        (4, (2, 5, 5, 5), "mask"),
        (1, (6, 3, 3, 2), "channels"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(k: int, shape: tuple[int, ...], words: str) -> None:
    arrays, how = _arrays()
    arrays[k] = random(*shape)
    with pytest.raises(UnsupportedError, match=words):
        compile_model(model("DeformConv", arrays, opset=22, **how))
