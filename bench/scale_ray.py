"""Rows per second of Ray actors: `python -m bench.scale_ray [--rows 64] [--layers 6] [--width 512] [--seconds 5]`.

In: a machine with Ray (`make test-ray` installs it). Out: rows per second of 1, 2 and 4 actors, each with a session on its own
GPU. Batches go to the actors and back through the object store. The model is that of `bench.scale`. With `--device`, and
without a GPU, all actors share one adapter. Software adapters also share the machine's cores, so more actors show the cost of
Ray, not the gain of more devices.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu.scale import Predictor
from onnxruntime_ep_wgpu.tools._output import show_pairs

from .scale import perceptron

ACTORS = (1, 2, 4)
AHEAD = 2
"""Batches per actor at a time: one runs, the next one waits."""


def measured(actors: int, model: object, device: str | None, rows: int, width: int, seconds: float) -> str:
    """Measures so many actors and returns a line of results."""
    import ray

    made = [ray.remote(Predictor).options(num_gpus=1).remote(model, device=device) for _ in range(actors)]
    batch = ray.put({"x": np.random.default_rng(1).standard_normal((rows, width), np.float32)})
    ray.get([actor.__call__.remote(batch) for actor in made for _ in range(4)])
    began, done = time.perf_counter(), 0
    running = {actor.__call__.remote(batch): actor for actor in made for _ in range(AHEAD)}
    while running:
        (first,), _ = ray.wait(list(running))
        actor = running.pop(first)
        done += len(ray.get(first)["y"])
        if time.perf_counter() - began < seconds:
            running[actor.__call__.remote(batch)] = actor
    took = time.perf_counter() - began
    for actor in made:
        ray.kill(actor)
    return f"{done / took:.0f} rows/s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="what session(device=...) takes; by default the GPU that Ray assigned")
    parser.add_argument("--rows", type=int, default=64, help="of a batch")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=5)
    given = parser.parse_args()
    import ray

    gpus = sum("software" not in it.ep_metadata for it in webgpu_ep.devices())
    device = given.device or (None if gpus else "software")
    count = gpus if device is None else max(ACTORS)
    ray.init(num_cpus=max(ACTORS), num_gpus=count, include_dashboard=False, log_to_driver=False)
    model = ray.put(perceptron(given.layers, given.width))
    for actors in ACTORS:
        if actors > count:
            break
        line = measured(actors, model, device, given.rows, given.width, given.seconds)
        show_pairs({f"{actors} actors, batches of {given.rows} rows": line})


if __name__ == "__main__":
    main()
