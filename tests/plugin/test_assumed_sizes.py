"""Convolutions by weights that are inputs, whose extents a run knows: kernels are made for one size until another one comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import onnxruntime_ep_wgpu as wgpu
from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests import support
from tests.ops.compare import model, random

ZERO, ONE, WIDE = np.array(3, np.uint8), np.array(0.5, np.float32), np.array(40, np.float32)


def built(op: str, weights: int, *arrays: np.ndarray, **how: Any) -> onnx.ModelProto:
    """A node whose input number `weights` has extents without numbers, and an operator behind it."""
    made = model(op, arrays, **how)
    dims = made.graph.input[weights].type.tensor_type.shape.dim
    for k, dim in enumerate(dims):
        dim.dim_param = f"extent{k}"
    made.graph.node[0].output[0] = "made"
    made.graph.node.append(helper.make_node("Identity" if op == "QLinearConv" else "Abs", ["made"], ["y0"]))
    return made


def image(*shape: int) -> np.ndarray:
    return random(*shape)


CASES: dict[str, tuple[str, int, list[np.ndarray], dict[str, Any]]] = {
    "plain": ("Conv", 1, [image(1, 3, 9, 8), image(4, 3, 3, 3)], {}),
    "padded": ("Conv", 1, [image(2, 3, 9, 8), image(4, 3, 3, 3)], {"pads": [1, 1, 1, 1]}),
    "same": ("Conv", 1, [image(1, 3, 9, 8), image(4, 3, 3, 3)], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "groups": ("Conv", 1, [image(1, 4, 9, 8), image(8, 2, 3, 3)], {"group": 2, "dilations": [2, 1]}),
    "channels": ("Conv", 1, [image(1, 4, 9, 8), image(4, 1, 3, 3)], {"group": 4}),
    "transposed": ("ConvTranspose", 1, [image(1, 3, 5, 4), image(3, 2, 3, 3)], {"strides": [2, 1]}),
    "integers": (
        "ConvInteger",
        1,
        [random(1, 3, 9, 8, dtype=np.uint8), random(4, 3, 3, 3, dtype=np.uint8)],
        {"outputs": [np.int32]},
    ),
    "quantised": (
        "QLinearConv",
        3,
        [
            random(1, 3, 9, 8, dtype=np.uint8),
            ONE,
            ZERO,
            random(4, 3, 3, 3, dtype=np.uint8),
            ONE,
            ZERO,
            np.array(40, np.float32),
            ZERO,
        ],
        {},
    ),
}


@pytest.mark.costly
@pytest.mark.parametrize("case", CASES)
def test_kernels_of_any_size(case: str) -> None:
    op, place, arrays, how = CASES[case]
    made = built(op, place, *arrays, **how).SerializeToString()
    ours = wgpu.session(made)
    assert not wgpu.report(ours).on_cpu
    theirs = ort.InferenceSession(made, providers=["CPUExecutionProvider"])
    for kernel in ((3, 3), (1, 1), (2, 3), (3, 3)):
        weights = random(*arrays[place].shape[:2], *kernel, dtype=arrays[place].dtype)
        feeds = {f"x{k}": weights if k == place else it for k, it in enumerate(arrays)}
        (want,), (got,) = theirs.run(None, feeds), ours.run(None, feeds)
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-4, atol=1e-4)


def test_a_window_that_does_not_fit_is_told_of_its_own_size() -> None:
    op, place, arrays, how = CASES["plain"]
    ours = wgpu.session(built(op, place, *arrays, **how).SerializeToString())
    with pytest.raises(Exception, match="a window of 11 is larger than the 9 elements"):
        ours.run(None, {"x0": arrays[0], "x1": image(4, 3, 11, 1)})


def test_what_cannot_be_compiled_again_takes_the_size_that_the_node_says() -> None:
    """Programs of files and browsers have no graph."""
    x, w = image(1, 3, 9, 8), image(4, 3, 3, 3)
    with pytest.raises(UnsupportedError, match=r"sizes that are free \(x1_2\) decide the size of the kernel"):
        support.compile_model(model("Conv", [x, w], symbolic=True))
    said = model("Conv", [x, w], symbolic=True, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    whole = model("Conv", [x, w], pads=[1, 1, 1, 1])
    np.testing.assert_allclose(
        support.run_model(said, x, w)[0], support.run_model(whole, x, w)[0], rtol=1e-5, atol=1e-5
    )


def test_what_is_refused_for_the_size_that_was_assumed_says_so() -> None:
    op, place, arrays, how = CASES["plain"]
    made = built(op, place, *arrays, **how)
    made.graph.node[1].CopyFrom(helper.make_node("Add", ["made", "b"], ["y0"]))
    made.graph.initializer.append(numpy_helper.from_array(image(1, 4, 7, 6), "b"))
    ours = wgpu.session(made.SerializeToString())
    (refused,) = wgpu.report(ours).on_cpu
    assert "the size of the kernel of 'Conv_0' is assumed to be 1, because the model does not fix it" in (
        refused.reason or ""
    )
    feeds = {f"x{k}": it for k, it in enumerate(arrays)}
    theirs = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(ours.run(None, feeds)[0], theirs.run(None, feeds)[0], rtol=1e-4, atol=1e-4)


def gathered(last: int) -> list[np.ndarray]:
    return [random(5, 4, 3), np.random.default_rng(last).integers(0, 3, (2, last))]


def of_heads(op: str, heads: int) -> list[np.ndarray]:
    query = random(2, 3, heads * 8) if op == "MultiHeadAttention" else random(2, heads, 3, 8)
    return [query, *(random(2, heads, 5, 8, seed=k) for k in (1, 2))]


def linear(size: int) -> list[np.ndarray]:
    parts = [random(1, 3, 2 * size, seed=k) for k in range(2)]
    return [*parts, random(1, 3, 8, seed=2), random(1, 2, size, 4, seed=3)]


def taps(count: int) -> list[np.ndarray]:
    return [random(1, 4, 7), random(4, 1, count, seed=1)]


SIZED: dict[str, tuple[str, list[list[np.ndarray]], dict[str, Any]]] = {
    "heads": ("Attention", [of_heads("Attention", n) for n in (8, 3)], {"opset": 24}),
    "heads of keys": (
        "MultiHeadAttention",
        [of_heads("MultiHeadAttention", 3)] * 2,
        {"num_heads": 3, "domain": "com.microsoft"},
    ),
    "a key": (
        "LinearAttention",
        [linear(n) for n in (4, 8)],
        {
            "q_num_heads": 2,
            "kv_num_heads": 2,
            "update_rule": "linear",
            "domain": "com.microsoft",
            "outputs": [np.float32] * 2,
        },
    ),
    "taps": (
        "CausalConvWithState",
        [taps(n) for n in (4, 2)],
        {"domain": "com.microsoft", "outputs": [np.float32] * 2},
    ),
}


@pytest.mark.costly
@pytest.mark.parametrize("case", SIZED)
def test_sizes_that_kernels_are_made_for(case: str) -> None:
    op, runs, how = SIZED[case]
    made = model(op, runs[0], symbolic=True, **how).SerializeToString()
    ours = wgpu.session(made)
    assert not wgpu.report(ours).on_cpu
    theirs = ort.InferenceSession(made, providers=["CPUExecutionProvider"])
    for arrays in (*runs, runs[0]):
        feeds = {f"x{k}": it for k, it in enumerate(arrays)}
        for got, want in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_the_rank_of_a_result_tells_how_many_indices_name_an_element() -> None:
    made = model("GatherND", gathered(2), symbolic=True)
    made.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, ["n", "m"]))
    ours = wgpu.session(made.SerializeToString())
    assert not wgpu.report(ours).on_cpu
    x, places = gathered(2)
    np.testing.assert_array_equal(ours.run(None, {"x0": x, "x1": places})[0], x[places[:, 0], places[:, 1]])


def test_a_guess_makes_no_index_wrong() -> None:
    """The axes of a run are guessed when the session is made; an index that fits only the true ones is no error of the model."""
    made = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[2, n] x, int64[1] axes) => (float[i, j, k] y) <int64[2] at = {-2, 1}>
        { u = Unsqueeze (x, axes) y = Gather <axis = 0> (u, at) }"""
    )
    session = wgpu.session(made.SerializeToString(), allow_cpu_only=True)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (y,) = session.run(None, {"x": x, "axes": np.array([2])})
    np.testing.assert_array_equal(y, x[:, :, None])


def test_an_element_and_an_extent_that_were_both_guessed() -> None:
    """The position is in the sequence of the run, and not in the one that was guessed."""
    made = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        g (float[n, 2] x, int64 place) => (float[i, j] y)
        { s = SplitToSequence <axis = 0> (x) t = SequenceAt (s, place) y = Add (t, t) }"""
    )
    session = wgpu.session(made.SerializeToString())
    for rows, place in ((3, 2), (1, 0), (4, 1), (3, -3)):
        x = random(rows, 2)
        (y,) = session.run(None, {"x": x, "place": np.array(place)})
        np.testing.assert_array_equal(y, 2 * x[[place]])
