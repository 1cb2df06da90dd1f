"""Whatever a node is like: it is lowered, or a reason says what is wrong with it, for every operator of both domains.

One that falls is made again by its number: `python -m tests.fuzz.nodes --first 17 --count 1`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import onnx
import pytest
from onnx.helper import make_node, make_tensor_value_info

from onnxruntime_ep_wgpu.compiler.lower.ops import registry

from . import nodes

DEFAULT, EXHAUSTIVE = 1500, 20_000


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """onnx_ir logs every text that is none."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def outcomes(first: int, count: int) -> Counter[str]:
    found = {number: nodes.lowered(number) for number in range(first, first + count)}
    assert not {number: it for number, it in found.items() if it.startswith("defect")}
    return Counter(found.values())


def test_no_node_is_a_fault_of_ours() -> None:
    counted = outcomes(0, DEFAULT)
    # The cases are worth something when many are refused and many are not.
    assert min(counted["runs"], counted["refused"]) >= DEFAULT // 4, counted


@pytest.mark.exhaustive
def test_no_further_node_is_a_fault_of_ours() -> None:
    outcomes(DEFAULT, EXHAUSTIVE)


def test_every_operator_is_changed() -> None:
    named = {(it[0].model.graph.node[0].domain, it[0].model.graph.node[0].op_type) for it in nodes.bases()}
    missing = {name for domain, name in registry._OPERATORS.keys() - named if domain}
    assert not missing


@pytest.mark.parametrize("equation", ["a\0b", "a.b", "ab-", "....", "a1b"])
def test_an_equation_that_onnx_never_comes_to_the_end_of_is_refused(equation: str) -> None:
    value = make_tensor_value_info("x", onnx.TensorProto.DOUBLE, [3, 4])
    graph = onnx.helper.make_graph(
        [make_node("Einsum", ["x"], ["y"], equation=equation)], "g", [value], [onnx.ValueInfoProto(name="y")]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)])
    assert nodes.outcome(model) == "refused"
