"""What holds of every operator of com.microsoft that has a kernel: free sizes, and weights that are inputs."""

from __future__ import annotations

import dataclasses

import onnx
import onnx_ir as ir
import pytest

from onnxruntime_ep_wgpu.compiler.lower.lower import attempt
from onnxruntime_ep_wgpu.compiler.lower.ops import registry
from onnxruntime_ep_wgpu.errors import FreeSize
from onnxruntime_ep_wgpu.program.settings import CompileSettings
from onnxruntime_ep_wgpu.program.target import Target

from .contributed import EXAMPLES
from .enumerated import MICROSOFT, Example

NAMED = [pytest.param(it, id=f"{it.op}-{k}") for k, it in enumerate(EXAMPLES)]
FIXED = {"GatherND", "GroupQueryAttention", "MoE", "QMoE"}
"""Operators with a size that has to be known: the rank of a result, rows of bytes, weights of experts."""


@pytest.fixture(autouse=True)
def way() -> None:
    """Nothing is run, so these tests run once."""


def reason(model: onnx.ModelProto) -> str | None:
    graph = ir.from_proto(model).graph
    (found,) = attempt(graph, graph.opset_imports, Target(), CompileSettings(compiled_again=True)).reasons
    return found


def test_every_operator_has_an_example() -> None:
    shown = {it.op for it in EXAMPLES}
    assert {name for domain, name in registry._OPERATORS if domain == MICROSOFT} == shown


@pytest.mark.parametrize("example", NAMED)
def test_a_node_runs_with_free_sizes(example: Example) -> None:
    found = reason(example.model(symbolic=True))
    assert found is None or (example.op in FIXED and isinstance(found, FreeSize)), found


@pytest.mark.parametrize("example", NAMED)
@pytest.mark.parametrize("symbolic", [False, True])
def test_a_node_runs_with_inputs_for_constants(example: Example, symbolic: bool) -> None:
    found = reason(dataclasses.replace(example, constants=()).model(symbolic=symbolic))
    assert found is None or (symbolic and example.op in FIXED and isinstance(found, FreeSize)), found
