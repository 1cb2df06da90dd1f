"""Views and copies: reshaping, slicing, joining, repeating, of every element type, and chains of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxruntime_ep_wgpu.errors import InputError, UnsupportedError
from tests import provider, support

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


@pytest.mark.costly
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


FAR = [0, 1, 3, 5, 7, -1, -3, -5, -9, 2**31 - 1, 2**31, -(2**31) + 1, -(2**31), 2**63 - 1, -(2**63), -(2**63) + 1]
STEPS = [1, 2, 7, -1, -2, -7, 2**31, -(2**31), 2**63 - 1, -(2**63) + 1]


def _cpu(built: onnx.ModelProto) -> ort.InferenceSession:
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    return ort.InferenceSession(built.SerializeToString(), settings, providers=["CPUExecutionProvider"])


@pytest.mark.costly
@pytest.mark.parametrize("step", STEPS)
def test_slices_with_every_kind_of_bound(step: int) -> None:
    """Constants, of an axis that is known, and of one that is not, of 0, 1 and more elements."""
    generator = np.random.default_rng(abs(step) % 1000)
    pairs = [(s, e) for s in FAR for e in FAR]
    chosen = [pairs[k] for k in generator.permutation(len(pairs))[:24]] + [(0, -(2**31)), (0, 2**31 - 1)]
    nodes, weights = [], {"step": _ints(step), "axis": _ints(0)}
    for k, (start, end) in enumerate(chosen):
        weights |= {f"s{k}": _ints(start), f"e{k}": _ints(end)}
        nodes.append(helper.make_node("Slice", ["x", f"s{k}", f"e{k}", "axis", "step"], [f"y{k}"]))
    for extent in ("n", 5, None):
        x = random(5, 2)
        if extent is None:  # the data is a constant too, and the result of folding is read
            nodes = [helper.make_node("Slice", ["c", *n.input[1:]], [f"t{n.output[0]}"]) for n in nodes]
            nodes += [helper.make_node("Add", [f"ty{k}", "x"], [f"y{k}"]) for k in range(len(chosen))]
            built = support.make_model(nodes, {"x": (np.float32, [1, 2])}, weights | {"c": x})
            theirs = _cpu(_with_outputs(built, np.float32)).run(None, {"x": x[:1]})
            for pair, got, want in zip(chosen, support.run_model(built, x[:1]), theirs, strict=True):
                np.testing.assert_array_equal(got, want, err_msg=f"{pair} of a constant", strict=True)
            continue
        built = _with_outputs(support.make_model(nodes, {"x": (np.float32, [extent, 2])}, weights), np.float32)
        ours, theirs = support.Runner(support.compile_model(built)), _cpu(built)
        for count in (0, 1, 5) if extent == "n" else (5,):
            x = random(count, 2)
            for pair, got, want in zip(chosen, ours(x), theirs.run(None, {"x": x}), strict=True):
                np.testing.assert_array_equal(got, want, err_msg=f"{pair} of {count} ({extent})", strict=True)


@pytest.mark.costly
@pytest.mark.parametrize("step", STEPS)
def test_slices_with_every_kind_of_bound_that_is_an_input(step: int) -> None:
    nodes = [helper.make_node("Slice", ["x", "s", "e", "axis", "step"], ["y"])]
    inputs = {"x": (np.float32, ["n", 2]), "s": (np.int64, [1]), "e": (np.int64, [1])}
    built = support.make_model(nodes, inputs, {"step": _ints(step), "axis": _ints(0)})
    built = _with_outputs(built, np.float32)
    ours, theirs = support.Runner(support.compile_model(built)), _cpu(built)
    generator = np.random.default_rng(abs(step) % 1000)
    for _ in range(24):
        count, start, end = (
            int(v) for v in (generator.choice([0, 1, 5]), generator.choice(FAR), generator.choice(FAR))
        )
        feeds = {"x": random(count, 2), "s": _ints(start), "e": _ints(end)}
        (want,) = theirs.run(None, feeds)
        np.testing.assert_array_equal(ours(*feeds.values())[0], want, err_msg=f"{start}:{end} of {count}", strict=True)


def _with_outputs(built: onnx.ModelProto, dtype: Any) -> onnx.ModelProto:
    for value in built.graph.output:
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return built


EXTENTS = [1, 3, 4]


@pytest.mark.costly
@pytest.mark.parametrize("known", [True, False])
def test_expand_broadcasts_both_ways_or_not_at_all(known: bool) -> None:
    """Every pair of a shape and a target, both static and read in the run: the result of the CPU provider, or an error."""
    inputs = {"x": (np.float32, ["a", "b"]), "t": (np.int64, [2])}
    symbolic = _with_outputs(support.make_model([helper.make_node("Expand", ["x", "t"], ["y"])], inputs), np.float32)
    theirs = _cpu(symbolic)
    ours = None if known else support.Runner(support.compile_model(symbolic))
    for a, b, c, d in itertools.product(EXTENTS, EXTENTS, [*EXTENTS, 5, 0, -1], EXTENTS):
        x, target = random(a, b), _ints(c, d)
        try:
            want = theirs.run(None, {"x": x, "t": target})[0]
        except Exception:
            want = None
        try:
            got = ours(x, target)[0] if ours else support.run_model(model("Expand", [x, target], constants=[1]), x)[0]
        except (InputError, UnsupportedError):
            got = None
        if want is None or min(want.shape) < 0:
            assert got is None, f"{x.shape} by {target}"
        else:
            assert got is not None, f"{x.shape} by {target} should be {want.shape}"
            np.testing.assert_array_equal(got, want, strict=True)


@pytest.mark.parametrize("op", ["Tile", "ConstantOfShape"])
@pytest.mark.parametrize("known", [True, False])
def test_negative_extents_are_refused(op: str, known: bool) -> None:
    arrays = [random(2, 3), _ints(2, -1)] if op == "Tile" else [_ints(2, -1)]
    constants = [len(arrays) - 1] if known else []
    with pytest.raises((InputError, UnsupportedError), match="negative"):
        support.run_model(
            model(op, arrays, constants=constants, outputs=[np.float32]), *arrays[: len(arrays) - len(constants)]
        )


def test_squeeze_without_axes_never_guesses_a_rank() -> None:
    """An axis that has 1 element in some runs only is left to the CPU, whose result has the rank of the run."""
    for shape, claimed in (
        (["b", 4], False),
        (["b", 1], False),
        ([2, 1, 4], True),
        ([1, 1], True),
        ([], True),
    ):
        built = support.make_model([helper.make_node("Squeeze", ["x"], ["y"])], {"x": (np.float32, shape)})
        if claimed:
            x = random(*shape)
            np.testing.assert_array_equal(support.run_model(built, x)[0], x.squeeze(), strict=True)
        else:
            with pytest.raises(UnsupportedError, match=r"axis 0 of .* has 1 element in a run.*give it axes"):
                support.compile_model(built)


def test_squeeze_without_axes_where_no_run_can_have_one_element() -> None:
    """The axis of extent 2 b, or b + 2, is never squeezed."""
    for op, extra in (("Concat", ["x", "x"]), ("Pad", ["x", "pads"])):
        how = {"axis": 0} if op == "Concat" else {}
        nodes = [helper.make_node(op, extra, ["t"], **how), helper.make_node("Squeeze", ["t"], ["y"])]
        weights = {"pads": _ints(1, 0, 1, 0)} if op == "Pad" else {}
        run = support.Runner(support.compile_model(support.make_model(nodes, {"x": (np.float32, ["b", 1])}, weights)))
        for count in (1, 4):
            want = (
                np.concatenate([random(count, 1)] * 2) if op == "Concat" else np.pad(random(count, 1), ((1, 1), (0, 0)))
            )
            np.testing.assert_array_equal(run(random(count, 1))[0], want[:, 0], strict=True)


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("count", [0, 1, 4])
@pytest.mark.parametrize("wide", [False, True])
def test_a_target_extent_of_zero_copies_or_is_an_error(rows: int, count: int, wide: bool) -> None:
    """Reshape to the extent of another input: where that is 0, ONNX takes the extent of the data instead."""
    nodes = [
        helper.make_node("Shape", ["other"], ["s"]),
        helper.make_node("Concat", ["s", "minus"] if wide else ["minus", "s"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    inputs = {"x": (np.float32, ["n", 4]), "other": (np.float32, ["m"])}
    built = _with_outputs(support.make_model(nodes, inputs, {"minus": _ints(-1)}), np.float32)
    feeds = {"x": random(count, 4), "other": random(rows)}
    try:
        want = _cpu(built).run(None, feeds)[0]
    except Exception:
        want = None
    try:
        got = support.run_model(built, *feeds.values())[0]
    except InputError:
        got = None  # loud, where the result would have another shape
    if want is not None and rows:
        assert got is not None
    if got is not None and want is not None:
        np.testing.assert_array_equal(got, want, strict=True)


@pytest.mark.parametrize("declared", [1, 2, None])
def test_squeezing_an_unknown_axis_gives_the_result_of_the_cpu_provider(declared: int | None) -> None:
    """Whatever rank the model declares, every run gives what ONNX Runtime gives."""
    nodes = [helper.make_node("Squeeze", ["x"], ["t"]), helper.make_node("Relu", ["t"], ["y"])]
    built = _with_outputs(support.make_model(nodes, {"x": (np.float32, ["b", 4])}), np.float32)
    if declared:
        names = ["b", 4][2 - declared :]
        built.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, names))
    session, theirs = provider.open_session(built.SerializeToString(), "ours"), _cpu(built)
    for count in (1, 4, 1):
        x = random(count, 4)
        (want,) = theirs.run(None, {"x": x})
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], want, strict=True)
