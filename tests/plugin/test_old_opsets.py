"""Models of opsets before 7: what the CPU provider runs, this one runs alike; for the rest both say the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests import provider

F = TensorProto.FLOAT
# operator, attributes, shapes of the inputs
CASES: list[tuple[str, dict[str, Any], list[list[int]]]] = [
    ("Add", {}, [[2, 3], [2, 3]]),
    ("Add", {"axis": 0, "broadcast": 1}, [[2, 3], [2]]),
    ("Relu", {}, [[2, 3]]),
    ("Gemm", {"broadcast": 1}, [[2, 3], [3, 4], [4]]),
    ("BatchNormalization", {"is_test": 1}, [[2, 3, 4, 4], [3], [3], [3], [3]]),
    ("Dropout", {"is_test": 1}, [[2, 3]]),
    ("Softmax", {}, [[2, 3]]),
    ("Upsample", {"width_scale": 2.0, "height_scale": 2.0}, [[1, 1, 2, 3]]),
    ("Max", {}, [[2, 3], [2, 3]]),
    ("MaxPool", {"kernel_shape": [2, 2]}, [[1, 1, 4, 4]]),
    ("Conv", {}, [[1, 1, 4, 4], [1, 1, 2, 2]]),
    ("MatMul", {}, [[2, 3], [3, 2]]),
    ("Reshape", {"shape": [3, 2]}, [[2, 3]]),
    ("Sum", {}, [[2, 3], [2, 3]]),
    ("Pow", {}, [[2, 3], [2, 3]]),
    ("Clip", {"min": 0.0, "max": 1.0}, [[2, 3]]),
    ("HardSigmoid", {}, [[2, 3]]),
    ("Concat", {}, [[2, 3], [2, 3]]),
    ("Concat", {"axis": 0}, [[2, 3], [2, 3]]),
    ("Pad", {"paddings": [0, 1, 0, 1]}, [[2, 3]]),
    ("Transpose", {}, [[2, 3]]),
    ("ReduceSum", {"axes": [1]}, [[2, 3]]),
]


@pytest.mark.parametrize("opset", range(1, 8))
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{len(case[1])}")
def test_an_old_operator_gives_what_the_cpu_provider_gives(case: Any, opset: int) -> None:
    op, attributes, shapes = case
    names = [f"x{k}" for k in range(len(shapes))]
    inputs = [helper.make_tensor_value_info(n, F, s) for n, s in zip(names, shapes, strict=True)]
    node = helper.make_node(op, names, ["y"], name="old", **attributes)
    graph = helper.make_graph([node], "old", inputs, [helper.make_tensor_value_info("y", F, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4).SerializeToString()
    feeds = {n: np.random.default_rng(0).random(s, np.float32) for n, s in zip(names, shapes, strict=True)}
    try:
        want = provider.open_session(model, "cpu").run(None, feeds)[0]
    except Exception as error:
        message = str(error)
        expected = "Could not find an implementation for" if "NOT_IMPLEMENTED" in message else "INVALID_GRAPH"
        assert expected in message
        with pytest.raises(Exception, match=expected) as raised:
            provider.open_session(model, "ours")
        if "NOT_IMPLEMENTED" in message:
            named = message.partition("implementation for ")[2].partition(")")[0]  # Add(6
            assert f"{named})" in str(raised.value) and "'old'" in str(raised.value)
        return
    np.testing.assert_allclose(provider.open_session(model, "ours").run(None, feeds)[0], want, rtol=1e-5, atol=1e-6)
