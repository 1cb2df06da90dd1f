"""GPU time of matrix products by type: `python -m bench.products [--shapes 4096x4096x4096 ...] [--types f16 int8]`.

In: shapes m x k x n. Out, per shape and type: the microseconds of one product among many in a row, and 10^12 operations per
second, with a GPU kept busy before. `alone` are the microseconds of timestamps around one product. Products of `int8` are
MatMulInteger with sums of 32 bits. If torch has a GPU, its rate in a row is beside it: cuBLAS with tensor cores, and for f32
without TF32. Every result of ours is checked against numpy. On NVIDIA, WGPU_EP_LIBRARY=dawn gives matrix units.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from onnxruntime_ep_wgpu.tools._output import show_table

from . import single

SHAPES = ("4096x4096x4096", "4096x3072x768", "1536x768x3072", "1024x1024x1024")
CHECKED = 64  # rows


def arrays_of(shape: tuple[int, int, int], kind: str) -> list[np.ndarray]:
    rng, (m, k, n) = np.random.default_rng(0), shape
    if kind == "int8":
        return [rng.integers(-128, 128, it, np.int8) for it in ((m, k), (k, n))]
    dtype = single.DTYPES[kind]
    return [rng.standard_normal(it).astype(dtype) for it in ((m, k), (k, n))]


def seconds(shape: tuple[int, int, int], kind: str, device: Any, repeats: int) -> tuple[float, float]:
    """Returns the times of a product, in a row of them and alone. Raises AssertionError if its first rows are wrong."""
    a, b = arrays_of(shape, kind)
    operator = "MatMulInteger" if kind == "int8" else "MatMul"
    made = single.model([helper.make_node(operator, ["a", "b"], ["y"])], {"a": a}, ["y"], {"b": b})
    run = single.Run(single.compiled(made, device), device, [a])
    (y,) = run.results
    if kind == "int8":
        np.testing.assert_array_equal(y[:CHECKED], a[:CHECKED].astype(np.int32) @ b.astype(np.int32))
    else:
        want = a[:CHECKED].astype(np.float64) @ b.astype(np.float64)
        tolerance = 2e-3 if kind == "f16" else 1e-5 if kind == "f32" else 2e-2
        np.testing.assert_allclose(
            y[:CHECKED].astype(np.float64), want, rtol=tolerance, atol=tolerance * shape[1] ** 0.5
        )
    run.warm()
    return run.seconds_together(repeats), run.seconds(repeats)


def torch_seconds(shape: tuple[int, int, int], kind: str, repeats: int) -> float | None:
    """Returns the time of a product in a row of them in torch, or None without a GPU or without such a product."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = (torch.from_numpy(it.astype(np.float32)).cuda() for it in arrays_of(shape, kind))
    types = {"f16": torch.float16, "f32": torch.float32, "bf16": torch.bfloat16, "int8": torch.int8}
    a, b = a.to(types[kind]), b.to(types[kind])
    once: Callable[[], Any] = (lambda: torch._int_mm(a, b)) if kind == "int8" else (lambda: a @ b)
    end = time.perf_counter() + single.WARM_SECONDS
    while time.perf_counter() < end:
        once()
        torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        first, last = torch.cuda.Event(True), torch.cuda.Event(True)
        first.record()
        for _ in range(single.MANY):
            once()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last) / 1e3 / single.MANY)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=SHAPES)
    parser.add_argument("--types", nargs="+", choices=[*single.DTYPES, "int8"], default=["f16", "int8"])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--adapter", type=int, default=0)
    args = parser.parse_args()
    device = single.device_of(args.adapter)
    rows = []
    for text in args.shapes:
        m, k, n = shape = tuple(map(int, text.split("x")))
        for kind in args.types:
            took, alone = seconds(shape, kind, device, args.repeats)
            beside = torch_seconds(shape, kind, args.repeats)
            rate = [f"{2e-12 * m * k * n / it:.0f}" if it is not None else "" for it in (took, beside)]
            rows.append([text, kind, f"{took * 1e6:.1f}", f"{alone * 1e6:.1f}", *rate])
    show_table(["m x k x n", "type", "us", "alone", "10^12/s", "torch 10^12/s"], rows)
    print(device.adapter.name, device.target.library)


if __name__ == "__main__":
    main()
