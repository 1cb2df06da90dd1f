"""GPU time of products with weights quantised in blocks: `python -m bench.quantised`.

In: rows, shapes k x n, bits, block sizes, types of the activations. Out, per product:

- the best GPU time from timestamp queries
- the GB/s of all quantised bytes (weights, scales, zero points), and their share of the adapter's measured copy rate
- with `--others`, the time of a whole run by this provider, by the official plugin (if installed) and by the CPU provider

Every result is checked against numpy. Decoding a language model uses 1 row, and its prompt 128 rows and more.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxruntime_ep_wgpu.device.peak import peak
from tests import provider

from . import single

MICROSOFT = "com.microsoft"
LEAST_RUNS, LEAST_SECONDS = 5, 0.3


@dataclass(frozen=True)
class Product:
    """a (rows, k) times weights (n, k) of `bits` bits. `zeros`: blocks have zero points."""

    rows: int
    k: int
    n: int
    bits: int
    block: int
    dtype: Any
    zeros: bool

    @property
    def blocks(self) -> int:
        return -(-self.k // self.block)

    def arrays(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        rng = np.random.default_rng(0)
        a = rng.standard_normal((self.rows, self.k), np.float32).astype(self.dtype)
        weights = {
            "b": rng.integers(0, 256, (self.n, self.blocks, self.block * self.bits // 8), np.uint8),
            "s": (rng.random((self.n, self.blocks), np.float32) * 0.01).astype(self.dtype),
        }
        if self.zeros:
            weights["z"] = rng.integers(0, 256, (self.n, -(-self.blocks * self.bits // 8)), np.uint8)
        return a, weights

    def model(self, weights: dict[str, np.ndarray]) -> onnx.ModelProto:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        attributes = {"K": self.k, "N": self.n, "bits": self.bits, "block_size": self.block}
        graph = helper.make_graph(
            [helper.make_node("MatMulNBits", ["a", *weights], ["y"], domain=MICROSOFT, **attributes)],
            "quantised",
            [helper.make_tensor_value_info("a", kind, [self.rows, self.k])],
            [helper.make_tensor_value_info("y", kind, [self.rows, self.n])],
            [numpy_helper.from_array(array, name) for name, array in weights.items()],
        )
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def wanted(self, a: np.ndarray, weights: dict[str, np.ndarray], columns: int) -> np.ndarray:
        """Returns the first columns of the result."""

        def numbers(packed: np.ndarray) -> np.ndarray:
            parts = packed[..., None] >> np.arange(0, 8, self.bits, dtype=np.uint8) & (1 << self.bits) - 1
            return parts.reshape(len(packed), -1).astype(np.float32)

        q = numbers(weights["b"][:columns]).reshape(-1, self.blocks, self.block)
        zero: Any = np.float32(1 << self.bits - 1)
        if self.zeros:
            zero = numbers(weights["z"][:columns])[:, : self.blocks, None]
        real = (q - zero) * weights["s"][:columns, :, None].astype(np.float32)
        return a.astype(np.float32) @ real.reshape(len(real), -1)[:, : self.k].T


def seconds_of_a_run(model: bytes, which: str, a: np.ndarray) -> float:
    """Returns the median time of a run through onnxruntime, with the input and the result in host memory."""
    session = provider.open_session(model, which)
    times: list[float] = []
    while len(times) < LEAST_RUNS or sum(times) < LEAST_SECONDS:
        begin = time.perf_counter()
        session.run(None, {"a": a})
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 128, 1024])
    parser.add_argument(
        "--shapes", nargs="+", default=["2048x2048", "2048x11264", "4096x11008", "2048x131072"], help="k x n"
    )
    parser.add_argument("--bits", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--blocks", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--types", nargs="+", choices=["f32", "f16"], default=["f16"])
    parser.add_argument(
        "--zeros", action="store_true", help="zero points per block, as asymmetric quantisation has them"
    )
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--adapter", type=int, default=0)
    parser.add_argument("--others", action="store_true", help="whole runs of every provider as well")
    args = parser.parse_args()
    device = single.device_of(args.adapter)
    most = peak(device).bytes
    others = [it for it in ("ours", "official", "cpu") if args.others and provider.installed(it)]
    print(f"{device.adapter.name}: {most / 1e9:.0f} GB/s in a copy")
    print(f"{'rows':>4} {'k x n':13} {'bits':>4} {'block':>5} {'type':4} {'us':>9} {'GB/s':>7} {'of copy':>7} {'TFLOP/s':>8}",
          *(f"{it + ' ms':>12}" for it in others))  # fmt: skip
    for shape in args.shapes:
        k, n = map(int, shape.split("x"))
        for bits in args.bits:
            for block in args.blocks:
                for name in args.types:
                    for rows in args.rows:
                        product = Product(rows, k, n, bits, block, single.DTYPES[name].type, args.zeros)
                        a, weights = product.arrays()
                        model = product.model(weights)
                        run = single.Run(single.compiled(model, device), device, [a])
                        columns = min(n, 512)
                        want = product.wanted(a, weights, columns)
                        (y,) = run.results
                        scale = np.abs(want).max()
                        np.testing.assert_allclose(y[:, :columns], want, rtol=2e-3, atol=2e-3 * scale)
                        if args.repeats > 1:
                            run.warm()
                        taken = run.seconds(args.repeats)
                        moved = sum(array.nbytes for array in weights.values())
                        times = [seconds_of_a_run(model.SerializeToString(), it, a) for it in others]
                        print(
                            f"{rows:4} {shape:13} {bits:4} {block:5} {name:4} {taken * 1e6:9.1f} {moved / taken / 1e9:7.1f}"
                            f" {moved / taken / most:7.0%} {2 * rows * k * n / taken / 1e12:8.2f}",
                            *(f"{it * 1e3:12.3f}" for it in times),
                            flush=True,
                        )


if __name__ == "__main__":
    main()
