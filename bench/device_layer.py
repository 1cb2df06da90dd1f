"""The costs of the device layer without a model: `python -m bench.device_layer`.

In: the first adapter. Out:

- microseconds to submit 300 dispatches, as a list, as a recording, and with the loop in Python
- the rates of uploads and downloads, and the latency of a small round trip
- how long one thread's wait blocks another thread's submission

Values are medians of repeated runs, without the first run of each.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable

import numpy as np

from onnxruntime_ep_wgpu.device import Device, adapters, encoding, open_device
from onnxruntime_ep_wgpu.tools._output import show_pairs

KERNEL = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) { y[id.x] = x[id.x] + 1.0; }
"""
SLOW = """
@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) {
  var v = y[id.x];
  for (var i = 0u; i < 20000u; i++) { v = v * 1664525u + 1013904223u; }
  y[id.x] = v;
}
"""
DISPATCHES = 300
LARGE = 64 << 20


def median_us(run: Callable[[], object], after: Callable[[], object], repeats: int = 30) -> float:
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
        after()
    return statistics.median(times[1:]) * 1e6


def submits(device: Device) -> dict[str, str]:
    kernels = [device.pipeline(KERNEL + "\n" * i, ("read", "read_write"), f"add {i}") for i in range(2)]
    buffers = [device.buffer(256) for _ in range(41)]
    dispatches = [
        (
            kernels[i % 2],
            device.bind_group(kernels[0], [(buffers[i % 41], 0, 256), (buffers[(i * 7 + 1) % 41], 0, 256)]),
            (1, 1, 1),
        )
        for i in range(DISPATCHES)
        if i % 41 != (i * 7 + 1) % 41
    ]
    recording = device.record(dispatches)
    result = {
        "as a list": median_us(lambda: device.submit(dispatches), device.wait),
        "as a recording": median_us(lambda: device.submit(recording), device.wait),
    }
    compiled, encoding.native = encoding.native, None
    result["with the Python loop"] = median_us(lambda: device.submit(dispatches), device.wait)
    encoding.native = compiled
    return {f"submit {len(dispatches)} dispatches {way}": f"{us:.0f} us" for way, us in result.items()}


def transfers(device: Device) -> dict[str, str]:
    data = np.zeros(LARGE, np.uint8)
    large, small = device.buffer(LARGE), device.buffer(64)

    def upload() -> None:
        device.upload(large, 0, data.data)
        device.wait()

    up = median_us(upload, lambda: None, 5)
    down = median_us(lambda: device.download(large, 0, data.data), lambda: None, 5)
    word = memoryview(bytearray(4))
    trip = median_us(lambda: device.download(small, 0, word), lambda: None)
    return {
        "upload 64 MiB": f"{up / 1e3:.1f} ms, {LARGE / up / 1e3:.1f} GB/s",
        "download 64 MiB": f"{down / 1e3:.1f} ms, {LARGE / down / 1e3:.1f} GB/s",
        "download 4 bytes": f"{trip:.0f} us",
    }


def waiting(device: Device) -> dict[str, str]:
    kernel = device.pipeline(SLOW, ("read_write",), "slow")
    y = device.buffer(4 * 64 * 1024)
    work = [(kernel, device.bind_group(kernel, [(y, 0, y.size)]), (1024, 1, 1))] * (
        4 if device.adapter.software else 500
    )
    device.submit(work[:1])
    device.wait()
    start = time.perf_counter()
    device.submit(work)
    waiter = threading.Thread(target=device.wait)
    waiter.start()
    time.sleep(0.005)
    before = time.perf_counter()
    device.submit(())
    blocked = time.perf_counter() - before
    waiter.join()
    whole = time.perf_counter() - start
    return {"a submit while another thread waits": f"blocked {blocked * 1e3:.1f} of {whole * 1e3:.1f} ms"}


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m bench.device_layer", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    device = open_device(adapters()[0])
    show_pairs({"adapter": device.target.name, **submits(device), **transfers(device), **waiting(device)})


if __name__ == "__main__":
    main()
