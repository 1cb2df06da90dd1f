"""Gather, Pad and triangles: indices from the end and out of range, every padding mode, every element type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from onnxruntime_ep_wgpu.errors import WgpuEpError
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


def _evenly_apart(rng: np.random.Generator, extent: int) -> np.ndarray:
    """Indices of one axis: a scalar, or some in a row, forwards or backwards, counted from the beginning or from the end."""
    if rng.random() < 0.4:
        return np.array(rng.integers(-extent, extent))
    step = int(rng.choice([1, 1, 2, -1, -2]))
    row = np.arange(extent)[::step]
    first = int(rng.integers(len(row)))
    row = row[first : int(rng.integers(first, len(row))) + 1]
    return row - extent if rng.random() < 0.3 else row


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("symbolic", [False, True])
def test_known_indices_that_lie_evenly_apart_are_a_view(seed: int, symbolic: bool) -> None:
    rng = np.random.default_rng(seed)
    x = random(4, 3, 5, 6, dtype=TYPES[seed % len(TYPES)], seed=seed)
    order, axis = rng.permutation(4).tolist(), int(rng.integers(4))
    turned = x.transpose(order)
    indices = _evenly_apart(rng, turned.shape[axis])
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=order),
        helper.make_node("Gather", ["t", "i"], ["g"], axis=axis),
        helper.make_node("Identity", ["g"], ["y"]),
    ]
    shape = ["a", "b", "c", "d"] if symbolic else list(x.shape)
    program = support.compile_model(support.make_model(nodes, {"x": (x.dtype, shape)}, {"i": indices}))
    assert not any("indices" in text for kernel in program.kernels for text in kernel.wgsl)
    (got,) = support.Runner(program)(x)
    np.testing.assert_array_equal(got, np.take(turned, indices, axis))


@pytest.mark.parametrize("indices", [[0, 2, 1], [0, 0, 0], [-1, 0], [1, 3, 4]])
@pytest.mark.parametrize("symbolic", [False, True])
def test_known_indices_in_any_order(indices: list[int], symbolic: bool) -> None:
    x = random(3, 5, 2)
    check("Gather", x, np.array(indices), axis=1, constants=[1], symbolic=symbolic, want=[np.take(x, indices, 1)])


@pytest.mark.parametrize("index", [3, -4])
def test_a_view_reads_nothing_outside(index: int) -> None:
    """The extent is what a run decides, so that it says what is wrong."""
    x = random(3, 2)
    m = model("Gather", [x, np.array(index)], symbolic=True, constants=[1])
    np.testing.assert_array_equal(support.run_model(m, random(4, 2))[0], random(4, 2)[index])
    with pytest.raises(WgpuEpError, match=f"the index {index} is outside axis 0"):
        support.run_model(m, x)


def test_steps_of_a_sequence_have_the_same_kernels() -> None:
    def steps(count: int) -> int:
        weights: dict[str, np.ndarray] = {"w": random(8, 8), "u": random(8, 8)}
        nodes, state = [], "h"
        for k in range(count):
            weights[f"i{k}"] = np.array(k)
            nodes += [
                helper.make_node("Gather", ["x", f"i{k}"], [f"g{k}"], axis=1),
                helper.make_node("MatMul", [f"g{k}", "w"], [f"a{k}"]),
                helper.make_node("MatMul", [state, "u"], [f"b{k}"]),
                helper.make_node("Add", [f"a{k}", f"b{k}"], [f"s{k}"]),
            ]
            state = f"s{k}"
        inputs = {"x": (np.float32, ["n", count, 8]), "h": (np.float32, ["n", 8])}
        return len(support.compile_model(support.make_model(nodes, inputs, weights)).kernels)

    assert steps(9) == steps(3)


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
