"""Kernels for GPUs whose loops browsers should not check, as JSON: [{name, wgsl}]."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.api.web_export import LARGE, _dotted
from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.program.target import WEB_BASELINE
from tests.ops.test_blocks import Weights
from tests.support import make_model

F = np.float32


def write(folder: Path) -> None:
    """kernels.json, and clamped.json of loops whose clamps are known: none, one, one in a function, and one of a buffer."""
    (folder / "kernels.json").write_text(json.dumps(_kernels()))
    (folder / "clamped.json").write_text(
        json.dumps([{"name": body, "wgsl": _LOOP.replace("BODY", body)} for body in _BODIES])
    )


_LOOP = """
@group(0) @binding(0) var<storage, read_write> data: array<f32>;
var<workgroup> tile: array<f32, 256>;
fn from_tile(at: u32) -> f32 { return tile[at] + tile[at + 1u]; }
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) lane: u32, @builtin(workgroup_id) w: vec3u) {
  var sum = 0f;
  for (var k = 0u; k < 4u; k++) { BODY }
  data[lane] = sum;
}"""
_BODIES = (
    "sum += tile[min(w.x, 63u) + 64u * k];", "sum += tile[w.x + k];", "sum += from_tile(lane + k);", "sum += data[lane + k];",
)  # fmt: skip


def _kernels() -> list[dict[str, str]]:
    rows = []
    bytes_of = Weights(2048, 2048, 4, 32, "packed", F).model([1024, 2048], accuracy_level=4)
    compiled = [
        *((name, model, WEB_BASELINE) for name, model in _models()),
        ("product of bytes", bytes_of, _dotted(LARGE)),
    ]
    for name, model, target in compiled:
        module = ir.from_proto(model)
        program = compile_graph(module.graph, module.opset_imports, target, name)
        rows += [
            {"name": f"{name}: {kernel.label}, variant {k}", "wgsl": text}
            for kernel in program.kernels
            for k, text in enumerate(kernel.wgsl)
        ]
    return rows


def _models() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Of sizes that people use: which kernel is chosen depends on them."""

    def w(*shape: int) -> Any:
        return np.zeros(shape, F)

    def image(
        name: str, kernel: int, channels: int, size: int, features: int, **more: Any
    ) -> tuple[str, onnx.ModelProto]:
        weights = {"w": w(features, channels // more.get("group", 1), kernel, kernel)}
        conv = node("Conv", ["x", "w"], ["y"], pads=[kernel // 2] * 4, **more)
        return name, make_model([conv], {"x": (F, [8, channels, size, size])}, weights)

    def rows(name: str, kind: str, **more: Any) -> tuple[str, onnx.ModelProto]:
        return name, make_model([node(kind, ["x"], ["y"], **more)], {"x": (F, [512, 768])})

    yield "product", make_model([node("MatMul", ["x", "w"], ["y"])], {"x": (F, [4096, 768])}, {"w": w(768, 3072)})
    yield (
        "product of any rows",
        make_model([node("MatMul", ["x", "w"], ["y"])], {"x": (F, ["n", 768])}, {"w": w(768, 768)}),
    )
    yield (
        "products",
        make_model([node("MatMul", ["x", "z"], ["y"])], {"x": (F, [96, 128, 64]), "z": (F, [96, 64, 128])}),
    )
    yield image("convolution 3 x 3", 3, 64, 56, 64)
    yield image("convolution 7 x 7", 7, 3, 224, 64, strides=[2, 2])
    yield image("convolution 1 x 1", 1, 256, 28, 64)
    yield image("depthwise convolution", 3, 96, 56, 96, group=96)
    yield image("grouped convolution", 3, 256, 28, 256, group=32)
    for name, queries in (("attention", 128), ("attention of one token", 1)):
        nodes = [
            node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]), node("MatMul", ["q", "kt"], ["s"]), node("Mul", ["s", "c"], ["t"]),
            node("Softmax", ["t"], ["p"]), node("MatMul", ["p", "v"], ["y"]),
        ]  # fmt: skip
        inputs = {"q": (F, [8, 12, queries, 64]), "k": (F, [8, 12, 128, 64]), "v": (F, [8, 12, 128, 64])}
        yield name, make_model(nodes, inputs, {"c": np.array(0.125, F)})
    yield rows("softmax", "Softmax")
    yield rows("sum", "ReduceSum")
    yield rows("place of the largest", "ArgMax", axis=1)
    yield rows("map", "Relu")
    yield rows("transposed", "Transpose", perm=[1, 0])
    normalise = node("LayerNormalization", ["x", "s", "b"], ["y"])
    yield "normalisation", make_model([normalise], {"x": (F, [512, 768])}, {"s": w(768), "b": w(768)})
