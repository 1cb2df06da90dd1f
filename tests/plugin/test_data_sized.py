"""Results whose sizes data decides: their shapes are read back when a group has run, and the next group goes on with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxruntime_ep_wgpu as wgpu
from onnxruntime_ep_wgpu.plugin import watch
from tests.ops.compare import model, random

F = np.float32
CPU = ["CPUExecutionProvider"]


def compared(made: Any, *runs: dict[str, np.ndarray], groups: int = 1) -> list[list[np.ndarray]]:
    """Our results of these runs, which are the CPU provider's."""
    text = made.SerializeToString()
    ours, theirs = wgpu.session(text), ort.InferenceSession(text, providers=CPU)
    assert not wgpu.report(ours).on_cpu
    assert wgpu.report(ours).partitions == groups
    results = []
    for feeds in runs:
        got, want = ours.run(None, feeds), theirs.run(None, feeds)
        for a, b in zip(got, want, strict=True):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            np.testing.assert_array_equal(a, b)
        results.append(got)
    return results


def sparse(*shape: int, dtype: Any = F, seed: int = 0, part: float = 0.4) -> np.ndarray:
    values = np.random.default_rng(seed).random(shape)
    return np.where(values < part, values * 100 + 1, 0).astype(dtype)


@pytest.mark.parametrize("dtype", [F, np.bool_, np.uint8, np.int64, np.int32])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 0), (2, 1, 4, 3), (300, 131)])
@pytest.mark.parametrize("symbolic", [False, True])
def test_elements_that_are_not_zero(shape: tuple[int, ...], dtype: Any, symbolic: bool) -> None:
    runs = [sparse(*shape, dtype=dtype, seed=k, part=part) for k, part in enumerate((0.4, 0, 1))]
    compared(model("NonZero", runs[:1], symbolic=symbolic, outputs=[np.int64]), *({"x0": it} for it in runs))


def test_a_number_is_not_zero_and_neither_is_nan() -> None:
    compared(model("NonZero", [random(4)], outputs=[np.int64]), {"x0": np.array([0, np.nan, -0.0, np.inf], F)})


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("dtype", [F, np.uint8, np.int64, np.bool_])
@pytest.mark.parametrize("length", [2, 3, 0])
def test_slices_whose_condition_holds(axis: int | None, dtype: Any, length: int) -> None:
    x = random(5, 3, 7).astype(dtype)
    made = model("Compress", [x, np.zeros(length, bool)], **({} if axis is None else {"axis": axis}))
    compared(made, *({"x0": x, "x1": np.random.default_rng(k).random(length) < 0.6} for k in range(3)))


def test_a_condition_that_is_longer_than_the_axis_is_cut_wherever_it_lies() -> None:
    x, condition = random(3, 2), np.array([1, 0, 1, 1, 1], bool)
    compared(model("Compress", [x, condition], axis=0), {"x0": x, "x1": condition})
    compared(model("Compress", [x, condition], axis=0, constants=[1]), {"x0": x})


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("ordered", [0, 1])
@pytest.mark.parametrize("dtype", [F, np.int8, np.int64])
def test_distinct_elements_and_slices(axis: int | None, ordered: int, dtype: Any) -> None:
    for shape in ((4, 3, 2), (1, 5, 1), (300, 2, 1)):
        x = np.random.default_rng(3).integers(-2, 2, shape).astype(dtype)
        made = model(
            "Unique",
            [x],
            outputs=[dtype, *[np.int64] * 3],
            sorted=ordered,
            **({} if axis is None else {"axis": axis}),
        )
        compared(made, {"x0": x}, {"x0": x[::-1].copy()})


def test_zeros_are_equal_and_so_are_numbers_that_are_none() -> None:
    x = np.array([0, np.nan, -0.0, 1, np.nan, -np.inf, np.inf], F)
    ours = wgpu.session(model("Unique", [x], outputs=[F, *[np.int64] * 3]).SerializeToString())
    for got, want in zip(ours.run(None, {"x0": x}), np.unique(x, True, True, True), strict=True):
        np.testing.assert_array_equal(got, want)


