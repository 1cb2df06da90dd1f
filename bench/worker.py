"""One measurement: one provider and one model in this process.

    python -m bench.worker '{"provider": "ours", "model": {"name": "minilm"}, "runs": 10, "outputs": "FILE", "gpu": true}'

In: a job. Out: rows for `process`: the measurement and, if the job requests it, GPU time. Invariant: a timed run ends when its
results exist. With copies, it is `session.run` on numpy arrays. Without copies, inputs and outputs are bound on the device, and
every run ends with a read of the smallest output into a numpy array. A provider's own synchronisation may not wait for the GPU,
but a value that has been read must have been calculated. The CPU provider does the same with values in host memory.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from json import loads
from typing import Any

import numpy as np
import onnxruntime as ort

from tests import provider

from . import gpu_time, process
from .models import Feeds, Model

ENOUGH = 20.0  # seconds of steady runs, with and without copies each
WARM_UP = 2  # runs, because onnxruntime plans its memory from the second run on
WARM_UP_SECONDS = 0.3  # for an idle GPU to raise its clocks


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.worker", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job", metavar="JSON", type=loads, help="what to measure; bench.compare writes it")
    job = parser.parse_args().job
    which, model = job["provider"], Model(**job["model"])
    path, feeds = model.file(), model.feeds()
    ort.set_default_logger_severity(4)
    start = time.perf_counter()
    if which != "cpu":
        provider.devices(which)
    registered = time.perf_counter()
    session = provider.open_session(path, which)
    created = time.perf_counter()
    results = session.run(None, feeds)
    first = time.perf_counter()
    with_copies = _steady(lambda: session.run(None, feeds), job["runs"])
    bound_run, read_bytes = _bound(session, feeds, results, "cpu" if which == "cpu" else "webgpu")
    without_copies = _steady(bound_run, job["runs"])
    peak = _peak_bytes()
    device_bytes = provider.counters()["buffer_bytes"] if which == "ours" else None
    np.savez(job["outputs"], *results)
    placed = provider.placement(session)
    row: dict[str, Any] = {
        "provider": which,
        "shapes": {name: list(value.shape) for name, value in feeds.items()},
        "registration": registered - start,
        "creation": created - registered,
        "first_run": first - created,
        "with_copies": with_copies,
        "without_copies": without_copies,
        "read_bytes": read_bytes,
        "peak_host_bytes": peak,
        "device_bytes": device_bytes,
        "nodes": {"webgpu": len(placed.on_gpu), "cpu": len(placed.on_cpu)},
        "cpu_operators": dict(placed.cpu_operators().most_common()),
        "device": provider.describe(which),
    }
    process.give(row)
    if job.get("gpu") and which in gpu_time.MEASURES:
        try:
            process.give({"gpu": gpu_time.MEASURES[which](path, feeds, job["runs"])})
        except gpu_time.NoTimestampsError as reason:
            process.give({"gpu_missing": str(reason)})
    os._exit(0)  # skips the exit handlers of the libraries


def _steady(run: Callable[[], object], count: int) -> list[float]:
    """Returns the seconds of `count` runs, or of fewer if they take long, but at least 3."""
    done, start = 0, time.perf_counter()
    while done < WARM_UP or time.perf_counter() - start < WARM_UP_SECONDS:
        run()
        done += 1
    seconds: list[float] = []
    while len(seconds) < count and (sum(seconds) < ENOUGH or len(seconds) < 3):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return seconds


def _bound(
    session: ort.InferenceSession, feeds: Feeds, results: list[np.ndarray], where: str
) -> tuple[Callable[[], None], int]:
    """Returns a run on values in the memory `where`, and the bytes that it reads at its end."""
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(np.asarray(array, order="C"), where, 0))
    outputs = []
    for output, array in zip(session.get_outputs(), results, strict=True):
        value = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), array.dtype, where, 0)
        binding.bind_ortvalue_output(output.name, value)
        outputs.append(value)
    smallest = min((k for k, array in enumerate(results) if array.size), key=lambda k: results[k].nbytes, default=None)

    def run() -> None:
        session.run_with_iobinding(binding)
        if smallest is not None:
            outputs[smallest].numpy()

    return run, 0 if smallest is None else results[smallest].nbytes


def _peak_bytes() -> int | None:
    """Returns the peak resident memory of this process; None on Windows."""
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main()
