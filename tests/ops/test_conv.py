"""Convolution and its transpose: geometry, groups, depthwise, one to three axes, float16, unknown dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxruntime_ep_wgpu.compiler.lower.ops import conv, depthwise
from tests import support, targets

from .compare import check, model, random

pytestmark = targets.EVERY_ORDER

CLOSE = {"rtol": 1e-4, "atol": 1e-4}
GEOMETRIES: list[dict[str, Any]] = [
    {},
    {"pads": [1, 1, 1, 1], "strides": [2, 2]},
    {"pads": [2, 0, 1, 3], "dilations": [2, 1]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 1]},
    {"auto_pad": "SAME_LOWER"},
    {"auto_pad": "VALID", "strides": [3, 2]},
]
# channels, features, groups: dense, depthwise, depthwise with two features each, few and many features per group
CHANNELS = [(3, 5, 1), (6, 6, 6), (3, 6, 3), (6, 4, 2), (6, 18, 2)]


@pytest.mark.costly
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize(("channels", "features", "groups"), CHANNELS)
@pytest.mark.parametrize("symbolic", [False, True])
def test_conv(geometry: dict[str, Any], channels: int, features: int, groups: int, symbolic: bool) -> None:
    x, w, bias = (
        random(2, channels, 9, 11),
        random(features, channels // groups, 3, 2, seed=1),
        random(features, seed=2),
    )
    check("Conv", x, w, bias, group=groups, constants=[1, 2], symbolic=symbolic, **geometry, **CLOSE)


@pytest.mark.costly
@pytest.mark.parametrize(("channels", "features", "groups"), CHANNELS)
def test_conv_with_weights_that_are_inputs(channels: int, features: int, groups: int) -> None:
    x, w = random(1, channels, 8, 5), random(features, channels // groups, 3, 3, seed=1)
    check("Conv", x, w, group=groups, pads=[1, 1, 1, 1], **CLOSE)


@pytest.mark.costly
@pytest.mark.parametrize("groups", [1, 4])
def test_conv_over_one_axis(groups: int) -> None:
    for extra in ({}, {"pads": [2, 1]}, {"strides": [3]}, {"dilations": [2], "pads": [1, 0]}):
        check(
            "Conv",
            random(2, 4, 33),
            random(8, 4 // groups, 3, seed=1),
            random(8, seed=2),
            group=groups,
            **extra,
            **CLOSE,
        )


@pytest.mark.costly
@pytest.mark.parametrize("groups", [1, 4])
def test_conv_over_three_axes(groups: int) -> None:
    x, w = random(2, 4, 5, 6, 7), random(4, 4 // groups, 3, 2, 2, seed=1)
    check("Conv", x, w, group=groups, pads=[1, 1, 1, 0, 0, 1], strides=[1, 2, 1], **CLOSE)
    check("Conv", x, w, group=groups, **CLOSE)


@pytest.mark.costly
def test_conv_pointwise() -> None:
    w = random(9, 5, 1, 1, seed=1)
    check("Conv", random(2, 5, 7, 6), w, random(9, seed=2), **CLOSE)
    check("Conv", random(2, 5, 7, 6), w, strides=[2, 3], **CLOSE)
    check("Conv", random(2, 5, 7, 6), w, pads=[1, 0, 2, 1], **CLOSE)


@pytest.mark.costly
@pytest.mark.parametrize("kernel", [(7, 7), (1, 7), (5, 5), (9, 9)])
@pytest.mark.parametrize("strides", [[1, 1], [2, 1], [2, 2]])
def test_depthwise_kernels(kernel: tuple[int, int], strides: list[int]) -> None:
    pads = [k // 2 for k in kernel] * 2
    check(
        "Conv",
        random(2, 5, 13, 17),
        random(5, 1, *kernel, seed=1),
        random(5, seed=2),
        group=5,
        pads=pads,
        strides=strides,
        **CLOSE,
    )


@pytest.mark.costly
def test_groups_and_depthwise_take_the_kernels_made_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []
    monkeypatch.setattr(conv, "_direct", lambda *a: used.append("direct") or conv_direct(*a))
    monkeypatch.setattr(depthwise, "depthwise_convolution", lambda *a: used.append("depthwise") or by_plane(*a))
    check("Conv", random(1, 6, 5, 5), random(6, 1, 3, 3), group=6, **CLOSE)
    check("Conv", random(1, 6, 5, 5), random(6, 2, 3, 3), group=3, **CLOSE)
    assert used == ["depthwise", "direct"]


conv_direct, by_plane = conv._direct, depthwise.depthwise_convolution


@pytest.mark.costly
@pytest.mark.parametrize("groups", [1, 6])
def test_conv_float16(groups: int) -> None:
    x, w = random(1, 6, 7, 9, dtype=np.float16), random(12, 6 // groups, 3, 3, dtype=np.float16, seed=1)
    check("Conv", x, w, random(12, dtype=np.float16, seed=2), group=groups, pads=[1, 1, 1, 1], **CLOSE)


@pytest.mark.costly
def test_conv_of_special_values() -> None:
    x = random(1, 1, 5, 5)
    x[0, 0, 2, 2], x[0, 0, 0, 0] = np.inf, np.nan
    check("Conv", x, np.ones((9, 1, 2, 2), np.float32), **CLOSE)


def test_conv_of_an_empty_batch() -> None:
    for groups in (1, 4):
        check(
            "Conv",
            random(0, 4, 6, 6),
            random(8, 4 // groups, 3, 3),
            group=groups,
            want=[np.zeros((0, 8, 4, 4), np.float32)],
        )


@pytest.mark.costly
def test_conv_of_several_sizes_with_one_program() -> None:
    built = model(
        "Conv",
        [random(1, 1, 1, 1), random(8, 3, 3, 3)],
        symbolic=True,
        constants=[1],
        pads=[1, 1, 1, 1],
        strides=[2, 2],
    )
    w = random(8, 3, 3, 3)
    runner = support.Runner(support.compile_model(built))
    for shape in ((1, 3, 8, 8), (2, 3, 33, 17), (3, 3, 1, 1)):
        x = random(*shape)
        want = check("Conv", x, w, constants=[1], pads=[1, 1, 1, 1], strides=[2, 2], **CLOSE)
        np.testing.assert_allclose(runner(x)[0], want[0], **CLOSE)


TRANSPOSED: list[dict[str, Any]] = [
    {},
    {"strides": [2, 2]},
    {"strides": [2, 3], "output_padding": [1, 2]},
    {"strides": [3, 2], "pads": [1, 0, 2, 1]},
    {"dilations": [2, 3]},
    {"dilations": [2, 1], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"strides": [2, 2], "auto_pad": "SAME_LOWER"},
    {"strides": [3, 2], "output_shape": [16, 14]},
]


@pytest.mark.costly
@pytest.mark.parametrize("geometry", TRANSPOSED, ids=str)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("symbolic", [False, True])
def test_conv_transpose(geometry: dict[str, Any], groups: int, symbolic: bool) -> None:
    x, w = random(2, 6, 5, 7), random(6, 4 // groups, 3, 2, seed=1)
    check(
        "ConvTranspose", x, w, random(4, seed=2), group=groups, constants=[1, 2], symbolic=symbolic, **geometry, **CLOSE
    )


@pytest.mark.costly
@pytest.mark.parametrize("size", [2, 3])
def test_conv_transpose_without_overlap(size: int) -> None:
    check(
        "ConvTranspose", random(2, 6, 5, 7), random(6, 4, size, size, seed=1), random(4), strides=[size, size], **CLOSE
    )


@pytest.mark.costly
def test_conv_transpose_over_one_axis_and_three() -> None:
    check("ConvTranspose", random(2, 3, 8), random(3, 4, 3, seed=1), strides=[2], pads=[1, 0], **CLOSE)
    check("ConvTranspose", random(1, 3, 4, 3, 5), random(3, 2, 2, 3, 2, seed=1), strides=[2, 1, 2], **CLOSE)


@pytest.mark.costly
def test_conv_transpose_float16() -> None:
    x, w = random(1, 4, 5, 5, dtype=np.float16), random(4, 3, 3, 3, dtype=np.float16, seed=1)
    check("ConvTranspose", x, w, strides=[2, 2], **CLOSE)
