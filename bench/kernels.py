"""GPU time of matrix products by tile, from timestamp queries: `python -m bench.kernels [--shapes 1x512x512x512 ...]`.

Use it to choose the tiles in `compiler/tune/`. Prints GFLOP/s per shape (batch x m x k x n) and tile. Needs an adapter with
timestamp queries. Every result is checked against numpy.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx import TensorProto, helper

from onnxruntime_ep_wgpu.api.tuning import opened
from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.compiler.tune.products import Tile
from onnxruntime_ep_wgpu.device import Device, Place, adapters
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.runtime.executable import Executable
from onnxruntime_ep_wgpu.runtime.inputs import DeviceTensor

SHAPES = ("1x4096x4096x4096", "1x1024x1024x1024", "1x512x384x1536", "1x48x384x1536", "1x48x1536x384", "12x128x64x128",
          "1x197x768x3072", "1x1576x768x3072", "1x512x768x3072", "1x1x4096x4096", "1x64x576x3136", "1x512x512x49")  # fmt: skip
TILES = (
    Tile(128, 256, 8, 16, 8, 1, 8), Tile(128, 128, 8, 8, 8, 1, 8), Tile(128, 128, 16, 8, 8, 1, 8),
    Tile(128, 64, 8, 8, 8, 1, 8), Tile(64, 128, 8, 8, 8, 1, 8), Tile(64, 64, 8, 8, 8, 1, 8),
    Tile(64, 64, 16, 8, 8, 1, 16), Tile(64, 64, 16, 4, 8, 1, 16), Tile(64, 64, 16, 4, 8, 1),
    Tile(64, 64, 16, 4, 4, 1), Tile(64, 64, 16, 8, 8, 2, 8), Tile(64, 64, 16, 4, 8, 2),
    Tile(32, 64, 16, 4, 4, 1), Tile(32, 64, 16, 4, 4, 2),
    Tile(32, 32, 16, 4, 4, 1), Tile(32, 32, 16, 4, 4, 4), Tile(16, 64, 16, 4, 4, 4),
    Tile(16, 32, 16, 4, 4, 8),
)  # fmt: skip


def compiled(shape: tuple[int, int, int, int], tile: tune.products.Tile, device: Device) -> Any:
    """Returns a Program of one matrix product with only this tile."""
    batch, m, k, n = shape
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
              for name, dims in (("a", [batch, m, k]), ("b", [batch, k, n]), ("y", None))]  # fmt: skip
    model = helper.make_model(helper.make_graph([node], "product", values[:2], values[2:]))
    module = ir.from_proto(model)
    return compile_graph(module.graph, module.opset_imports, replace(device.target, tuning=(tune.use(tile),)))


def seconds(program: Any, device: Device, a: np.ndarray, b: np.ndarray, repeats: int) -> float:
    """Returns the best GPU time of a run in seconds. Raises AssertionError if the result is wrong."""
    tensors = []
    for array in (a, b):
        buffer = device.buffer(array.nbytes)
        device.upload(buffer, 0, array.data.cast("B"))
        tensors.append(DeviceTensor(DType.FLOAT32, array.shape, buffer))
    y = np.empty((a.shape[0], a.shape[1], b.shape[2]), np.float32)
    result = device.buffer(y.nbytes)
    executable = Executable(program, device)
    executable.run(tensors, [Place(result, 0)])
    device.download(result, 0, y.reshape(-1).view(np.uint8).data)
    np.testing.assert_allclose(y[:, :64], a[:, :64] @ b, rtol=1e-3, atol=1e-3 * a.shape[2] ** 0.5)
    plan = executable.plan(tensors)
    where = {v: (t.buffer, 0) for v, t in zip(program.inputs, tensors, strict=True)} | {program.outputs[0]: (result, 0)}
    return min(min(device.measure(plan.bound(where))) for _ in range(repeats))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--adapter", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    device = opened(adapters()[args.adapter])
    rng = np.random.default_rng(0)
    rows = []
    for text in args.shapes:
        batch, m, k, n = shape = tuple(map(int, text.split("x")))
        a, b = rng.standard_normal((batch, m, k), np.float32), rng.standard_normal((batch, k, n), np.float32)
        for tile in TILES:
            try:
                taken = seconds(compiled(shape, tile, device), device, a, b, args.repeats)  # type: ignore[arg-type]
            except Exception as error:
                print(text, tile, f"{type(error).__name__}: {error}"[:200], flush=True)
                continue
            rows.append({"shape": text, "tile": [tile.m, tile.n, tile.k, tile.rows, tile.columns, tile.slices],
                         "us": taken * 1e6, "gflops": 2 * batch * m * k * n / taken / 1e9})  # fmt: skip
            if not args.json:
                print(
                    f"{text:18} {rows[-1]['tile']!s:28} {taken * 1e6:9.1f} us {rows[-1]['gflops']:9.1f} GFLOP/s",
                    flush=True,
                )
    if args.json:
        print(json.dumps({"adapter": device.adapter.name, "driver": device.adapter.driver, "rows": rows}))


if __name__ == "__main__":
    main()
