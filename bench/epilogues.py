"""Epilogues of matrix products, by tile: `python -m bench.epilogues [--shapes 1576x768x3072 ...] [--dtypes f32 f16]`.

Measures every tile of `tune.GPU` with every kind of epilogue, as GPU time from timestamps and as a ratio to the product alone.
The exit code is 1 if an epilogue costs over 10 % more than the product alone plus its other reads at the adapter's bandwidth.
In that case the epilogue probably moved the accumulators out of registers. On a software adapter the ratios have no meaning.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu.compiler import tune
from onnxruntime_ep_wgpu.device.peak import peak

from .single import DTYPES, Run, compiled, device_of, model

SHAPES = ("1576x768x3072", "4096x768x3072", "1024x1024x1024", "512x2048x2048", "48x384x1536")
MOST = 1.1


@dataclass(frozen=True)
class Epilogue:
    """Nodes from `m`, the product, to `y`. With `reads` they read another tensor of its size; that time is subtracted."""

    nodes: Sequence[onnx.NodeProto]
    reads: bool = False


EPILOGUES: Mapping[str, Epilogue] = {
    "none": Epilogue([node("Identity", ["m"], ["y"])]),
    "bias": Epilogue([node("Add", ["m", "bias"], ["y"])]),
    "GELU": Epilogue([node("Add", ["m", "bias"], ["t"]), node("Gelu", ["t"], ["y"])]),
    "tanh GELU": Epilogue([node("Add", ["m", "bias"], ["t"]), node("Gelu", ["t"], ["y"], approximate="tanh")]),
    "SiLU gate": Epilogue(
        [node("Sigmoid", ["m"], ["s"]), node("Mul", ["m", "s"], ["t"]), node("Mul", ["t", "other"], ["y"])], True
    ),
    "residual": Epilogue([node("Add", ["m", "bias"], ["t"]), node("Add", ["t", "other"], ["y"])], True),
    "requantise": Epilogue([node("Add", ["m", "bias"], ["t"]), node("QuantizeLinear", ["t", "scale", "zero"], ["y"])]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=SHAPES, help="rows x k x columns")
    parser.add_argument("--dtypes", nargs="+", default=("f32", "f16"), choices=tuple(DTYPES))
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--adapter", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    device = device_of(args.adapter)
    bandwidth = peak(device).bytes
    rng, rows, slow = np.random.default_rng(0), [], 0
    tiles = [it for it in tune.GPU if it.kernel == "matmul"]
    for text in args.shapes:
        m, k, n = map(int, text.split("x"))
        for name in args.dtypes:
            dtype = DTYPES[name]

            def random(*shape: int, dtype: np.dtype = dtype) -> np.ndarray:
                return (rng.standard_normal(shape, np.float32) / 8).astype(dtype)

            weights = {
                "w": random(k, n),
                "bias": random(n),
                "scale": np.array(0.05, dtype),
                "zero": np.array(3, np.int8),
            }
            inputs = {"x": random(m, k), "other": random(m, n)}
            for choice in tiles:
                on = replace(device.target, tuning=(replace(choice, bounds=()),))
                alone = 0.0
                for title, epilogue in EPILOGUES.items():
                    used = {i for it in epilogue.nodes for i in it.input} | {"x", "w"}
                    given = {i: a for i, a in inputs.items() if i in used}
                    nodes = [node("MatMul", ["x", "w"], ["m"]), *epilogue.nodes]
                    made = model(nodes, given, ["y"], {i: a for i, a in weights.items() if i in used})
                    run = Run(compiled(made, device, on), device, list(given.values()))
                    run.warm()
                    taken = run.seconds(args.repeats)
                    alone = alone or taken
                    extra = inputs["other"].nbytes / bandwidth if epilogue.reads else 0.0
                    ratio = (taken - extra) / alone
                    slow += ratio > MOST
                    tile = dict(choice.parameters)
                    shape = "{m}x{n}x{k} {rows}x{columns} /{slices}".format(**tile)
                    tflops = 2 * m * k * n / taken / 1e12
                    rows.append({"shape": text, "dtype": name, "tile": shape, "epilogue": title, "us": taken * 1e6,
                                 "tflops": tflops, "ratio": ratio, "dispatches": run.dispatches})  # fmt: skip
                    if not args.json:
                        mark = f"  over {MOST}" if ratio > MOST else ""
                        print(f"{text:16} {name:4} {shape:20} {title:10} {taken * 1e6:9.1f} us {tflops:6.2f} TFLOP/s  "
                              f"{ratio:5.2f} of none, {run.dispatches} dispatches{mark}", flush=True)  # fmt: skip
    if args.json:
        print(json.dumps({"adapter": device.adapter.name, "driver": device.adapter.driver, "rows": rows}))
    sys.exit(1 if slow else 0)


if __name__ == "__main__":
    main()
