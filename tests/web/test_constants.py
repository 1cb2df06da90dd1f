"""An export calculates what a model makes of constants alone, as ONNX Runtime does natively; everything else stays as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx.helper import make_node as make

from onnxruntime_ep_wgpu.api.constants import MOST_BYTES, calculate_constants
from tests.support import make_model

F = np.float32
CONSTANTS: dict[str, Any] = {
    "shape": np.array([4, 4]),
    "places": np.array([[1], [2]]),
    "ones": np.ones((2, 4), F),
    "zero": F(0),
    "low": F(-100),
}
MASK = [
    make("ConstantOfShape", ["shape"], ["zeros"]),
    make("ScatterND", ["zeros", "places", "ones"], ["regions"]),
    make("Equal", ["regions", "zero"], ["inside"]),
    make("Where", ["inside", "zero", "low"], ["mask"]),
]
ADD = make("Add", ["x", "mask"], ["y"])


def _calculated(nodes: list[onnx.NodeProto], more: dict[str, Any] | None = None) -> tuple[list[str], onnx.ModelProto]:
    model = make_model(nodes, {"x": (F, [4, 4])}, CONSTANTS | (more or {}))
    read = ir.from_proto(model)
    calculate_constants(read)
    made = ir.to_proto(read)
    x = np.random.default_rng(0).normal(size=(4, 4)).astype(F)
    runs = [
        ort.InferenceSession(it.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
        for it in (model, made)
    ]
    for one, other in zip(*runs, strict=True):
        np.testing.assert_array_equal(one, other)
    return [it.op_type for it in made.graph.node], made


def test_a_mask_that_is_made_of_constants_is_a_weight() -> None:
    left, made = _calculated([*MASK, ADD])
    assert left == ["Add"] and len(made.graph.initializer) == len(CONSTANTS) + 1


def test_what_is_a_result_of_the_model_stays() -> None:
    shown = make("Cast", ["inside"], ["z"], to=onnx.TensorProto.FLOAT)
    left, _ = _calculated([*MASK, ADD, shown])
    assert left == ["ConstantOfShape", "ScatterND", "Equal", "Add", "Cast"]


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        # The compiler reads it as a view.
        ([make("Expand", ["low", "shape"], ["mask"])], ["Expand"]),
        ([make("DequantizeLinear", ["bytes", "low"], ["mask"])], ["DequantizeLinear"]),
        (
            [
                make("NonZero", ["many"], ["found"]),
                make("ReduceMax", ["found"], ["r"]),
                make("Cast", ["r"], ["mask"], to=1),
            ],
            [],
        ),
        (
            [
                make("Not", ["many"], ["no"]),
                make("Cast", ["no"], ["c"], to=1),
                make("Slice", ["c", "zeros", "fours"], ["mask"]),
            ],
            [],
        ),
    ],
)
def test_views_weights_of_bytes_and_large_steps(nodes: list[onnx.NodeProto], left: list[str]) -> None:
    many = np.zeros((600, 600), np.bool_)
    many[3:5, 1:3] = True
    assert many.size * 4 > MOST_BYTES
    more = {"bytes": np.ones((4, 4), np.int8), "many": many, "zeros": np.array([0, 0]), "fours": np.array([4, 4])}
    found, _ = _calculated([*nodes, ADD], more)
    assert found == [*left, "Add"]


def test_random_numbers_are_drawn_in_runs() -> None:
    nodes = [
        *MASK,
        make("RandomNormalLike", ["mask"], ["random"]),
        make("Mul", ["random", "zero"], ["n"]),
        make("Add", ["x", "n"], ["y"]),
    ]
    assert _calculated(nodes)[0] == ["RandomNormalLike", "Mul", "Add"]


def test_nodes_that_onnx_runtime_does_not_calculate_stay() -> None:
    model = make_model(
        [make("Einsum", ["ones", "places"], ["e"], equation="ab,ca->cb"), make("Add", ["x", "e"], ["y"])],
        {"x": (F, [4, 4])},
        CONSTANTS,
    )
    read = ir.from_proto(model)
    calculate_constants(read)
    assert [it.op_type for it in read.graph] == ["Einsum", "Add"]
