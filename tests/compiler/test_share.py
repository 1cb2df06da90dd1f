"""Maps that are equal are computed once, unless that costs memory."""

from __future__ import annotations

import numpy as np
from onnx.helper import make_node as node

from tests.support import compile_model, make_model, run_model, without_prelude

F = np.float32


def dispatches(model) -> int:
    return len(compile_model(model).dispatches)


def test_equal_maps_are_computed_once():
    nodes = [
        node("Exp", ["x"], ["a"]),
        node("Exp", ["x"], ["b"]),
        node("Add", ["a", "b"], ["c"]),
        node("Neg", ["c"], ["y"]),
    ]
    program = compile_model(make_model(nodes, {"x": (F, ["n"])}))
    assert sum(without_prelude(text).count("exp_f32(") for kernel in program.kernels for text in kernel.wgsl) == 1


def test_maps_with_other_constants_are_others():
    nodes = [
        node("Elu", ["x"], ["a"], alpha=0.0),
        node("Elu", ["x"], ["b"], alpha=-0.0),
        node("Div", ["a", "b"], ["y"]),
    ]
    model = make_model(nodes, {"x": (F, [4])})
    assert len(compile_model(model).dispatches) == 1


def test_every_result_that_the_caller_receives_is_written():
    nodes = [node("Exp", ["x"], ["a"]), node("Exp", ["x"], ["b"])]
    x = np.array([0.5, 1.5], F)
    for y in run_model(make_model(nodes, {"x": (F, [2])}), x):
        np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)


def test_windows_of_one_image_are_not_put_in_memory_for_two_convolutions():
    weights = {"v": np.ones((8, 3, 3, 3), F), "w": np.ones((8, 3, 3, 3), F)}
    nodes = [node("Conv", ["x", "v"], ["a"], pads=[1] * 4), node("Conv", ["x", "w"], ["b"], pads=[1] * 4)]
    assert dispatches(make_model(nodes, {"x": (F, [1, 3, 9, 9])}, weights)) == 2
