"""Ordinary nodes behind those of other domains on the CPU: what is said of these is true, and what reads them runs here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import TensorProto, defs, helper
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_opkernel_def

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.compiler.graph.inference import contrib, ml, nodes
from onnxruntime_ep_wgpu.compiler.graph.inference.value_info import ValueInfo
from onnxruntime_ep_wgpu.compiler.lower.ops import registry

from .foreign import CONTRIB, LEARNT, ML, MS, NOT_HERE, Foreign

OpenSession = Callable[..., ort.InferenceSession]
CASES = LEARNT + CONTRIB
OPSETS = {"": 21, ML: 5, MS: 1}
OLD_TREES = 3  # of ai.onnx.ml, the last version with these operators
BEHIND = "behind"


def opsets(case: Foreign) -> dict[str, int]:
    return OPSETS | ({ML: OLD_TREES} if case.op_type != "TreeEnsemble" else {})


def renamed(names: list[str], prefix: str) -> list[str]:
    return [name and prefix + name for name in names]


def model_of(cases: dict[str, Foreign], behind: dict[str, list[np.ndarray]]) -> bytes:
    """The nodes of all cases, by prefix. Behind each result a conversion to f32, a product with itself and one of matrices."""
    found, inputs, outputs, weights = [], [], [], []
    for prefix, case in cases.items():
        node = case.node()
        node.name = f"{prefix}foreign"
        node.input[:], node.output[:] = renamed(list(node.input), prefix), renamed(list(node.output), prefix)
        found.append(node)
        for value in case.input_types():
            value.name = prefix + value.name
            inputs.append(value)
        for name, result in zip(node.output, behind.get(prefix, []), strict=False):
            if result.dtype.kind in "OU":
                continue
            steps = [helper.make_node("Cast", [name], [f"{name}_f"], f"{BEHIND}_{name}_cast", to=TensorProto.FLOAT)]
            steps.append(helper.make_node("Mul", [f"{name}_f"] * 2, [f"{name}_m"], f"{BEHIND}_{name}_mul"))
            last = f"{name}_m"
            if result.ndim > 1:
                weight = np.linspace(-1, 1, result.shape[-1] * 2, dtype=np.float32).reshape(-1, 2)
                weights.append(onnx.numpy_helper.from_array(weight, f"{name}_w"))
                steps.append(helper.make_node("MatMul", [last, f"{name}_w"], [f"{name}_y"], f"{BEHIND}_{name}_product"))
                last = f"{name}_y"
            found += steps
            outputs.append(helper.make_value_info(last, helper.make_tensor_type_proto(TensorProto.FLOAT, None)))
    if not behind:
        outputs = [helper.make_value_info(name, onnx.TypeProto()) for node in found for name in node.output]
    graph = helper.make_graph(found, "foreign", inputs, outputs, weights)
    versions = opsets(next(iter(cases.values())))
    return helper.make_model(
        graph, ir_version=10, opset_imports=[helper.make_opsetid(*it) for it in versions.items()]
    ).SerializeToString()


def run_on_cpu(model: bytes, feeds: dict[str, Any]) -> dict[str, np.ndarray]:
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    session = ort.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    return {
        it.name: np.asarray(array) for it, array in zip(session.get_outputs(), session.run(None, feeds), strict=True)
    }


def results(case: Foreign) -> list[np.ndarray]:
    return list(run_on_cpu(model_of({"": case}, {}), case.feeds).values())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_said_of_results_is_true(case: Foreign) -> None:
    operands = [
        ValueInfo() if it is None or isinstance(it, dict) else ValueInfo(ir.DataType(code), it.shape)
        for it, code in zip(case.inputs, map(_code, case.inputs), strict=True)
    ]
    unknown = [ValueInfo(it.dtype) for it in operands]
    node = ir.from_proto(case.node())
    made = results(case)
    for given in (operands, unknown):
        for info, result in zip(nodes.results(node, opsets(case), given), made, strict=True):
            if info.dtype is not None:
                assert info.dtype == _code(result)
            if info.shape is not None:
                assert len(info.shape) == result.ndim
                assert all(extent in (None, size) for extent, size in zip(info.shape, result.shape, strict=True))
    if case.op_type in (ml.PATTERNS if case.domain == ML else contrib.PATTERNS):
        assert all(it.shape is not None for it in nodes.results(node, opsets(case), operands))


def _code(value: Any) -> int:
    if value is None or isinstance(value, dict):
        return TensorProto.UNDEFINED
    return TensorProto.STRING if value.dtype.kind in "OU" else helper.np_dtype_to_tensor_dtype(value.dtype)


@pytest.mark.costly
@pytest.mark.parametrize("which", ["learnt", "newest trees", "contrib"])
def test_nodes_behind_run_here_and_are_right(open_session: OpenSession, which: str) -> None:
    chosen = {"contrib": CONTRIB, "newest trees": [it for it in LEARNT if it.op_type == "TreeEnsemble"]}.get(
        which, [it for it in LEARNT if it.op_type != "TreeEnsemble"]
    )
    cases = {f"{case}_".replace("-", "_"): case for case in chosen}
    model = model_of(cases, {prefix: results(case) for prefix, case in cases.items()})
    feeds = {prefix + name: value for prefix, case in cases.items() for name, value in case.feeds.items()}
    session = open_session(
        model, {"forceCpuNodeNames": "\n".join(f"{it}foreign" for it in cases)}, log_severity_level=4
    )
    left = [it for it in webgpu_ep.report(session).nodes if it.name.startswith(BEHIND) and not it.on_webgpu]
    assert not [(it.name, it.reason) for it in left]
    wanted = run_on_cpu(model, feeds)
    for name, got in zip((it.name for it in session.get_outputs()), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(got, wanted[name], rtol=1e-4, atol=1e-4, err_msg=name)


def test_every_operator_has_a_case() -> None:
    """Of `ai.onnx.ml` all that make tensors; of `com.microsoft` all that run on the CPU and not here."""
    learnt = {it.name for it in defs.get_all_schemas() if it.domain == ML} - {"ZipMap"}
    assert learnt == {it.op_type for it in LEARNT} == set(ml.PATTERNS)
    kernels = {it.op_name for it in get_all_opkernel_def() if it.domain == MS and it.provider == "CPUExecutionProvider"}
    foreign = {name for name in kernels if registry.find(name, MS, 1) is None}
    assert foreign <= {it.op_type for it in CONTRIB} | NOT_HERE.keys()
