"""The CPU time of a run on the calling thread: `python -m bench.host [--providers ours official cpu] [--official-env FILE]`.

In: the first adapter. Out: microseconds of CPU time of the calling thread, from the call of `run` to its return, on an idle
GPU. It prints the median and the least of many runs, with every provider in its own process. Kernels are tiny. Other threads
and waiting do not count, but a software adapter's threads evict this thread's data from the CPU caches.

For a decoder, another case has a mask in host memory that grows by one in each step, as in onnxruntime-genai without graph
capture. For a bound model on this provider, the parts of the time are differences of medians:

- `wrapper`: Python's `run_with_iobinding`, before and after ONNX Runtime
- `ORT`: ONNX Runtime's own run, and the call of the node, which compares tensors
- `submit`: checking the device, and the submission
- `encode`: making the command buffer in wgpu-native and the driver. It does not count if the thread waited before the run,
  because it is then done while waiting.
- `in Python`: the whole run if C code does not replay it, although nothing changed

The models: one Sigmoid; a MatMul 128x384x1536; a decoder step of `--layers` layers with caches in place.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from onnxruntime_ep_wgpu.tools._output import show_pairs
from tests import provider
from tests.language.models import Decoder, graph_of

from . import process

CACHE_ROWS = 128
MODELS = ("sigmoid", "matmul", "decoder")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.host", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--providers", nargs="+", choices=("ours", "official", "cpu"), help="those that are installed")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--layers", type=int, default=32, help="of the decoder (%(default)s)")
    parser.add_argument("--runs", type=int, default=200, help="per figure (%(default)s)")
    parser.add_argument("--official-env", type=Path, metavar="FILE", help="shell file for the official plugin")
    parser.add_argument("job", nargs="?", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        measure(**arguments.job)
    providers = arguments.providers or [it for it in ("ours", "official", "cpu") if provider.installed(it)]
    environments = process.environments(providers, arguments.official_env)
    for name in arguments.models:
        shown: dict[str, Any] = {}
        for which in providers:
            job = {"which": which, "name": name, "layers": arguments.layers, "runs": arguments.runs}
            for row in process.run("bench.host", job, environments[which]):
                shown |= {f"{which}: {key}": value for key, value in row.items()}
        show_pairs({"model": name, **shown})


def model_of(name: str, layers: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray], dict[str, str]]:
    """Returns a model, its inputs, and the outputs that share memory with inputs."""
    if name == "decoder":
        decoder = Decoder(layers=layers, length=CACHE_ROWS)
        mask = np.zeros((1, CACHE_ROWS), np.int64)
        mask[:, :20] = 1
        names = [f"{k}.{x}" for k in range(layers) for x in ("key", "value")]
        cache = np.zeros((1, decoder.groups, CACHE_ROWS, decoder.size), np.float32)
        feeds = {"input_ids": np.ones((1, 1), np.int64), "attention_mask": mask}
        feeds |= {f"past_key_values.{n}": cache for n in names}
        return graph_of(decoder), feeds, {f"present.{n}": f"past_key_values.{n}" for n in names}
    weights = []
    node, shape, result = helper.make_node("Sigmoid", ["x"], ["y"]), [64, 64], [64, 64]
    if name == "matmul":
        weights = [numpy_helper.from_array(np.zeros((384, 1536), np.float32), "w")]
        node, shape, result = helper.make_node("MatMul", ["x", "w"], ["y"]), [128, 384], [128, 1536]
    value = helper.make_tensor_value_info
    graph = helper.make_graph([node], name, [value("x", 1, shape)], [value("y", 1, result)], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return made, {"x": np.zeros(shape, np.float32)}, {}


def measure(which: str, name: str, layers: int, runs: int) -> None:
    """Prints the rows of one provider and model."""
    model, feeds, in_place = model_of(name, layers)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        if which != "cpu":
            provider.devices(which)
        session = provider.open_session(path, which)
    results = dict(zip([it.name for it in session.get_outputs()], session.run(None, feeds), strict=True))
    where = "cpu" if which == "cpu" else "webgpu"
    binding, given = session.io_binding(), {}
    for key, array in feeds.items():
        given[key] = ort.OrtValue.ortvalue_from_numpy(array, where, 0)
        binding.bind_ortvalue_input(key, given[key])
    for key, array in results.items():
        value = given.get(in_place.get(key, ""))
        if value is None:
            given[key] = value = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), array.dtype, where, 0)
        binding.bind_ortvalue_output(key, value)
    smallest = given[min((key for key in results if key not in in_place), key=lambda key: results[key].nbytes)]

    def bound() -> None:
        session.run_with_iobinding(binding)

    wait = smallest.numpy  # reading a value forces its calculation
    process.give({"bound": shown(timed(bound, wait, runs))})
    if name == "decoder":
        masks = cycle([ort.OrtValue.ortvalue_from_numpy(np.ones((1, n), np.int64)) for n in range(8, CACHE_ROWS)])

        def wait_with_longer_mask() -> None:
            wait()
            binding.bind_ortvalue_input("attention_mask", next(masks))

        process.give({"mask one longer": shown(timed(bound, wait_with_longer_mask, runs))})
        binding.bind_ortvalue_input("attention_mask", given["attention_mask"])
        timed(bound, wait, 1)
    if name != "decoder":
        process.give({"numpy in and out": shown(timed(lambda: session.run(None, feeds), wait, runs))})
    if which == "ours":
        process.give(parts(session, binding, bound, wait, runs))
    os._exit(0)  # skips the exit handlers of the libraries


def timed(run: Callable[[], object], wait: Callable[[], object], runs: int) -> list[float]:
    """Returns the thread's CPU microseconds of each run."""
    for _ in range(8):
        run()
    times = []
    for _ in range(runs):
        wait()
        begin = time.thread_time_ns()
        run()
        times.append((time.thread_time_ns() - begin) / 1e3)
    return times


