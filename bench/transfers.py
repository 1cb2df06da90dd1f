"""Copies through ONNX Runtime, compared with plain wgpu: `python -m bench.transfers [--adapter N]`.

In: an adapter. Out: microseconds and GB/s to copy tensors to the device, back, and between device tensors. The loads are one
tensor of several sizes, and many small ones in one call. Both sides move the same bytes on devices of the same adapter and wait
for the device. On a software adapter, the cost of large uploads depends on the C library's allocator for staging memory. Either
side may differ by a factor of two or three between runs of this program.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort
import wgpu

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device import Adapter, adapters, context_of, wgpu_py
from onnxruntime_ep_wgpu.tools._output import show_pairs

# (tensors, bytes of each)
LOADS = ((1, 8 << 10), (1, 1 << 20), (1, 64 << 20), (100, 16 << 10))
USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


@dataclass
class Side:
    """The three copies of one side. Each returns after the bytes have arrived."""

    upload: Callable[[], object]
    download: Callable[[], object]
    copy: Callable[[], object]


def through_onnxruntime(adapter: Adapter, arrays: list[np.ndarray]) -> Side:
    device = context_of(adapter).device()
    hosts = [ort.OrtValue.ortvalue_from_numpy(array) for array in arrays]
    backs = [ort.OrtValue.ortvalue_from_numpy(array.copy()) for array in arrays]
    here, there = (
        [ort.OrtValue.ortvalue_from_shape_and_type([array.size], np.uint8, "webgpu", adapter.index) for array in arrays]
        for _ in range(2)
    )

    def upload() -> None:
        ort.copy_tensors(hosts, here, None)
        device.wait()

    def copy() -> None:
        ort.copy_tensors(here, there, None)
        device.wait()

    upload()
    copy()
    # Not `here`: the content of small tensors from the host is cached there and never read back.
    return Side(upload, lambda: ort.copy_tensors(there, backs, None), copy)


def plain(adapter: Adapter, arrays: list[np.ndarray]) -> Side:
    """Returns the copies as a wgpu-py program would do them: write_buffer, one encoder, one reused staging buffer."""
    native = context_of(adapter, 1).device()
    device = wgpu_py.gpu_device(native)
    here, there = ([device.create_buffer(size=array.nbytes, usage=USAGE) for array in arrays] for _ in range(2))
    total = sum(array.nbytes for array in arrays)
    staging = device.create_buffer(size=total, usage=wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST)
    back = np.empty(total, np.uint8)

    def submit(copies: list[tuple[Any, Any, int, int]]) -> None:
        encoder = device.create_command_encoder()
        for source, target, place, nbytes in copies:
            encoder.copy_buffer_to_buffer(source, 0, target, place, nbytes)
        device.queue.submit([encoder.finish()])

    def upload() -> None:
        for buffer, array in zip(here, arrays, strict=True):
            device.queue.write_buffer(buffer, 0, array)
        submit([])
        native.wait()

    def copy() -> None:
        submit([(source, target, 0, source.size) for source, target in zip(here, there, strict=True)])
        native.wait()

    def download() -> None:
        places = np.cumsum([0] + [buffer.size for buffer in there[:-1]])
        submit([(source, staging, int(at), source.size) for source, at in zip(there, places, strict=True)])
        staging.map_sync(wgpu.MapMode.READ)
        back[:] = np.frombuffer(staging.read_mapped(copy=False), np.uint8)
        staging.unmap()

    return Side(upload, download, copy)


def medians(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float]:
    """Returns the seconds of one run of each: the better of two medians of at least five runs, the sides in turns."""
    best = [float("inf"), float("inf")]
    for _ in range(2):
        for side, run in enumerate((ours, theirs)):
            times: list[float] = []
            end = time.perf_counter() + 0.5
            while time.perf_counter() < end or len(times) < 6:
                start = time.perf_counter()
                run()
                times.append(time.perf_counter() - start)
            best[side] = min(best[side], statistics.median(times[1:]))
    return best[0], best[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--adapter", type=int, default=0, help="the place of the adapter (default: the first)")
    adapter = adapters()[parser.parse_args().adapter]
    webgpu_ep.devices()
    rows: dict[str, str] = {}
    for count, nbytes in LOADS:
        arrays = [np.random.default_rng(n).integers(0, 255, nbytes, np.uint8) for n in range(count)]
        ours, theirs = through_onnxruntime(adapter, arrays), plain(adapter, arrays)
        for name in ("upload", "download", "copy"):
            mine, other = medians(getattr(ours, name), getattr(theirs, name))
            rate = count * nbytes / mine / 1e9
            rows[f"{name}, {count} x {nbytes >> 10} KiB"] = (
                f"{mine * 1e6:9.0f} us ({rate:5.2f} GB/s), plain wgpu {other * 1e6:9.0f} us: {mine / other:.2f} of it"
            )
    show_pairs(rows, f"copies on {adapter.name} ({adapter.backend})")


if __name__ == "__main__":
    main()