def test_nothing_has_no_distinct_elements() -> None:
    x = np.zeros((0,), F)
    ours = wgpu.session(model("Unique", [x], outputs=[F, *[np.int64] * 3], symbolic=True).SerializeToString())
    assert [it.shape for it in ours.run(None, {"x0": x})] == [(0,)] * 4
    assert ours.run(None, {"x0": np.ones(3, F)})[0].tolist() == [1]


def boxes(batch: int, classes: int, count: int, seed: int = 0, ties: bool = True) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    corner, size = rng.random((batch, count, 2)), rng.random((batch, count, 2)) * 0.3
    scores = rng.random((batch, classes, count))
    return [
        np.concatenate([corner, corner + size], -1).astype(F),
        (np.round(scores * 20) / 20 if ties else scores).astype(F),
    ]


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("sizes", [(1, 1, 6), (2, 3, 300), (1, 2, 1025), (1, 1, 0)])
@pytest.mark.parametrize("least", [None, 0.5, 2])
def test_boxes_that_no_other_one_covers(centred: int, sizes: tuple[int, int, int], least: float | None) -> None:
    given = boxes(*sizes)
    given[0][..., [0, 2]] = given[0][..., [2, 0]]  # corners come in any order
    if centred:
        given[0][..., 2:] = np.abs(given[0][..., 2:]) * 0.2
    limits = [np.array([it], F) for it in (0.3, least) if it is not None]
    arrays = [*given, np.array([5], np.int64), *limits]
    made = model("NonMaxSuppression", arrays, outputs=[np.int64], center_point_box=centred)
    feeds = {f"x{k}": it for k, it in enumerate(arrays)}
    compared(made, feeds, {**feeds, "x2": np.array([2000], np.int64)}, {**feeds, "x2": np.array([0], np.int64)})


def test_boxes_with_a_score_at_the_edges_of_blocks() -> None:
    """Classes that differ in how many boxes have a score: kernels look at no more of a block than there are."""
    counts = [0, 1, 2, 31, 32, 33, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 1300]
    places, scores = boxes(1, len(counts), 1300)
    chance = np.random.default_rng(3)
    for number, count in enumerate(counts):
        hidden = chance.permutation(1300)[count:]
        scores[0, number, hidden] = -1
    limits = [np.array([400], np.int64), np.array([0.3], F), np.array([-0.5], F)]
    arrays = [places, scores, *limits]
    compared(model("NonMaxSuppression", arrays, outputs=[np.int64]), {f"x{k}": it for k, it in enumerate(arrays)})


def test_without_a_number_of_boxes_none_stays() -> None:
    given = boxes(1, 2, 9)
    compared(model("NonMaxSuppression", given, outputs=[np.int64]), {"x0": given[0], "x1": given[1]})


