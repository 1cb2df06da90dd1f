"""Views and copies: reshaping, slicing, joining, repeating, of every element type, and chains of them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import support

from .compare import check, check_model, model, random

TYPES = [np.float32, np.float16, np.int8, np.int32, np.int64, np.uint8, np.uint16, np.bool_]


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("shape", [(6, 4), (-1,), (2, 0, -1), (0, -1), (2, 3, 2, 2), (1, 24, 1)])
@pytest.mark.parametrize("constant", [False, True])
def test_reshape(shape: tuple[int, ...], constant: bool) -> None:
    check("Reshape", random(2, 3, 4), _ints(*shape), constants=[1] if constant else [])


def test_reshape_of_an_empty_tensor() -> None:
    check("Reshape", random(0, 3, 4), _ints(3, 4, 0), allowzero=1)
    check("Reshape", random(0, 3, 4), _ints(3, 4, 0), allowzero=1, constants=[1])
    check("Reshape", random(0, 3), _ints(0, 3, 1), constants=[1])


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
def test_flatten(axis: int) -> None:
    check("Flatten", random(2, 3, 4), axis=axis)


def test_squeeze_and_unsqueeze() -> None:
    check("Squeeze", random(1, 3, 1, 4))
    check("Squeeze", random(1, 3, 1, 4), _ints(-2), constants=[1])
    check("Squeeze", random(1, 3, 1, 4), opset=11, axes=[0, 2])
    check("Unsqueeze", random(3, 4), _ints(0, -1), constants=[1])
    check("Unsqueeze", random(3, 4), opset=11, axes=[1, 3])


@pytest.mark.parametrize("order", [None, [0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 1, 3], [1, 0, 3, 2]])
@pytest.mark.parametrize("dtype", TYPES)
def test_transpose(order: list[int] | None, dtype: type) -> None:
    check("Transpose", random(2, 3, 4, 5, dtype=dtype), **({"perm": order} if order else {}))


@pytest.mark.parametrize("target", [(2, 3, 4), (3, 1), (1,), (5, 1, 3, 4)])
@pytest.mark.parametrize("constant", [False, True])
def test_expand(target: tuple[int, ...], constant: bool) -> None:
    check("Expand", random(3, 1), _ints(*target), constants=[1] if constant else [])


SLICES = [
    ([1], [3], [0], [1]),
    ([0, 1], [9, 4], [0, 2], [1, 1]),
    ([-1], [-9], [1], [-1]),
    ([5], [0], [2], [-2]),
    ([0], [2**31 - 1], [1], [2]),
    ([-3, -2], [-1, 99], [2, 0], [1, 1]),
    ([3], [1], [0], [1]),
    ([2**62], [-(2**62)], [1], [-1]),
]


@pytest.mark.parametrize(("starts", "ends", "axes", "steps"), SLICES)
@pytest.mark.parametrize("symbolic", [False, True])
def test_slice(starts: list[int], ends: list[int], axes: list[int], steps: list[int], symbolic: bool) -> None:
    check(
        "Slice",
        random(4, 5, 6),
        _ints(*starts),
        _ints(*ends),
        _ints(*axes),
        _ints(*steps),
        constants=[1, 2, 3, 4],
        symbolic=symbolic,
    )


@pytest.mark.parametrize(("starts", "ends"), [(0, 3), (-2, 9), (1, -1), (3, 1), (-9, 2)])
def test_slice_with_bounds_that_are_inputs(starts: int, ends: int) -> None:
    check("Slice", random(5, 3), _ints(starts), _ints(ends), _ints(0), constants=[3])


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", TYPES)
def test_concat(axis: int, dtype: type) -> None:
    shapes = [[3, 4, 5] for _ in range(3)]
    for k, shape in enumerate(shapes):
        shape[axis] = (2, 1, 4)[k]
    check("Concat", *(random(*s, dtype=dtype, seed=k) for k, s in enumerate(shapes)), axis=axis)


def test_concat_of_many_and_of_empty_tensors() -> None:
    check("Concat", *(random(2, k % 3 + 1, seed=k) for k in range(20)), axis=1)
    check("Concat", random(2, 0), random(2, 3), random(2, 0), axis=1)
    check("Concat", random(2, 3), axis=0)


@pytest.mark.parametrize("sizes", [[2, 4, 1], [7], [0, 7], None])
def test_split(sizes: list[int] | None) -> None:
    parts = [np.float32] * (len(sizes) if sizes else 3)
    given = [random(3, 7)] + ([_ints(*sizes)] if sizes else [])
    check("Split", *given, axis=1, outputs=parts, constants=[1], **({} if sizes else {"num_outputs": 3}))
    if sizes:
        check("Split", random(7, 3), axis=0, outputs=parts, opset=11, split=sizes)


@pytest.mark.parametrize("repeats", [(1, 1, 1), (2, 1, 3), (1, 4, 1), (0, 1, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64])
def test_tile(repeats: tuple[int, ...], dtype: type) -> None:
    check("Tile", random(2, 3, 4, dtype=dtype), _ints(*repeats), constants=[1])


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_and_space(mode: str) -> None:
    check("DepthToSpace", random(2, 12, 3, 5), blocksize=2, mode=mode)
    check("SpaceToDepth", random(2, 3, 4, 6), blocksize=2)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
@pytest.mark.parametrize("bounds", [(0, 10, 3), (5, -3, -2), (3, 3, 1), (2, 1, 1)])
def test_range(dtype: type, bounds: tuple[int, int, int]) -> None:
    check("Range", *(np.array(v, dtype) for v in bounds), constants=[0, 1, 2], want=[np.arange(*bounds, dtype=dtype)])


@pytest.mark.parametrize("dtype", TYPES)
def test_constant_of_shape(dtype: type) -> None:
    value = numpy_helper.from_array(np.array([1], dtype))
    check("ConstantOfShape", _ints(2, 3), outputs=[dtype], value=value)
    check("ConstantOfShape", _ints(2, 0, 3), outputs=[dtype], value=value, constants=[0])


def test_shape_and_size() -> None:
    x = random(2, 3, 5)
    check("Shape", x, outputs=[np.int64])
    check("Shape", x, outputs=[np.int64], start=1, end=-1)
    check("Shape", x, outputs=[np.int64], symbolic=True, start=-2)
    check("Size", x, outputs=[np.int64], symbolic=True)


@pytest.mark.parametrize("int64", ["native", "pair"])
def test_a_chain_of_views_of_symbolic_dimensions(int64: str) -> None:
    """(batch, length, heads * size) to (batch, heads, length, size), cut, joined with itself and back."""
    heads = 3
    nodes = [
        helper.make_node("Shape", ["x0"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Gather", ["shape", "one"], ["length"]),
        helper.make_node("Concat", ["batch", "length", "three", "minus"], ["split"], axis=0),
        helper.make_node("Reshape", ["x0", "split"], ["s"]),
        helper.make_node("Transpose", ["s"], ["t"], perm=[0, 2, 1, 3]),
        helper.make_node("Slice", ["t", "zero", "minus", "two"], ["cut"]),
        helper.make_node("Concat", ["t", "cut"], ["joined"], axis=2),
        helper.make_node("Transpose", ["joined"], ["back"], perm=[0, 2, 1, 3]),
        helper.make_node("Concat", ["batch", "minus", "width"], ["merge"], axis=0),
        helper.make_node("Reshape", ["back", "merge"], ["y"]),
    ]
    weights = {"zero": 0, "one": 1, "two": 2, "three": heads, "minus": -1, "width": heads * 4}
    for length in (1, 2, 7):
        graph = helper.make_graph(
            nodes,
            "views",
            [helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["batch", "length", heads * 4])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(_ints(v), n) for n, v in weights.items()],
        )
        built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
        check_model(built, [random(2, length, heads * 4)], int64=int64)


def test_wrong_target_shapes_are_refused_with_both_shapes() -> None:
    runner = support.Runner(support.compile_model(model("Reshape", [random(2, 3), _ints(2, 2)])))
    with pytest.raises(Exception, match="cannot reshape"):
        runner(random(2, 3), _ints(2, 2))
