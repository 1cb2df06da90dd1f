"""Kernels for GPUs are WGSL as browsers read it. wgpu-native takes more than the language has, and a software adapter has other
kernels, so their texts are parsed by Dawn's compiler, which Chrome and Edge have, and not run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from onnxruntime_ep_wgpu.api.web_export import REDUCING
from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.compiler.lower.lower import attempt
from onnxruntime_ep_wgpu.device import matrix_probe
from onnxruntime_ep_wgpu.program.settings import CompileSettings
from onnxruntime_ep_wgpu.program.target import F16, SUBGROUP_MATRIX, MatrixUnit, Target
from tests.compiler import attention_models, test_channels_last, test_extremes, test_squeeze_excite
from tests.conformance import cases, scope
from tests.language.models import Decoder, graph_of, growing_graph_of
from tests.ops import test_features, test_trees

from . import node

UNITS = replace(
    REDUCING,
    features=REDUCING.features | {F16, SUBGROUP_MATRIX},
    max_workgroup_storage=48 << 10,
    matrices=(MatrixUnit(16, 16, 16, "f16", "f32", 32), MatrixUnit(16, 16, 32, "i8", "i32", 32)),
)
EVERY = CompileSettings(compiled_again=True, reads_sizes=True)  # of nodes that no export has, too
CHANNELS_LAST = replace(REDUCING, tuning=(tune.use(tune.convolutions.ChannelsLast(2)),))


def texts_of(model: onnx.ModelProto, target: Target) -> dict[str, str]:
    """The texts of its kernels, and what each is of; none where something in it does not run on WebGPU."""
    module = ir.from_proto(onnx.shape_inference.infer_shapes(model))
    if any(attempt(module.graph, module.opset_imports, target, EVERY).reasons):
        return {}
    program = compile_graph(module.graph, module.opset_imports, target, settings=EVERY)
    return {text: kernel.label for kernel in program.kernels for text in kernel.wgsl}


def bytes_by(weights: type) -> onnx.ModelProto:
    """A product of bytes whose rows are as many as a run has."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(weights))
    given = [helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, ["n", 64])]
    given += [helper.make_tensor_value_info("w", kind, [64, 96])] if weights is np.uint8 else []
    known = [numpy_helper.from_array(np.zeros((64, 96), weights), "w")] if weights is np.int8 else []
    result = helper.make_tensor_value_info("y", onnx.TensorProto.INT32, None)
    graph = helper.make_graph([helper.make_node("MatMulInteger", ["x", "w"], ["y"])], "bytes", given, [result], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def image_of_bytes() -> onnx.ModelProto:
    """Windows of an image of bytes whose channels are last, which what pads it surrounds."""
    shapes = {"v": (16, 4, 1, 1), "w": (32, 16, 3, 3)}
    known = [numpy_helper.from_array(np.ones(shape, np.int8), name) for name, shape in shapes.items()]
    known += [
        numpy_helper.from_array(np.array(1, np.float32), "s"),
        numpy_helper.from_array(np.array(9, np.uint8), "z"),
    ]
    known += [numpy_helper.from_array(np.array(0, np.int8), "none")]
    nodes = [
        helper.make_node("QLinearConv", ["x", "s", "z", "v", "s", "none", "s", "z"], ["m"]),
        helper.make_node("ConvInteger", ["m", "w", "z"], ["y"], pads=[1] * 4),
    ]
    given = [helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, [2, 4, 6, 6])]
    result = helper.make_tensor_value_info("y", onnx.TensorProto.INT32, None)
    graph = helper.make_graph(nodes, "image", given, [result], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def models() -> Iterator[tuple[onnx.ModelProto, Target]]:
    """Of each operator a case; products of every kind; attention; images whose channels are last."""
    seen = set()
    for case in cases.index().values():
        if scope.in_scope(case) and (operator := case.name.removeprefix("test_").split("_")[0]) not in seen:
            seen.add(operator)
            yield onnx.load_model_from_string(cases.read(case.name).model), REDUCING
    for kind in ("int4-fp32", "fp32"):
        yield graph_of(Decoder(kind)), REDUCING
    yield growing_graph_of(Decoder(groups=4)), REDUCING
    yield test_extremes.asked("Max", "Max", np.float32), REDUCING
    for transposed, (dtype, target) in itertools.product((0, 1), ((np.float32, REDUCING), (np.float16, UNITS))):
        nodes = [helper.make_node("Gemm", ["x", "w"], ["y"], transB=transposed)]
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        graph = helper.make_graph(
            nodes,
            "product",
            [helper.make_tensor_value_info("x", kind, ["n", 64])],
            [helper.make_tensor_value_info("y", kind, None)],
            [numpy_helper.from_array(np.zeros((96, 64) if transposed else (64, 96), dtype), "w")],
        )
        yield helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), target
    for weights in (np.int8, np.uint8):
        yield bytes_by(weights), UNITS
    yield image_of_bytes(), replace(UNITS, tuning=CHANNELS_LAST.tuning)
    for mask in ("none", "added"):
        sizes = attention_models.Sizes(2, 2, 40, 70, 64, 32)
        yield attention_models.attention_model("scores", mask, sizes, np.float16, dynamic=True), UNITS
    for product in ("Conv", "MatMul"):
        yield test_squeeze_excite.block(product=product), CHANNELS_LAST
    for seed in range(6):
        yield test_channels_last.network(seed, free=True), CHANNELS_LAST
    for learnt in (test_trees.sets(), test_trees.classes(), test_features.probabilities(3), test_features.encoder()):
        yield learnt, REDUCING


def test_kernels_for_gpus_are_what_browsers_read(tmp_path: Path) -> None:
    found: dict[str, str] = {}
    for model, target in models():
        found |= texts_of(model, target)
    labels = {label.partition(":")[0] for label in found.values()}
    templates = {
        "matmul",
        "flash_attention",
        "depthwise_last",
        "grouped_last",
        "squeeze_excite",
        "map",
        "reduce",
        "layer_norm",
        "suppress",
    }
    assert labels >= templates
    multiply = {label.partition(" ")[0] for text, label in found.items() if "subgroupMatrixMultiplyAccumulate" in text}
    assert multiply >= {"matmul", "flash_attention"}
    of_bytes = [text for text in found if "subgroup_matrix_left<i8" in text]
    assert of_bytes and any("x16_words" in text for text in of_bytes)
    halves = (MatrixUnit(*it, "f16", "f32", 32) for it in ((16, 16, 16), (8, 8, 8), (16, 8, 16)))
    for unit in (*halves, MatrixUnit(16, 16, 32, "i8", "i32", 32), MatrixUnit(8, 16, 32, "i8", "i32", 16)):
        found[matrix_probe.wgsl(unit)] = f"matrix_probe: {unit}"
    listed = tmp_path / "texts.json"
    listed.write_text(json.dumps(list(found)))
    done = node.node("test/parse_texts.mjs", listed)
    assert done.stdout, done.stderr
    wrong = {label: said for label, said in zip(found.values(), json.loads(done.stdout), strict=True) if said}
    assert not wrong
