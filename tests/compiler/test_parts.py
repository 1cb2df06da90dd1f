"""Parts of a tensor, as Split and Slice make them: which of them share a kernel, and that each has its own elements."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from tests import targets
from tests.support import Runner, compile_model, make_model

TYPES = (np.float32, np.float16, np.int8, np.int64)


way = targets.each(targets.OWN, targets.Way("gpu"))


def numbers(dtype: type, *shape: int) -> np.ndarray:
    return (np.arange(np.prod(shape)) % 251 - 125).astype(dtype).reshape(shape)


def split(count: int, axis: int, behind: str = "") -> list[onnx.NodeProto]:
    """A split into equal parts, each with a node behind it."""
    parts = [f"p{k}" for k in range(count)]
    nodes = [node("Split", ["x"], parts, axis=axis, num_outputs=count)]
    return nodes + [node(behind, [part], [f"y{k}"]) for k, part in enumerate(parts) if behind]


@pytest.mark.costly
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_kernels_of_a_split_do_not_grow_with_its_parts(axis: int, dtype: type, symbolic: bool) -> None:
    found = {}
    for count in (5, 40):
        shape = [3, 8, 4]
        shape[axis] = 6 * count
        dims = [f"n{k}" if symbolic and k != axis else d for k, d in enumerate(shape)]
        program = compile_model(make_model(split(count, axis), {"x": (dtype, dims)}))
        found[count] = len(program.kernels)
        x = numbers(dtype, *shape)
        for got, want in zip(Runner(program)(x), np.split(x, count, axis), strict=True):
            np.testing.assert_array_equal(got, want)
    assert found[40] <= min(found[5], 3), found


@pytest.mark.costly
@pytest.mark.parametrize("axis", [0, 1])
def test_neither_do_those_of_maps_behind_the_parts(axis: int) -> None:
    shape = [12, 12]
    shape[axis] = 12 * 30
    program = compile_model(make_model(split(30, axis, "Neg"), {"x": (np.float32, shape)}))
    assert len(program.kernels) <= 2
    x = numbers(np.float32, *shape)
    for got, want in zip(Runner(program)(x), np.split(x, 30, axis), strict=True):
        np.testing.assert_array_equal(got, -want)


@pytest.mark.parametrize("step", [1, 3, -2])
@pytest.mark.parametrize("dtype", TYPES)
def test_slices_that_begin_elsewhere_share_a_kernel(dtype: type, step: int) -> None:
    begins = range(20, 40)
    nodes, weights = [], {"axes": np.array([1]), "steps": np.array([step])}
    for k, begin in enumerate(begins):
        weights |= {f"begin{k}": np.array([begin]), f"end{k}": np.array([begin + 8 * step])}
        nodes.append(node("Slice", ["x", f"begin{k}", f"end{k}", "axes", "steps"], [f"y{k}"]))
    program = compile_model(make_model(nodes, {"x": (dtype, [4, 80])}, weights))
    assert len(program.kernels) <= 2  # four elements at a time where they begin at a multiple of four
    x = numbers(dtype, 4, 80)
    for got, begin in zip(Runner(program)(x), begins, strict=True):
        np.testing.assert_array_equal(got, x[:, begin : begin + 8 * step : step])


def test_a_transposed_part_has_a_kernel_for_all_that_begin_elsewhere() -> None:
    parts = [node("Transpose", [f"p{k}"], [f"y{k}"], perm=[1, 0]) for k in range(9)]
    program = compile_model(make_model([*split(9, 0), *parts], {"x": (np.float32, [9 * 40, 50])}))
    assert len(program.kernels) <= 2
    x = numbers(np.float32, 9 * 40, 50)
    for got, want in zip(Runner(program)(x), np.split(x, 9), strict=True):
        np.testing.assert_array_equal(got, want.T)
