"""GPU time of matrix products with few rows, which are bound by reading the weights: `python -m bench.rows`.

In: rows, k x n, types, and whether the weights are transposed. Out: per product, the best GPU time from timestamp queries and
the TB/s of all reads and writes. `--tiles` adds the tiles of larger products, for sizes without a shipped `matvec`. Every
result is checked against numpy. Needs an adapter with timestamp queries.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.compiler.compile import compile_graph
from onnxruntime_ep_wgpu.device import Device, Place, adapters, open_device
from onnxruntime_ep_wgpu.program.dtypes import DType
from onnxruntime_ep_wgpu.program.target import Target
from onnxruntime_ep_wgpu.program.tuning import Bound
from onnxruntime_ep_wgpu.runtime.executable import Executable
from onnxruntime_ep_wgpu.runtime.inputs import DeviceTensor

WARM_SECONDS = 0.5  # an idle GPU is slow at first
KERNELS = {
    "rows": tuple(
        tune.use(tune.products.RowProduct(rows, columns4, 2 if rows <= 4 else 1), Bound("m", None, rows), *wide)
        for rows in (1, 2, 4, 8, 16, 32)
        for columns4, wide in ((16, (Bound("n", 8192), Bound("transposed", None, 0))), (8, ()))
    ),
    "tiles": tuple(it for it in tune.GPU if it.kernel == "matmul"),
}
FEW = max(dict(it.parameters)["rows"] for it in tune.GPU if it.kernel == "matvec")


def compiled(m: int, k: int, n: int, dtype: type, transposed: bool, on: Target) -> Any:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    values = [helper.make_tensor_value_info("a", kind, [m, k]),
              helper.make_tensor_value_info("b", kind, [n, k] if transposed else [k, n])]  # fmt: skip
    node = helper.make_node("Gemm", ["a", "b"], ["y"], transB=int(transposed))
    module = ir.from_proto(
        helper.make_model(helper.make_graph([node], "rows", values, [onnx.ValueInfoProto(name="y")]))
    )
    return compile_graph(module.graph, module.opset_imports, on)


def seconds(program: Any, device: Device, a: np.ndarray, b: np.ndarray, wanted: np.ndarray, repeats: int) -> float:
    """Returns the best GPU time of a run. Raises AssertionError if the result is wrong."""
    tensors = []
    for array in (a, b):
        buffer = device.buffer(array.nbytes)
        device.upload(buffer, 0, array.reshape(-1).view(np.uint8).data)
        tensors.append(DeviceTensor(DType.of_numpy(array.dtype), array.shape, buffer))
    y = np.empty(wanted.shape, a.dtype)
    result = device.buffer(y.nbytes)
    executable = Executable(program, device)
    executable.run(tensors, [Place(result, 0)])
    device.download(result, 0, y.reshape(-1).view(np.uint8).data)
    half = a.dtype == np.float16
    np.testing.assert_allclose(
        y.astype(np.float32), wanted, rtol=2e-3 if half else 1e-3, atol=(1e-1 if half else 1e-3) * a.shape[1] ** 0.5
    )
    plan = executable.plan(tensors)
    where = {v: (t.buffer, 0) for v, t in zip(program.inputs, tensors, strict=True)} | {program.outputs[0]: (result, 0)}
    bound = plan.bound(where)
    until = time.monotonic() + (WARM_SECONDS if repeats > 1 else 0)
    while time.monotonic() < until:
        device.measure(bound)
    return min(min(device.measure(bound)) for _ in range(repeats))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--shapes", nargs="+", default=["4096x4096", "4096x11008"], help="k x n")
    parser.add_argument("--types", nargs="+", default=["float32", "float16"])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--adapter", type=int, default=0)
    parser.add_argument(
        "--tiles", action="store_true", help="the tiles of products of many rows as well, for comparison"
    )
    args = parser.parse_args()
    device = open_device(adapters()[args.adapter])
    rng = np.random.default_rng(0)
    print(
        f"{device.adapter.name}\n{'rows':>4} {'k x n':12} {'type':8} {'weights':8} {'kernel':8} {'us':>9} {'TB/s':>7}"
    )
    for shape in args.shapes:
        k, n = map(int, shape.split("x"))
        weights = rng.standard_normal((k, n), np.float32)
        for name in args.types:
            dtype = np.dtype(name).type
            for transposed in (False, True):
                b = np.ascontiguousarray((weights.T if transposed else weights).astype(dtype))
                for m in args.rows:
                    a = rng.standard_normal((m, k), np.float32).astype(dtype)
                    wanted = a.astype(np.float32) @ (b.T if transposed else b).astype(np.float32)
                    for kernel, choices in KERNELS.items() if args.tiles else (("default", ()),):
                        if kernel == "tiles" and m <= FEW:
                            continue
                        program = compiled(m, k, n, dtype, transposed, replace(device.target, tuning=choices))
                        taken = seconds(program, device, a, b, wanted, args.repeats)
                        moved = a.nbytes + b.nbytes + wanted.size * a.itemsize
                        layout = "n x k" if transposed else "k x n"
                        print(
                            f"{m:4} {shape:12} {name:8} {layout:8} {kernel:8} {taken * 1e6:9.1f} {moved / taken / 1e12:7.2f}",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
