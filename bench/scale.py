"""Requests per second of a SessionPool: `python -m bench.scale [--devices 0,1] [--layers 6] [--width 512] [--seconds 5]`.

In: devices for the sessions, by default those of a pool. Out: requests and rows per second, the mean rows of a batch, and the
fraction of time that sessions run. These are measured for 1, 2 and 4 sessions, with single requests and with batches of up to
16 rows. The model is layers of relu(x @ w), f32; a request has one row. On a software adapter all sessions share the machine's
cores, so more sessions show the cost of the queue, not the gain of more devices.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.scale import SessionPool
from onnxruntime_ep_wgpu.tools._output import show_pairs

SESSIONS, BATCHES = (1, 2, 4), (1, 16)


def perceptron(layers: int, width: int) -> bytes:
    """Returns y = relu(... relu(x @ w0) ... @ wn), shape (N, width), f32."""
    rng, nodes, weights = np.random.default_rng(0), [], []
    names = ["x", *(f"h{k}" for k in range(1, layers)), "y"]
    for k in range(layers):
        w = rng.standard_normal((width, width), np.float32) / np.float32(np.sqrt(width / 2))
        weights.append(numpy_helper.from_array(w, f"w{k}"))
        nodes.append(helper.make_node("MatMul", [names[k], f"w{k}"], [f"p{k}"]))
        nodes.append(helper.make_node("Relu", [f"p{k}"], [names[k + 1]]))
    values = [helper.make_tensor_value_info(name, 1, ["N", width]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "perceptron", values[:1], values[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    made: bytes = model.SerializeToString()
    return made


def for_seconds(seconds: float, x: np.ndarray) -> Iterator[dict[str, np.ndarray]]:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        yield {"x": x}


def measured(model: bytes, devices: Sequence[Any], max_batch: int, width: int, seconds: float) -> str:
    """Measures one pool and returns a line of results."""
    x = np.random.default_rng(1).standard_normal((1, width), np.float32)
    with SessionPool(model, devices=devices, max_batch=max_batch, queue_size=256) as pool:
        # Every batch size has its own plan; these are made before the measurement.
        for rows in range(1, max_batch + 1):
            for future in [pool.submit({"x": np.repeat(x, rows, 0)}) for _ in range(4 * len(devices))]:
                future.result()
        before, began = pool.statistics(), time.perf_counter()
        done = sum(1 for _ in pool.map(for_seconds(seconds, x)))
        took, after = time.perf_counter() - began, pool.statistics()

    def more(name: str) -> float:
        return float(sum(getattr(it, name) for it in after.devices) - sum(getattr(it, name) for it in before.devices))

    busy = more("busy_seconds") / took / len(devices)
    return f"{done / took:.0f} requests/s, {more('rows') / more('batches'):.1f} rows per run, sessions busy {busy:.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", help="numbers of devices, separated by commas; by default those that a pool takes")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=5)
    given = parser.parse_args()
    found = webgpu_ep.devices()
    hardware = [it for it in found if "software" not in it.ep_metadata]
    chosen = [found[int(it)] for it in given.devices.split(",")] if given.devices else hardware or found
    model = perceptron(given.layers, given.width)
    print(", ".join(it.ep_metadata["name"] for it in chosen))
    for max_batch, sessions in itertools.product(BATCHES, SESSIONS):
        devices = list(itertools.islice(itertools.cycle(chosen), sessions))
        line = measured(model, devices, max_batch, given.width, given.seconds)
        show_pairs({f"{sessions} sessions, runs of up to {max_batch} rows": line})


if __name__ == "__main__":
    main()
