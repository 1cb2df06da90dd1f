"""How long a driver takes to compile each kernel of a model, without caches: `python -m bench.pipelines MODEL [MODEL ...]`.

Use it to find the kernels that dominate a first session. Kernels are compiled one after another, in a process of their own, with
the caches of Mesa and NVIDIA in a new folder. In: ONNX models with known sizes. Out: per kernel the milliseconds, the bytes of WGSL
and the nodes, the slowest first; their sum and the adapter.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.device import open_device
from onnxruntime_ep_wgpu.device.adapters import adapters
from onnxruntime_ep_wgpu.program.program import Program
from onnxruntime_ep_wgpu.tools._output import show_table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--device", type=int, default=0, help="number of the adapter (see wgpu-ep info)")
    parser.add_argument("--library", default="wgpu-native", help="wgpu-native or dawn")
    parser.add_argument("--count", type=int, default=12, help="how many kernels of a model are shown")
    parser.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.compile:
        print(json.dumps(_times(json.load(sys.stdin), given.device)))
        return
    for path in given.models:
        with tempfile.TemporaryDirectory() as folder:
            rows = _rows(path, given.device, given.library, Path(folder))
        total = sum(row[0] for row in rows)
        print(
            f"{path.stem}: {len(rows)} kernels, {total:.0f} ms on one thread, {given.library}, {adapters()[given.device].name}"
        )
        shown = [[f"{took:.0f}", size, label] for took, size, label in rows[: given.count]]
        show_table(["ms", "bytes", "kernel"], shown)


def _rows(path: Path, device: int, library: str, folder: Path) -> list[tuple[float, int, str]]:
    """Returns milliseconds, bytes and label of each kernel of a model, the slowest first."""
    found = webgpu_ep.explain(path, webgpuLibrary=library, adapterIndex=device)
    kernels = {kernel[0]: kernel for program in found.programs for kernel in _kernels(program)}
    caches = {"MESA_SHADER_CACHE_DIR": str(folder), "__GL_SHADER_DISK_CACHE_PATH": str(folder)}
    caches["WGPU_EP_LIBRARY"] = library  # of the device that compiles
    command = [
        sys.executable,
        "-m",
        "bench.pipelines",
        "--compile",
        "--device",
        str(device),
        str(path),
    ]
    done = subprocess.run(
        command,
        input=json.dumps([*kernels.values()]),
        env=os.environ | caches,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    rows = zip(json.loads(done.stdout), kernels.values(), strict=True)
    return sorted(((took, len(text), label) for took, (text, _, label) in rows), reverse=True)


def _kernels(program: Program) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Returns text, bindings and label of the kernels that run, with the variant for the sizes of the model."""
    for dispatch in program.dispatches:
        kernel = program.kernels[dispatch.kernel]
        variant = next((k for k, guard in enumerate(dispatch.guards) if guard), None)
        if variant is not None:
            nodes = ", ".join(dispatch.origin[:3])
            yield kernel.wgsl[variant], kernel.all_bindings, f"{kernel.label}: {nodes}"


def _times(kernels: list[tuple[str, list[str], str]], device: int) -> list[float]:
    """Returns the milliseconds of each compilation."""
    opened, found = open_device(adapters()[device]), []
    for text, bindings, label in kernels:
        before = time.perf_counter()
        opened.pipeline(text, tuple(bindings), label)
        found.append((time.perf_counter() - before) * 1e3)
    return found


if __name__ == "__main__":
    main()
