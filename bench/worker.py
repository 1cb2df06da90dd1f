"""One measurement in a process of its own: prints one line of JSON.

    python -m bench.worker '{"provider": "ours", "model": "minilm", "variation": 0, "runs": 10, "outputs": "FILE"}'

Every timed run ends by reading its results into numpy arrays, so that it includes all GPU work.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from tests import provider, zoo

ENOUGH = 20.0  # seconds of steady runs per process


def main() -> None:
    job = json.loads(sys.argv[1])
    which = job["provider"]
    path, feeds = _model(job["model"], job["variation"], job.get("dims", {}))
    ort.set_default_logger_severity(4)
    start = time.perf_counter()
    if which != "cpu":
        provider.devices(which)
    registered = time.perf_counter()
    session = provider.open_session(path, which)
    created = time.perf_counter()
    results = session.run(None, feeds)
    first = time.perf_counter()
    session.run(None, feeds)  # warm-up: from the second run on onnxruntime plans its memory
    steady: list[float] = []
    while len(steady) < job["runs"] and sum(steady) < ENOUGH:
        begin = time.perf_counter()
        results = session.run(None, feeds)
        steady.append(time.perf_counter() - begin)
    np.savez(job["outputs"], *results)
    placed = provider.placement(session)
    row: dict[str, Any] = {
        "provider": which,
        "model": job["model"],
        "shapes": {name: list(value.shape) for name, value in feeds.items()},
        "registration": registered - start,
        "creation": created - registered,
        "first_run": first - created,
        "steady_runs": steady,
        "peak_host_bytes": _peak_bytes(),
        "device_bytes": provider.counters()["buffer_bytes"] if which == "ours" else None,
        "nodes": {"webgpu": len(placed.on_gpu), "cpu": len(placed.on_cpu)},
        "device": provider.describe(which) if which != "cpu" else "CPU",
    }
    print("ROW " + json.dumps(row), flush=True)
    os._exit(0)


def _model(name: str, variation: int, dims: dict[str, int]) -> tuple[Path, dict[str, np.ndarray]]:
    if name in zoo.NAMES:
        case = zoo.load(name)
        return case.path, case.inputs(variation)
    return Path(name), random_feeds(Path(name), dims)


def random_feeds(path: Path, dims: dict[str, int]) -> dict[str, np.ndarray]:
    """Inputs for any model: floats in -1..1, integers 0 or 1; dynamic dims are given by name, 1 where they are not."""
    session = provider.open_session(path, "cpu")
    rng = np.random.default_rng(0)
    types = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
    feeds = {}
    for value in session.get_inputs():
        shape = [d if isinstance(d, int) else dims.get(str(d), 1) for d in value.shape]
        if value.type in types:
            feeds[value.name] = rng.uniform(-1, 1, shape).astype(types[value.type])
        else:
            feeds[value.name] = rng.integers(0, 2, shape).astype(value.type.removeprefix("tensor(").removesuffix(")"))
    return feeds


def _peak_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    main()
