"""Attention by size: as one fused kernel, as products and a softmax, and by other providers: `python -m bench.attention`.

Columns: times in milliseconds; GB/s of reading keys and values once; `gpu` is the sum of this provider's dispatches from
timestamps. The other columns are whole runs through ONNX Runtime. Their models have weights as operands and one number as
result, so that only the attention takes long. `--tiles` prints the GPU time by tile instead, for `compiler/tune/`. A provider
that is not installed or cannot run a size is a dash, with the reason below the table.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.device import Device, Place
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.program.target import Target
from onnxruntime_ep_wgpu.runtime.executable import Executable
from onnxruntime_ep_wgpu.runtime.inputs import DeviceTensor
from tests import provider

from .single import device_of

# batch x heads x queries x keys x elements of a head
SHAPES = {
    "1x16x2048x2048x64": "long",
    "1x16x8192x8192x64": "longer",
    "32x12x128x128x64": "BERT-base",
    "8x12x197x197x64": "ViT-B",
    "1x12x512x512x64": "GPT-2",
    "2x8x4096x4096x40": "SD UNet",
    "2x8x4096x77x40": "SD UNet, text",
    "1x32x1024x1024x128": "Llama",
    "1x8x1024x1024x256": "Gemma",
    "1x32x1x4096x128": "one token",
    "1x12x16x16x64": "small",
}
REPEATS = 10
THREADS = (
    (16, 8, 2),
    (8, 16, 2),
    (8, 8, 2),
    (16, 16, 2),
    (16, 16, 1),
    (16, 8, 1),
    (8, 8, 1),
    (16, 4, 1),
    (16, 2, 1),
    (8, 2, 1),
)
"""Candidate tiles: threads_x, threads_y and rows4."""


def model(shape: tuple[int, ...], half: bool, whole: bool, shared: int = 0) -> onnx.ModelProto:
    """Returns y = softmax(q k^T / sqrt(d)) v of random weights, scaled by an input of one number.

    Without `whole`, the output is one element of y. With `shared`, it is ONNX's Attention with so many query heads per key
    head."""
    batch, heads, queries, keys, size = shape
    rng = np.random.default_rng(0)
    dtype, kind = (np.float16, TensorProto.FLOAT16) if half else (np.float32, TensorProto.FLOAT)
    weights = {
        "q0": rng.standard_normal((batch, heads, queries, size)).astype(dtype),
        "k": rng.standard_normal((batch, heads // max(1, shared), keys, size)).astype(dtype),
        "v": rng.standard_normal((batch, heads // max(1, shared), keys, size)).astype(dtype),
        "zero": np.zeros(4, np.int64),
        "one": np.ones(4, np.int64),
    }
    nodes = [
        helper.make_node("Mul", ["q0", "s"], ["q"]),
        helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "kt"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["all"]),
    ]
    if shared:
        nodes = [nodes[0], helper.make_node("Attention", ["q", "k", "v"], ["all"], scale=1.0)]
    nodes.append(
        helper.make_node("Identity", ["all"], ["y"])
        if whole
        else helper.make_node("Slice", ["all", "zero", "one"], ["y"])
    )
    graph = helper.make_graph(
        nodes, "attention", [helper.make_tensor_value_info("s", kind, [])], [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24 if shared else 20)], ir_version=10)


def compiled(proto: onnx.ModelProto, on: Target, fused: bool = True) -> Program:
    """Compiles the model as one kernel, or as products and a softmax."""
    module = ir.from_proto(proto)
    chosen = (tune.use(tune.attention.AttentionForm(int(fused))), *on.tuning)
    return compile_graph(module.graph, module.opset_imports, dataclasses.replace(on, tuning=chosen))


def gpu_seconds(program: Program, device: Device, half: bool, shape: tuple[int, ...]) -> float:
    """Returns the best GPU time of a run."""
    scale = np.array(shape[-1] ** -0.5, np.float16 if half else np.float32)
    buffer = device.buffer(16)
    device.upload(buffer, 0, memoryview(scale.reshape(1).view(np.uint8)))
    tensors = [DeviceTensor(DType.of_numpy(scale.dtype), (), buffer)]
    executable = Executable(program, device)
    result = device.buffer(max(16, shape[0] * shape[1] * shape[2] * shape[4] * 4))
    executable.run(tensors, [Place(result, 0)])
    plan = executable.plan(tensors)
    where = {program.inputs[0]: (buffer, 0), program.outputs[0]: (result, 0)}
    best = float("inf")
    end = time.perf_counter() + 0.7  # an idle GPU is slow at first
    while time.perf_counter() < end:
        best = min(best, sum(device.measure(plan.bound(where))))
    return best


def run_seconds(proto: onnx.ModelProto, name: str, shape: tuple[int, ...], half: bool) -> float:
    """Returns the median time of a run through ONNX Runtime."""
    session = provider.open_session(proto.SerializeToString(), name)
    feeds = {"s": np.array(shape[-1] ** -0.5, np.float16 if half else np.float32)}
    start = time.perf_counter()
    session.run(None, feeds)
    first = time.perf_counter() - start
    times = []
    for _ in range(REPEATS if first < 2 else 1):
        start = time.perf_counter()
        session.run(None, feeds)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def row(text: str, half: bool, shared: int, device: Device, providers: list[str], notes: list[str]) -> list[str]:
    shape = tuple(map(int, text.split("x")))
    measures: dict[str, Any] = {
        "gpu": lambda: gpu_seconds(compiled(model(shape, half, True, shared), device.target), device, half, shape),
        "as products": lambda: gpu_seconds(
            compiled(model(shape, half, True, shared), device.target, False), device, half, shape
        ),
    }
    measures |= {
        name: lambda name=name: run_seconds(model(shape, half, False, shared), name, shape, half) for name in providers
    }
    found: dict[str, float] = {}
    for name, measure in measures.items():
        try:
            found[name] = measure()
        except Exception as error:
            notes.append(f"{text} {name}: {type(error).__name__}: {str(error)[:200]}")
    operations = 4 * shape[0] * shape[1] * shape[2] * shape[3] * shape[4]
    cells = [f"{found[name] * 1e3:.3f}" if name in found else "-" for name in measures]
    rate = f"{operations / found['gpu'] / 1e12:.1f}" if "gpu" in found else "-"
    loaded = 2 * shape[0] * shape[1] // max(1, shared) * shape[3] * shape[4] * (2 if half else 4)
    bandwidth = f"{loaded / found['gpu'] / 1e9:.0f}" if "gpu" in found else "-"
    base = found.get("ours")
    ratios = [f"{found[name] / base:.2f}" if base and name in found else "-" for name in providers if name != "ours"]
    without = f"{found['as products'] / found['gpu']:.2f}" if {"gpu", "as products"} <= set(found) else "-"
    return [text, SHAPES.get(text, ""), "f16" if half else "f32", *cells, rate, bandwidth, without, *ratios]


def tiles(text: str, half: bool, device: Device) -> None:
    """Prints the GPU time of every sufficiently wide tile for one size."""
    shape = tuple(map(int, text.split("x")))
    candidates = [
        (tx, ty, rows, columns, values, slices, depth, keys)
        for tx, ty, rows in THREADS
        for columns in (1, 2)
        for values in {-(-shape[-1] // (4 * tx))}
        for slices in (1, 2, 4)
        for depth, keys in ((8, 16), (16, 16), (16, 32), (32, 32), (32, 64))
    ]  # fmt: skip
    limits = device.target
    results = []
    for numbers in candidates:
        try:
            tile = tune.attention.FlashTile(*numbers)
        except ValueError:
            continue
        if tile.workgroup_bytes > limits.max_workgroup_storage or tile.invocations > min(512, limits.max_invocations):
            continue
        on = dataclasses.replace(limits, tuning=(tune.use(tile),))
        try:
            results.append((gpu_seconds(compiled(model(shape, half, True), on), device, half, shape), tile))
        except Exception as error:
            print(f"{tile}: {type(error).__name__}: {str(error)[:200]}")
    for seconds, tile in sorted(results, key=lambda it: it[0])[:12]:
        print(f"{text} {seconds * 1e3:9.3f} ms  {dataclasses.astuple(tile)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES))
    parser.add_argument("--half", action="store_true", help="f16, else f32")
    parser.add_argument("--shared", type=int, default=0, metavar="N", help="ONNX's Attention, N heads to one of keys")
    parser.add_argument("--tiles", action="store_true")
    parser.add_argument("--providers", nargs="+", default=["ours", "official", "cpu"])
    args = parser.parse_args()
    device = device_of(0)
    if args.tiles:
        for text in args.shapes:
            tiles(text, args.half, device)
        return
    providers = [name for name in args.providers if provider.installed(name)]
    others = [f"{name}/ours" for name in providers if name != "ours"]
    print(
        " | ".join(["shape", "", "type", "gpu", "as products", *providers, "TFLOP/s", "GB/s", "products/gpu", *others])
    )
    notes: list[str] = []
    for text in args.shapes:
        print(" | ".join(row(text, args.half, args.shared, device, providers, notes)), flush=True)
    print("\n".join(notes))


if __name__ == "__main__":
    main()
