"""How exact a model in halves can be: the same model in f32, rounded only where our kernels store halves.

In: a model in f16 or bf16 and inputs for it. Out: a `Judge`, which knows the f32 truth of the same rounded weights and
inputs, and the error of that rounding. Invariant: all of it is computed by the CPU provider in f32, so a kernel that sums
in halves, or a fusion that rounds more than it must, shows as an error above the bound.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import TensorProto, helper

from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.plugin.assign import subgraph
from onnxruntime_ep_wgpu.plugin.assign.claim import claim
from onnxruntime_ep_wgpu.program.axes import model_name
from onnxruntime_ep_wgpu.program.target import Target

from . import halves
from .provider import exact

Arrays = Mapping[str, np.ndarray]


def optimised(path: Path) -> onnx.ModelProto:
    """The model after ONNX Runtime's basic optimisations, as a provider sees it."""
    with tempfile.TemporaryDirectory() as folder:
        settings = ort.SessionOptions()
        settings.log_severity_level = 3
        settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
        settings.optimized_model_filepath = str(Path(folder) / "optimised.onnx")
        ort.InferenceSession(str(path), exact(settings), providers=["CPUExecutionProvider"])
        return _without_inserted_casts(onnx.load(settings.optimized_model_filepath))


_INSERTED = "InsertedPrecisionFreeCast_"


def _without_inserted_casts(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without what ONNX Runtime adds for the CPU provider: casts around nodes in f16, so that they run in f32.

    It names such a cast, and the f32 form of a value, after the value; a cast to f16 of the model itself that comes
    before one is merged with it.
    """
    kept, merged = [], set()
    for node in model.graph.node:
        inserted = node.op_type == "Cast" and node.name.startswith(_INSERTED)
        for names in (node.input, node.output):
            names[:] = [name.removeprefix(_INSERTED) for name in names]
        if inserted and node.input[0] == node.output[0]:
            continue
        if inserted:
            merged.add(node.output[0])
            node.name = f"Cast_{node.output[0]}"  # a name by which ONNX Runtime would not take it out again
            next(a for a in node.attribute if a.name == "to").i = TensorProto.FLOAT16
        kept.append(type(node).FromString(node.SerializeToString()))
    del model.graph.node[:]
    model.graph.node.extend(kept)
    for value in model.graph.value_info:
        if value.name in merged:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    return model


def stored(model: onnx.ModelProto, target: Target) -> dict[str, int]:
    """Names of the values in halves that our kernels for `target` store, and their types; results between are f32."""
    graph = ir.from_proto(model).graph
    nodes = list(graph)
    found = {}
    decision, _ = claim(graph, target, [""] * len(nodes), frozenset())
    for group in decision.groups:
        cut = subgraph.extract(graph, [nodes[k] for k in group])
        program = compile_graph(cut, graph.opset_imports, target)
        for dispatch in program.dispatches:
            for number, access in zip(dispatch.args, program.kernels[dispatch.kernel].bindings, strict=True):
                value = program.values[number]
                if access == "read_write" and value.dtype.is_half and value.name:
                    found[model_name(value.name)[0]] = value.dtype.code
    return found


def rounded(model: onnx.ModelProto, names: Mapping[str, int]) -> onnx.ModelProto:
    """The f32 form of a model in halves, in which the values `names` are rounded to the types given, and nothing else."""
    wide = halves.widened(model)
    nodes = []
    for node in wide.graph.node:
        nodes.append(node)
        for k, name in enumerate(node.output):
            if name in names:
                node.output[k] = f"{name}/exact"
                nodes.append(helper.make_node("Cast", [f"{name}/exact"], [f"{name}/half"], to=names[name]))
                nodes.append(helper.make_node("Cast", [f"{name}/half"], [name], to=TensorProto.FLOAT))
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del wide.graph.node[:], wide.graph.value_info[:]
    wide.graph.node.extend(copies)
    return wide


class Judge:
    """The f32 truth for one model and one set of inputs (as the model takes them), and the error that storing allows."""

    def __init__(self, model: onnx.ModelProto, feeds: Arrays, target: Target) -> None:
        wide = {name: _widened(array) for name, array in feeds.items()}
        self.truth = _run(halves.widened(model), wide)
        self.bound = self.error(_run(rounded(model, stored(model, target)), wide))

    def error(self, results: Sequence[np.ndarray]) -> float:
        """The largest difference to the truth over all outputs, each as a part of the largest value of the output."""
        worst = 0.0
        for got, want in zip(results, self.truth, strict=True):
            if want.dtype.kind == "f" and want.size:
                worst = max(worst, float(np.abs(got.astype(np.float64) - want).max() / np.abs(want).max()))
        return worst


def _widened(array: np.ndarray) -> np.ndarray:
    return functools.reduce(lambda a, half: halves.as_type(a, half, TensorProto.FLOAT), halves.HALVES, array)


def _run(model: onnx.ModelProto, feeds: Arrays) -> list[np.ndarray]:
    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    # Optimisations take casts there and back for nothing.
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), exact(settings), providers=["CPUExecutionProvider"])
    return [np.asarray(r) for r in session.run(None, dict(feeds))]
