"""Loops and branches beside the CPU provider: `python -m bench.loops [--iterations 1000] [--sizes 16 256]`.

In: the number of iterations, and the rows of the states. Out: a line per case with the milliseconds of a run (the median of the
faster half), the microseconds per iteration, and the transfers of a run. It compares control flow on this provider, control
flow on the CPU, and the CPU provider alone.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime as ort

import onnxruntime_ep_wgpu as wgpu
from bench.data_sized import milliseconds
from onnxruntime_ep_wgpu.plugin import watch
from onnxruntime_ep_wgpu.tools._output import show_table

F = np.float32
KEPT = "c1 = Identity (c0)"
MADE = "most = ReduceMax <keepdims = 0> (s1) bound = Constant <value = float {100}> () c1 = Less (most, bound)"  # from the device


def looping(size: int, condition: str, scan: bool) -> bytes:
    """Returns a loop of `s = Tanh(MatMul(s, v))`, size x size, where v is made outside. With `scan`, rows are stacked."""
    row, result, kept = (
        ("o = ReduceMean <keepdims = 0> (s1, axes)", ", z", f", float[{size}] o") if scan else ("", "", "")
    )
    output = f", float[K,{size}] z" if scan else ""
    shape = f"float[{size},{size}]"
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    g ({shape} x, {shape} w, int64 n, bool c) => ({shape} y{output}) {{
      v = Tanh (w) axes = Constant <value = int64[1] {{0}}> ()
      [loop] s{result} = Loop (n, c, x) <body = b (int64 i, bool c0, {shape} s0) => (bool c1, {shape} s1{kept}) {{
        p = MatMul (s0, v) s1 = Tanh (p) {row} {condition} }}>
      y = Add (s, s) }}"""
    made: bytes = onnx.parser.parse_model(text).SerializeToString()
    return made


def transfers(session: ort.InferenceSession, feeds: dict[str, Any]) -> int:
    device = next(it.state for it in watch.live() if it.state is not None).device()
    before = device.counters["uploads"] + device.counters["downloads"]
    session.run(None, feeds)
    return device.counters["uploads"] + device.counters["downloads"] - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--sizes", type=int, nargs="*", default=[16, 256])
    args = parser.parse_args()
    iterations = args.iterations
    rng = np.random.default_rng(0)
    rows = []
    for size in args.sizes:
        feeds = {
            "x": rng.standard_normal((size, size)).astype(F) * F(0.1),
            "w": rng.standard_normal((size, size)).astype(F) * F(0.5 / size**0.5),
            "n": np.array(iterations),
            "c": np.array(True),
        }
        for name, condition, scan in (("trip count", KEPT, False), ("joined", KEPT, True), ("condition", MADE, False)):
            model = looping(size, condition, scan)
            ways = {
                "here": wgpu.session(model),
                "Loop on the CPU": wgpu.session(model, forceCpuNodeNames=["loop"]),
                "CPU provider": ort.InferenceSession(model, providers=["CPUExecutionProvider"]),
            }
            want = ways["CPU provider"].run(None, feeds)
            for way, session in ways.items():
                got = session.run(None, feeds)
                equal = all(np.allclose(a, b, rtol=1e-3, atol=1e-3) for a, b in zip(got, want, strict=True))
                time = milliseconds(lambda session=session, feeds=feeds: session.run(None, feeds))
                moved = 0 if way == "CPU provider" else transfers(session, feeds)
                micro = f"{1000 * time / iterations:.1f}"
                rows.append((f"{name}, {size} x {size}", way, f"{time:.2f}", micro, moved, "yes" if equal else "NO"))
    show_table(
        ("loop", "control flow", "ms", "us per iteration", "transfers", "equal"),
        rows,
        wgpu.devices()[0].ep_metadata["name"],
    )


if __name__ == "__main__":
    main()