def shown(times: list[float]) -> str:
    return f"{median(times):.1f} us, least {min(times):.1f}"


def parts(
    session: Any, binding: Any, bound: Callable[[], object], wait: Callable[[], object], runs: int
) -> dict[str, str]:
    """Returns the parts of the time of a bound run."""
    from onnxruntime_ep_wgpu._ort import lib
    from onnxruntime_ep_wgpu.device import encoding
    from onnxruntime_ep_wgpu.plugin.callbacks import held
    from onnxruntime_ep_wgpu.plugin.node import ComputeInfo

    memos = next(it.memos for it in list(held.values()) if isinstance(it, ComputeInfo) and it.memos is not None)
    before = memos.hits
    bound()
    assert memos.hits == before + 1, "the run is not repeated in C"
    last = max(range(len(memos._node.memos)), key=lambda k: int(memos._node.memos[k].last))
    work = memos._memos[last].work
    whole = timed(bound, wait, runs)
    direct = timed(lambda: session._sess.run_with_iobinding(binding._iobinding, None), wait, runs)
    submitted = timed(lambda: encoding.native.lib.run(work._words[0], 0), wait, runs)
    encoder = encoding.Encoder(work._queue.library, work._queue.device)
    encoded = timed(lambda: encoder.encode(work.recording), wait, runs)
    lib.listen(True)
    for it in memos._attempts.values():
        it._to_skip = 1 << 30
    in_python = timed(bound, wait, runs)
    return {
        "dispatches": str(len(work.recording)),
        "wrapper": f"{median(whole) - median(direct):.1f} us",
        "ORT": f"{median(direct) - median(submitted):.1f} us",
        "submit": f"{median(submitted):.1f} us",
        "encode, while waiting": f"{median(encoded):.1f} us",
        "in Python": shown(in_python),
    }


if __name__ == "__main__":
    main()
