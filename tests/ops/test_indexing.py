"""Gather, Pad and triangles: indices from the end and out of range, every padding mode, every element type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import support

from .compare import both_ways, check, model, random

TYPES = [np.float32, np.float16, np.int8, np.int32, np.int64, np.uint8, np.uint16, np.bool_]


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(
    "indices", [np.array(2), np.array([0, -1, 3]), np.array([[1, 2], [-4, 0]]), np.zeros((0, 2), int)]
)
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_gather(axis: int, indices: np.ndarray, kind: type) -> None:
    x = random(4, 5, 6)
    want = [np.take(x, indices, axis)]
    check("Gather", x, indices.astype(kind), axis=axis, want=want)
    check("Gather", x, indices.astype(kind), axis=axis, constants=[1], want=want)


@pytest.mark.parametrize(("dtype", "int64"), both_ways(TYPES))
def test_gather_types(dtype: type, int64: str) -> None:
    check("Gather", random(5, 3, dtype=dtype), np.array([4, -2, 0]), int64=int64)


def test_gather_never_reads_outside() -> None:
    x = random(3, 2)
    got = support.run_model(model("Gather", [x, np.array([99, -99])]), x, np.array([99, -99]))
    np.testing.assert_array_equal(got[0], x[[2, 0]])


PADS = [[0, 0, 1, 2, 0, 0, 3, 1], [1, 0, 0, 0, 0, 2, 0, 0], [0, 0, -1, 2, 0, 0, 1, -2], [0, 0, -1, -1, 0, 0, 0, -2]]


@pytest.mark.parametrize("pads", PADS, ids=str)
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("symbolic", [False, True])
def test_pad(pads: list[int], mode: str, symbolic: bool) -> None:
    x = random(2, 3, 5, 6)
    want = None
    if mode != "constant":
        if min(pads) < 0:
            return  # whether it is cut before it is repeated is not fixed by ONNX
        want = [np.pad(x, list(zip(pads[:4], pads[4:], strict=True)), mode)]  # type: ignore[call-overload]
    check("Pad", x, np.array(pads), constants=[1], mode=mode, symbolic=symbolic, want=want)


def test_pad_with_a_value_and_axes() -> None:
    x = random(2, 3, 5)
    check("Pad", x, np.array([1, 0, 2, 1, 3, 0]), np.array(7.5, np.float32), constants=[1, 2])
    check("Pad", x, np.array([1, 2, 0, 3]), np.array(7.5, np.float32), np.array([-1, 0]), constants=[1, 3])
    check("Pad", x, opset=2, pads=[0, 1, 0, 2, 0, 0], value=3.0)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
@pytest.mark.parametrize("pads", [(1, -1), (-1, 1), (2, -2), (-2, 2), (-3, 1), (-1, -2)])
@pytest.mark.parametrize("symbolic", [False, True])
def test_padding_repeats_nothing_that_is_cropped(mode: str, pads: tuple[int, int], symbolic: bool) -> None:
    x = np.arange(6, dtype=np.float32)
    begin, end = pads
    want = np.pad(x[max(-begin, 0) : 6 - max(-end, 0)], (max(begin, 0), max(end, 0)), mode)  # type: ignore[call-overload]
    check("Pad", x, np.array(pads), constants=[1], mode=mode, symbolic=symbolic, want=[want])


def test_pads_that_are_an_input() -> None:
    x = random(2, 3)
    for pads in ([1, 0, 0, 2], [0, 0, 0, 0], [-1, 1, 1, -1]):
        check("Pad", x, np.array(pads))


def test_reflection_further_than_the_axis_is_long() -> None:
    x = random(3)
    for pads in ([5, 7], [2, 2]):
        check("Pad", x, np.array(pads), constants=[1], mode="reflect", want=[np.pad(x, [tuple(pads)], "reflect")])


@pytest.mark.parametrize(("dtype", "int64"), both_ways(TYPES))
def test_pad_types(dtype: type, int64: str) -> None:
    check(
        "Pad",
        random(3, 5, dtype=dtype),
        np.array([1, 2, 0, 3]),
        random(1, dtype=dtype, seed=3).reshape(()),
        constants=[1],
        int64=int64,
    )


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("diagonal", [None, 0, 2, -1, 9])
def test_triangles(upper: int, diagonal: int | None) -> None:
    given: list[Any] = [random(2, 5, 4)] + ([] if diagonal is None else [np.array(diagonal)])
    check("Trilu", *given, upper=upper)
    check("Trilu", *given, upper=upper, constants=[1])
    check("Trilu", random(3, 4, dtype=np.int64), *given[1:], upper=upper)
