"""Memory-bound kernels: `python -m bench.maps [--size 8192] [--dtypes f32 f16]`.

The cases are pointwise functions, sums of tensors and rows, copies, transposes and reductions of a square tensor. Printed are
GPU time from timestamps, bytes per second, and the share of the adapter's measured bandwidth. Results are checked.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.device.peak import peak

from .single import DTYPES, Run, compiled, device_of, model

Expected = Callable[..., Any]
CASES: Mapping[str, tuple[list[onnx.NodeProto], Expected]] = {
    "copy": ([node("Neg", ["x"], ["y"])], lambda x, **_: -x),
    "Sigmoid": ([node("Sigmoid", ["x"], ["y"])], lambda x, **_: 1 / (1 + np.exp(-x))),
    "Gelu": ([node("Gelu", ["x"], ["y"])], None),
    "tanh Gelu": ([node("Gelu", ["x"], ["y"], approximate="tanh")], None),
    "Add": ([node("Add", ["x", "other"], ["y"])], lambda x, other, **_: x + other),
    "Add of a row": ([node("Add", ["x", "row"], ["y"])], lambda x, row, **_: x + row),
    "Add of a column": ([node("Add", ["x", "column"], ["y"])], lambda x, column, **_: x + column),
    "Greater": ([node("Greater", ["x", "row"], ["y"])], lambda x, row, **_: x > row),
    "Transpose": ([node("Transpose", ["x"], ["y"])], lambda x, **_: x.T),
    "Neg of a transpose": ([node("Transpose", ["x"], ["t"]), node("Neg", ["t"], ["y"])], lambda x, **_: -x.T),
    "ReduceSum of columns": ([node("ReduceSum", ["x", "first"], ["y"], keepdims=0)], lambda x, **_: x.sum(0)),
    "ReduceSum of rows": ([node("ReduceSum", ["x", "second"], ["y"], keepdims=0)], lambda x, **_: x.sum(1)),
    "Softmax": ([node("Softmax", ["x"], ["y"])], None),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=8192, help="rows and columns")
    parser.add_argument("--dtypes", nargs="+", default=("f32", "f16"), choices=tuple(DTYPES))
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--adapter", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    device, n = device_of(args.adapter), args.size
    bandwidth = peak(device).bytes
    rng, rows = np.random.default_rng(0), []
    for name in args.dtypes:
        dtype = DTYPES[name]
        inputs = {"x": (n, n), "other": (n, n), "row": (n,), "column": (n, 1)}
        arrays = {i: rng.standard_normal(shape, np.float32).astype(dtype) for i, shape in inputs.items()}
        weights = {"first": np.array([0]), "second": np.array([1])}
        for title, (nodes, expected) in CASES.items():
            used = {i for it in nodes for i in it.input}
            given = {i: a for i, a in arrays.items() if i in used}
            made = model(nodes, given, ["y"], {i: a for i, a in weights.items() if i in used})
            run = Run(compiled(made, device), device, list(given.values()))
            if expected:
                wide = {i: a.astype(np.float32) for i, a in given.items()}
                (result,) = run.results
                want = expected(**wide)
                close = {"rtol": 1e-2 if name != "f32" else 1e-4, "atol": n * (1e-5 if name == "f32" else 1e-2) ** 2}
                if "Reduce" in title:
                    close["atol"] = n**0.5 * (1e-4 if name == "f32" else 1e-1)
                np.testing.assert_allclose(result.astype(np.float32), want.astype(np.float32), **close)
            run.warm()
            taken = run.seconds(args.repeats)
            nbytes = sum(a.nbytes for a in [*given.values(), *run.results])
            rows.append(
                {"dtype": name, "case": title, "us": taken * 1e6, "bytes": nbytes, "dispatches": run.dispatches}
            )
            if not args.json:
                print(f"{name:4} {title:22} {n}x{n} {taken * 1e6:9.1f} us {nbytes / taken / 1e12:6.3f} TB/s "
                      f"{nbytes / taken / bandwidth:4.0%} of a copy, {run.dispatches} dispatches", flush=True)  # fmt: skip
    if args.json:
        print(json.dumps({"adapter": device.adapter.name, "driver": device.adapter.driver, "size": n, "rows": rows}))


if __name__ == "__main__":
    main()
