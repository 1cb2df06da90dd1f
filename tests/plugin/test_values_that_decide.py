"""Inputs whose elements decide kernels: axes, steps, scales, depths. Kernels are made for values that come, each once."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import onnxruntime_ep_wgpu as wgpu
from onnxruntime_ep_wgpu.plugin.group import MAX_SPECIALISED
from tests.ops.compare import model, random

I = np.int64  # noqa: E741
F = np.float32
X = random(2, 1, 5, 4)


def ints(*values: int) -> np.ndarray:
    return np.array(values, I)


def reals(*values: float) -> np.ndarray:
    return np.array(values, F)


CASES: dict[str, tuple[str, list[list[np.ndarray | None]], dict[str, Any]]] = {
    "axes to reduce": ("ReduceSum", [[X, ints(-1)], [X, ints(0)], [X, ints(2)]], {}),
    "axes to reduce away": ("ReduceMax", [[X, ints(0, 2)], [X, ints(-3, 3)]], {"keepdims": 0}),
    "axes to reduce by logarithms": ("ReduceLogSumExp", [[X, ints(1, 2)], [X, ints(0, -1)]], {}),
    "axes to squeeze": ("Squeeze", [[X, ints(1)], [X, ints(-3)], [X.reshape(1, 5, 2, 4), ints(0)]], {}),
    "axes to unsqueeze": ("Unsqueeze", [[X, ints(0, -1)], [X, ints(3, 1)], [X, ints(2, 5)]], {}),
    "axes and steps of a slice": (
        "Slice",
        [
            [X, ints(0, 1), ints(9, 4), ints(2, 3), ints(2, 1)],
            [X, ints(-1, 0), ints(-9, 1), ints(3, 0), ints(-1, 1)],
        ],
        {},
    ),
    "axes to pad": ("Pad", [[X, ints(1, 2), None, ints(2)], [X, ints(1, 2), None, ints(-1)]], {}),
    "an axis of sums": ("CumSum", [[X, np.array(2, I)], [X, np.array(-1, I)]], {}),
    "pads of free length": ("Pad", [[X, ints(1, 0, 0, 2, 0, 0, 1, 0)], [X, ints(0, 0, 2, -1, 0, 0, 0, 0)]], {}),
    "pads of Microsoft's": (
        "Pad",
        [[X, ints(1, 0, 0, 2, 0, 0, 1, 0)], [X, ints(0, 0, 2, -1, 0, 0, 0, 0)]],
        {"domain": "com.microsoft"},
    ),
    "repeats": ("Tile", [[X, ints(1, 2, 1, 3)], [X, ints(2, 0, 1, 1)]], {}),
    "scales": ("Resize", [[X, None, reals(1, 1, 2, 2)], [X, None, reals(1, 1, 0.6, 1.7)]], {"mode": "linear"}),
    "a region": (
        "Resize",
        [[X, reals(0, 0, *at, 1, 1, 0.8, 0.9), None, ints(2, 1, 3, 3)] for at in ((0.1, 0.2), (0.3, 0))],
        {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"},
    ),
    "sizes that keep an aspect ratio": (
        "Resize",
        [[X, None, None, ints(7, 9)], [X, None, None, ints(3, 8)]],
        {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"},
    ),
    "a depth of floats": (
        "OneHot",
        [[ints(1, 3, -1), reals(n), reals(2, 5)] for n in (4, 7)],
        {"outputs": [F]},
    ),
    "a depth": ("OneHot", [[ints(1, 3, -1), ints(n), reals(2, 5)] for n in (4, 7)], {"outputs": [F]}),
    "a block": (
        "Col2Im",
        [[random(1, 12, 12), ints(5, 5), ints(2, 3)], [random(1, 12, 15), ints(5, 5), ints(1, 3)]],
        {},
    ),
}


def sessions(op: str, arrays: list[np.ndarray | None], symbolic: bool, **how: Any) -> tuple[Any, Any]:
    made = model(op, arrays, symbolic=False, **how)
    if symbolic:  # the extents of the data, and the length of a list where it follows from their number
        for it in made.graph.input[: 2 if op in ("Pad", "Tile") and len(arrays) == 2 else 1]:
            for dim in it.type.tensor_type.shape.dim:
                dim.ClearField("dim_value")
    for it in made.graph.output:
        it.type.tensor_type.ClearField("shape")
    text = made.SerializeToString()
    return wgpu.session(text), ort.InferenceSession(text, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("symbolic", [False, True], ids=["fixed", "free"])
@pytest.mark.parametrize("case", CASES)
def test_each_value_has_its_kernels(case: str, symbolic: bool) -> None:
    op, runs, how = CASES[case]
    ours, theirs = sessions(op, runs[0], symbolic, **how)
    assert not wgpu.report(ours).on_cpu
    for arrays in (*runs, runs[0]):
        if not symbolic and arrays[0] is not None and arrays[0].shape != runs[0][0].shape:  # type: ignore[union-attr]
            continue
        feeds = {f"x{k}": it for k, it in enumerate(arrays) if it is not None}
        (got,), (want,) = ours.run(None, feeds), theirs.run(None, feeds)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_values_are_compiled_for_once_whatever_the_sizes(compiled: list[dict[str, int]]) -> None:
    ours, _ = sessions("ReduceSum", [X, ints(0, 1)], True)
    for axes in ((0, 1), (2, 3), (0, 1), (-1, -2), (2, 3)):
        for x in (X, random(3, 2, 1, 7)):
            (got,) = ours.run(None, {"x0": x, "x1": ints(*axes)})
            np.testing.assert_allclose(got, x.sum(axes, keepdims=True), rtol=1e-5, atol=1e-5)
    assert compiled == [{"@x1[0]": a, "@x1[1]": b} for a, b in ((2, 3), (-1, -2))]


def test_few_sets_of_values_are_kept(compiled: list[dict[str, int]]) -> None:
    ours, _ = sessions("CumSum", [random(*[2] * 10), np.array(0, I)], False)
    x = random(*[2] * 10)
    order = [*range(1, MAX_SPECIALISED + 2), 9, 1]
    for axis in order:
        np.testing.assert_allclose(ours.run(None, {"x0": x, "x1": np.array(axis, I)})[0], x.cumsum(axis), rtol=1e-5)
    assert [list(it.values()) for it in compiled] == [[it] for it in [*range(1, MAX_SPECIALISED + 2), 1]]


def test_a_report_says_which_inputs_are_looked_at() -> None:
    ours, _ = sessions("Slice", CASES["axes and steps of a slice"][1][0], False)
    (group,) = wgpu.report(ours).values
    assert (group.sizes, group.kernels) == (("x1", "x2"), ("x3", "x4"))
    assert "group 0: sizes follow from the values of 'x1', 'x2'; kernels are made for the values of 'x3', 'x4'" in str(
        wgpu.report(ours)
    )


def test_values_that_no_kernel_takes_are_named() -> None:
    ours, _ = sessions("ReduceSum", [X, ints(0)], False)
    with pytest.raises(Exception, match="axis 9 is out of range for rank 4"):
        ours.run(None, {"x0": X, "x1": ints(9)})
    np.testing.assert_allclose(ours.run(None, {"x0": X, "x1": ints(3)})[0], X.sum(3, keepdims=True), rtol=1e-5)


def test_a_list_of_another_length_is_told() -> None:
    ours, _ = sessions("Tile", [X, ints(1, 1, 1, 1)], True)
    for count, text in ((3, "the element 3 of an input"), (5, "the number of repeats is 4 numbers")):
        with pytest.raises(Exception, match=text):
            ours.run(None, {"x0": X, "x1": ints(*[1] * count)})


def test_what_follows_has_the_shape_of_the_result() -> None:
    """The declared shape of a result says which axes a graph is made for first, so that what reads it runs here too."""
    nodes = [
        helper.make_node("ReduceSum", ["x", "axes"], ["r"], keepdims=0),
        helper.make_node("Add", ["r", "b"], ["y"]),
    ]
    inputs = [("x", TensorProto.FLOAT, [3, 4, 5]), ("axes", TensorProto.INT64, [1]), ("b", TensorProto.FLOAT, [3, 5])]
    values = [helper.make_tensor_value_info("r", TensorProto.FLOAT, [3, 5])]
    graph = helper.make_graph(
        nodes,
        "declared",
        [helper.make_tensor_value_info(*it) for it in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 5])],
        value_info=values,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    ours = wgpu.session(made.SerializeToString())
    assert not wgpu.report(ours).on_cpu
    x, b = random(3, 4, 5), random(3, 5)
    np.testing.assert_allclose(
        ours.run(None, {"x": x, "axes": ints(-2), "b": b})[0], x.sum(1) + b, rtol=1e-5, atol=1e-6
    )


def model_of(nodes: list[Any], inputs: dict[str, tuple[int, list[Any]]], outputs: list[str]) -> bytes:
    info = helper.make_tensor_value_info
    given = [info(name, *kind) for name, kind in inputs.items()]
    graph = helper.make_graph(nodes, "g", given, [helper.ValueInfoProto(name=name) for name in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()


def test_a_program_for_values_may_look_at_other_values() -> None:
    """Bounds of a Range decide a length; only the program that is made for them has to know those of a Slice behind it."""
    constants = [
        helper.make_node("Constant", [], [name], value=helper.make_tensor(name, TensorProto.INT64, shape, [number]))
        for name, shape, number in (("zero", [], 0), ("one", [], 1), ("axis", [1], 0))
    ]
    nodes = [
        helper.make_node("Range", ["a", "b", "d"], ["r"]),
        helper.make_node("Size", ["r"], ["n"]),
        *constants,
        helper.make_node("Range", ["zero", "n", "one"], ["q"]),
        helper.make_node("Slice", ["q", "from", "to", "axis"], ["y"]),
        helper.make_node("Add", ["r", "d"], ["u"]),
    ]
    inputs = {name: (TensorProto.FLOAT, []) for name in "abd"}
    session = wgpu.session(model_of(nodes, inputs | {k: (TensorProto.INT64, [1]) for k in ("from", "to")}, ["y", "u"]))
    for a, b, low, high in ((3, 8, 1, 3), (0, 4, 0, 2), (3, 8, 2, 4), (3, 8, 1, 3)):
        feeds = {"a": F(a), "b": F(b), "d": F(1), "from": ints(low), "to": ints(high)}
        found = session.run(None, {name: np.asarray(value) for name, value in feeds.items()})
        np.testing.assert_array_equal(found[0], np.arange(b - a)[low:high])
        np.testing.assert_array_equal(found[1], np.arange(a, b) + 1)


def test_what_is_inferred_wrongly_beside_an_assumption_runs() -> None:
    """ONNX Runtime says that a scalar has no places of what is not zero."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["z"]),
        helper.make_node("Mul", ["z", "z"], ["y"]),
        helper.make_node("DFT", ["s"], ["t"]),
    ]
    session = wgpu.session(
        model_of(nodes, {"x": (TensorProto.FLOAT, []), "s": (TensorProto.FLOAT, ["N", 1])}, ["y", "t"])
    )
    for count in (5, 2):
        y, t = session.run(None, {"x": np.array(2, F), "s": np.ones((count, 1), F)})
        assert y.shape == (1, 1) and t.shape == (count, 2)


def test_an_extent_that_is_never_the_usual_one_is_taken_for_one_that_it_may_be() -> None:
    """Behind a Resize by 3 the length of a transform is a multiple of 3."""
    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["w"], mode="nearest"),
        helper.make_node("DFT", ["w", "", "axis"], ["y"]),
    ]
    inputs = {
        "x": (TensorProto.FLOAT, ["M", 4, 1]),
        "scales": (TensorProto.FLOAT, [3]),
        "axis": (TensorProto.INT64, []),
    }
    session = wgpu.session(model_of(nodes, inputs, ["y"]))
    assert not wgpu.report(session).on_cpu
    for count, axis in ((3, 1), (3, 0), (1, -3), (1, 1)):
        x = random(count, 4, 1)
        (y,) = session.run(None, {"x": x, "axis": np.array(axis), "scales": reals(3, 1, 1)})
        want = np.fft.fft(np.repeat(x, 3, 0)[..., 0], axis=axis if axis >= 0 else axis + 1)
        np.testing.assert_allclose(y[..., 0] + 1j * y[..., 1], want, rtol=1e-4, atol=1e-4)
