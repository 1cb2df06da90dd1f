"""The cost of weights in external data: session creation compared with the disk and the bus, and the process's memory.

    python -m bench.external_data [--gigabytes N]

Writes a model of products with weights of 268 MB each into the temporary folder. Its data are measured in the page cache and,
on Linux, after eviction from it. `own` is the largest increase of the process's anonymous memory (RssAnon). `mapped` are mapped
pages of files (RssFile), which the system reclaims under memory pressure. Software adapters have weights in memory of the
process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

WIDTH = 8192
EACH = WIDTH * WIDTH * 4
PIECE = 64 << 20

SCRIPT = """
import json, sys, threading, time
import numpy as np, onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device import adapters, open_device
most, over = {}, threading.Event()
def sample():
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(("RssAnon", "RssFile")):
                name, kilobytes = line.split(":")
                most[name] = max(most.get(name, 0), int(kilobytes.split()[0]) << 10)
def watch():
    while not over.wait(0.005):
        sample()
webgpu_ep.session(sys.argv[2])  # the device is open
device, nbytes = open_device(adapters()[0]), 256 << 20
array, buffer, rates = np.ones(nbytes, np.uint8), device.caches.storage.take(nbytes, "bench"), []
for _ in range(5):
    began = time.perf_counter()
    device.upload(buffer, 0, array)
    device.download(buffer, 0, np.empty(16, np.uint8))
    rates.append(nbytes / (time.perf_counter() - began))
device.caches.storage.give(buffer)
del array
most.clear()
sample()
before = dict(most)
threading.Thread(target=watch, daemon=True).start()
began = time.perf_counter()
session = webgpu_ep.session(sys.argv[1])
made = time.perf_counter()
session.run(None, {"x": np.ones((1, int(sys.argv[3])), np.float32)})
done = time.perf_counter()
over.set()
sample()
print(json.dumps({"session": made - began, "run": done - made, "bus": max(rates),
    "own": most["RssAnon"] - before["RssAnon"], "mapped": most["RssFile"] - before["RssFile"]}))
"""


def products(count: int, width: int, where: str) -> onnx.ModelProto:
    """Returns y = x @ w0 @ w1..., with successive weights in the file `where`."""
    weights = []
    for k in range(count):
        it = TensorProto(name=f"w{k}", data_type=1, dims=[width, width], data_location=TensorProto.EXTERNAL)
        for key, value in {"location": where, "offset": k * width * width * 4, "length": width * width * 4}.items():
            it.external_data.add(key=key, value=str(value))
        weights.append(it)
    names = ["x", *(f"x{k}" for k in range(1, count)), "y"]
    nodes = [helper.make_node("MatMul", [names[k], f"w{k}"], [names[k + 1]]) for k in range(count)]
    x, y = (helper.make_tensor_value_info(it, 1, ["rows", width]) for it in "xy")
    graph = helper.make_graph(nodes, "products", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def write(path: Path, count: int, width: int) -> None:
    """Writes `count` different weights: the same random numbers, each rotated differently."""
    block = (np.random.default_rng(0).standard_normal((width // 32, width)) / 100).astype(np.float32).tobytes()
    with open(path, "wb") as file:
        for at in range(0, count * 32 * 64, 64):
            file.write(block[at:] + block[:at] if at < len(block) else block)
        file.flush()
        os.fsync(file.fileno())


def drop(path: Path) -> None:
    """Evicts a file from the page cache."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def rate(path: Path) -> float:
    """Returns the rate of reading a whole file, in bytes per second."""
    began, piece = time.perf_counter(), bytearray(PIECE)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(piece):
            pass
    return path.stat().st_size / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.external_data", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2, metavar="N", help="of weights (2)")
    count = max(1, round(parser.parse_args().gigabytes * 1e9 / EACH))
    with tempfile.TemporaryDirectory() as folder:
        data, model, small = (Path(folder) / it for it in ("weights", "model.onnx", "small.onnx"))
        write(data, count, WIDTH)
        write(Path(folder) / "few", 1, 64)
        onnx.save(products(count, WIDTH, data.name), model)
        onnx.save(products(1, 64, "few"), small)
        size = data.stat().st_size
        drop(data)
        cold, warm = rate(data) / 1e9, rate(data) / 1e9
        print(f"{count} weights, {size / 1e9:.2f} GB; the disk reads {cold:.2f} GB/s, memory of files {warm:.2f}")
        for way in ("compiled", "in memory", "in memory", "on the disk"):
            if way == "on the disk":
                drop(data)
            command = [sys.executable, "-c", SCRIPT, str(model), str(small), str(WIDTH)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            it = json.loads(done.stdout.splitlines()[-1])
            print(
                f"{way:12s} session {it['session']:6.2f} s, {size / it['session'] / 1e9:6.2f} GB/s; the bus takes"
                f" {it['bus'] / 1e9:6.2f} GB/s; first run {it['run']:5.2f} s; own {it['own'] / 1e6:6.0f} MB,"
                f" mapped {it['mapped'] / 1e6:6.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
