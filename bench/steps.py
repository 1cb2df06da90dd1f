"""The parts of a token's time in onnxruntime-genai: `python -m bench.steps [FOLDER] [KEY=VALUE...] [--tokens N]`.

In: a folder of onnxruntime-genai, or by default a small decoder that is written for it; options of the provider. Out: medians
of steps, in microseconds:

- `token`: from one call of `generate_next_token` to the next
- `idle`: from the end of a readback to the next readback. The GPU is idle in it until the run is submitted.
- `prepared`: the thread's CPU time for the next step, while the GPU works
- `waited`: the wait for the GPU after that. If it is 0, preparing takes longer than the GPU's work.

Also the number of steps in which Python had to run the model. A software adapter submits slowly and evicts the thread's data
from the CPU caches.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np

from onnxruntime_ep_wgpu._ort import ffi, lib
from onnxruntime_ep_wgpu.device import mapped, queue
from onnxruntime_ep_wgpu.plugin.node import ComputeInfo
from onnxruntime_ep_wgpu.tools._output import show_pairs
from tests.language.models import Decoder, write
from tests.language.worker import generator, model_of

PROMPT, BEFORE = 16, 16


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.steps", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("arguments", nargs="*", metavar="FOLDER|KEY=VALUE", help="a model, options of the provider")
    parser.add_argument("--tokens", type=int, default=128, help="(%(default)s)")
    parser.add_argument("--layers", type=int, default=16, help="of a model that is written (%(default)s)")
    given = parser.parse_args()
    options = dict(it.split("=", 1) for it in given.arguments if "=" in it)
    with tempfile.TemporaryDirectory() as scratch:
        folder = next((it for it in given.arguments if "=" not in it), None)
        if folder is None:
            captured = options.get("enableGraphCapture") == "1"
            decoder = Decoder("int4", layers=given.layers, length=PROMPT + BEFORE + given.tokens + 8, captured=captured)
            folder = str(write(decoder, Path(scratch) / "model"))
        show_pairs(measure(model_of(folder, "webgpu", options), given.tokens))


class Stretch:
    """Records calls of a function: begin and end in nanoseconds, and the thread's CPU time in each."""

    def __init__(self, of: Any, name: str) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.worked: list[int] = []
        setattr(of, name, self._around(getattr(of, name)))

    def _around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.begun.append(time.perf_counter_ns())
            before = time.thread_time_ns()
            try:
                return function(*arguments)
            finally:
                self.worked.append(time.thread_time_ns() - before)
                self.ended.append(time.perf_counter_ns())

        call.__dict__.update(function.__dict__)
        return call


def measure(model: Any, tokens: int) -> dict[str, str]:
    ids = np.random.default_rng(0).integers(3, 200, PROMPT)
    length = PROMPT + BEFORE + tokens + 4
    it = generator(model, [int(n) for n in ids], max_length=length, min_length=length)
    for _ in range(BEFORE):
        it.generate_next_token()
    computes, prepares = Stretch(ComputeInfo, "compute"), Stretch(queue.Queue, "run_deferred")
    downloaded = lib.downloaded
    in_c = SimpleNamespace(downloaded=lambda *arguments: downloaded(*arguments))
    waits = Stretch(in_c, "downloaded"), Stretch(mapped.Mapping, "wait")
    lib.downloaded = around = ffi.callback(ffi.typeof(downloaded), in_c.downloaded)
    calls = []
    for _ in range(tokens):
        it.generate_next_token()
        calls.append(time.perf_counter_ns())
    waited = sorted(pair for it in waits for pair in zip(it.begun, it.ended, strict=True))
    idle = [begin - end for begin, (_, end) in zip(prepares.begun[1:], waited, strict=False)]
    figures = {
        "token": [b - a for a, b in pairwise(calls)],
        "idle": idle,
        "prepared": prepares.worked,
        "waited": [b - a for a, b in waited],
    }
    del around
    shown = {name: f"{median(values) / 1000:.0f} us" for name, values in figures.items()}
    shown["tokens/s"] = f"{1e9 / median(figures['token']):.0f}"
    shown["steps in Python"] = f"{len(computes.begun)} of {tokens}"
    return shown


if __name__ == "__main__":
    main()
