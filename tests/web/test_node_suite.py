"""The node cases of ONNX, compiled for browsers and run by the web runtime on Dawn, against the suite's results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from onnxruntime_ep_wgpu.api.web_export import SOFTWARE
from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.compiler.lower.lower import attempt
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE, Target
from tests.conformance import cases, scope
from tests.conformance.compare import difference, to_value
from tests.conformance.direct import UNKNOWN_UNTIL_A_RUN

from . import node

PARTS = 32
FOR_GPUS = (
    "test_matmul_2d", "test_gemm_all_attributes", "test_softmax_axis_1", "test_conv_with_strides_padding",
    "test_layer_normalization_2d_axis1", "test_reduce_sum_keepdims_random", "test_top_k",
)  # fmt: skip
"""Cases whose kernels differ on GPUs; a software adapter takes seconds to compile each of them."""


def compiled(name: str, target: Target) -> node.Case | None:
    """The case, None where something in it does not run on WebGPU; inputs that decide on more than sizes as constants."""
    data = cases.read(name)
    model = onnx.load_model_from_string(data.model)
    arrays = [np.asarray(to_value(it)) for it in data.inputs]
    found = _compile(model, target)
    rest = list(model.graph.input)[1:]
    numbers = all(it.dtype.kind in "biuf" for it in arrays) and len(arrays) == len(rest) + 1
    if isinstance(found, str) and UNKNOWN_UNTIL_A_RUN.search(found) and numbers:
        values = zip(arrays[1:], rest, strict=True)
        model.graph.initializer.extend(numpy_helper.from_array(array, it.name) for array, it in values)
        del model.graph.input[1:]
        found, arrays = _compile(model, target), arrays[:1]
    return None if isinstance(found, str) else node.Case(name, found, tuple(arrays))


def _compile(model: onnx.ModelProto, target: Target) -> Program | str:
    module = ir.from_proto(onnx.shape_inference.infer_shapes(model))
    reasons = [it for it in attempt(module.graph, module.opset_imports, target).reasons if it]
    return reasons[0] if reasons else compile_graph(module.graph, module.opset_imports, target, "case")


def wrong(chosen: list[node.Case], folder: Path) -> dict[str, str]:
    """What is wrong with the results, by case."""
    results, found = node.run(chosen, folder), {}
    for case in chosen:
        got, data = results[case.name], cases.read(case.name)
        if isinstance(got, str):
            found[case.name] = got
            continue
        problems = [
            difference(one, want, data.rtol, data.atol, values=not data.random)
            for one, want in zip(got, data.outputs, strict=True)
        ]
        if any(problems):
            found[case.name] = "; ".join(filter(None, problems))
    return found


def names() -> list[str]:
    return [it.name for it in cases.index().values() if scope.in_scope(it) and it.name not in scope.DISPUTED]


@pytest.mark.parametrize("part", [0, *(pytest.param(it, marks=pytest.mark.exhaustive) for it in range(1, PARTS))])
def test_cases(part: int, tmp_path: Path) -> None:
    made = [compiled(name, SOFTWARE) for name in names()[part::PARTS]]
    chosen = [case for case in made if case is not None]
    assert len(made) - len(chosen) <= max(6, 0.05 * len(made))
    assert not wrong(chosen, tmp_path)


@pytest.mark.parametrize("count", [1, pytest.param(len(FOR_GPUS), marks=pytest.mark.exhaustive)])
def test_cases_compiled_for_gpus(count: int, tmp_path: Path) -> None:
    made = [compiled(name, WEB_BASELINE) for name in FOR_GPUS[:count]]
    assert None not in made
    assert not wrong([case for case in made if case is not None], tmp_path)