def detector(free: bool) -> Any:
    """A network, boxes and scores of it, those that stay, and what is told of these: as detectors are exported."""
    n = "n" if free else 2
    rng = np.random.default_rng(1)
    weights = {
        "w": rng.standard_normal((8, 3, 3, 3)).astype(F) * 0.3,
        "v": rng.standard_normal((7, 8, 1, 1)).astype(F) * 0.3,
        "split": np.array([4, 3], np.int64),
        "most": np.array([10], np.int64),
        "iou": np.array([0.4], F),
        "least": np.array([0.2], F),
        "flat": np.array([0, 7, -1], np.int64),
        "two": np.array(2, np.int64),
        "zero": np.array([0, 2], np.int64),
    }
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["h"]),
        helper.make_node("Sigmoid", ["h"], ["s"]),
        helper.make_node("Reshape", ["s", "flat"], ["p"]),
        helper.make_node("Split", ["p", "split"], ["b", "scores"], axis=1),
        helper.make_node("Transpose", ["b"], ["boxes"], perm=[0, 2, 1]),
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["kept"]),
        helper.make_node("Gather", ["kept", "zero"], ["which"], axis=1),
        helper.make_node("GatherND", ["boxes", "which"], ["found"]),
        helper.make_node("ReduceSum", ["found"], ["total"], keepdims=0),
    ]
    outputs = [
        ("kept", TensorProto.INT64, ["m", 3]),
        ("found", TensorProto.FLOAT, ["m", 4]),
        ("total", TensorProto.FLOAT, []),
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [n, 3, 21, 17])],
        [helper.make_tensor_value_info(*it) for it in outputs],
        [numpy_helper.from_array(it, name) for name, it in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("free", [False, True])
def test_a_detector_runs_whole_in_two_groups(free: bool) -> None:
    text = detector(free).SerializeToString()
    ours, theirs = wgpu.session(text), ort.InferenceSession(text, providers=CPU)
    assert (wgpu.report(ours).on_cpu, wgpu.report(ours).partitions) == ((), 2)
    for seed, batch in enumerate((2, 2, 1) if free else (2, 2)):
        feeds = {"image": random(batch, 3, 21, 17, seed=seed)}
        got, want = ours.run(None, feeds), theirs.run(None, feeds)
        np.testing.assert_array_equal(got[0], want[0])
        for a, b in zip(got[1:], want[1:], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_what_the_next_run_submits_is_recorded_while_a_size_is_read() -> None:
    session = wgpu.session(detector(False).SerializeToString())
    queue = next(it.state for it in watch.live() if it.state is not None).device().queue
    feeds = {"image": random(2, 3, 21, 17)}
    for _ in range(3):
        session.run(None, feeds)
    want = session.run(None, feeds)
    before = queue.shared.runs_ahead
    for got, it in zip(session.run(None, feeds), want, strict=True):
        np.testing.assert_array_equal(got, it)
    assert queue.shared.runs_ahead == before + 2  # groups


def small(nodes: list[Any], outputs: list[tuple[str, int, Any]], **weights: np.ndarray) -> Any:
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info(*it) for it in outputs],
        [numpy_helper.from_array(it, name) for name, it in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_elements_that_kernels_make_decide_sizes_of_the_next_group() -> None:
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Cast", ["top"], ["k"], to=TensorProto.INT64),
        helper.make_node("Unsqueeze", ["k", "first"], ["ks"]),
        helper.make_node("Abs", ["x"], ["y"]),
        helper.make_node("TopK", ["y", "ks"], ["best", "where"], axis=0),
        helper.make_node("Range", ["none", "k", "one"], ["r"]),
        helper.make_node("Neg", ["r"], ["range"]),
    ]
    outputs = [
        ("best", TensorProto.FLOAT, ["k", 4]),
        ("where", TensorProto.INT64, ["k", 4]),
        ("range", TensorProto.INT64, ["k"]),
    ]
    made = small(nodes, outputs, first=np.array([0], np.int64), none=np.array(0, np.int64), one=np.array(1, np.int64))
    runs = [{"x": np.minimum(random(9, 4, seed=k) * 3, top).astype(F)} for k, top in enumerate((1, 3, 2))]
    for it in runs:
        it["x"][0, 0] = round(float(it["x"].max()))
    compared(made, *runs, groups=2)


def test_sizes_that_do_not_depend_on_each_other_are_read_at_once() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("NonZero", ["y"], ["a"]),
        helper.make_node("Unique", ["y"], ["b"]),
        helper.make_node("Shape", ["a"], ["s"]),
        helper.make_node("Exp", ["b"], ["e"]),
        helper.make_node("Transpose", ["a"], ["t"]),
        helper.make_node("GatherND", ["y", "t"], ["g"]),
    ]
    outputs = [("y", TensorProto.FLOAT, ["n", 4]), ("g", TensorProto.FLOAT, ["m"]), ("e", TensorProto.FLOAT, ["k"])]
    text = small(nodes, outputs).SerializeToString()
    ours, theirs = wgpu.session(text), ort.InferenceSession(text, providers=CPU)
    assert wgpu.report(ours).partitions == 2
    for k, rows in enumerate((3, 40, 0)):
        feeds = {"x": random(rows, 4, seed=k)}
        for got, want in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_captured_run_cannot_follow_sizes() -> None:
    made = model("NonZero", [random(4)], outputs=[np.int64]).SerializeToString()
    with pytest.raises(wgpu.UnsupportedError, match="the size of 'y0' depends on data"):
        wgpu.session(made, enableGraphCapture=True)
