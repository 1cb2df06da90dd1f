"""Operators with data-dependent output sizes, beside the CPU provider: `python -m bench.data_sized [--part 1.0]`.

In: a fraction of the sizes below, less than 1 for software adapters. Out: a line per case with the milliseconds of a run,
inputs uploaded and results downloaded, by this provider and by the CPU provider, and whether the results are equal. Times are
medians of the faster half of the runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import onnxruntime as ort

import onnxruntime_ep_wgpu as wgpu
from onnxruntime_ep_wgpu.tools._output import show_table
from tests.ops.compare import model

F = np.float32
SECONDS = 3.0  # per case


def cases(part: float) -> Iterator[tuple[str, Any, dict[str, np.ndarray]]]:
    rng = np.random.default_rng(0)
    count = int(25200 * part)
    corner, size = rng.random((1, count, 2)) * 640, rng.random((1, count, 2)) * 60 + 4
    boxes = np.concatenate([corner, corner + size], -1).astype(F)
    scores = (rng.random((1, 80, count)) ** 8).astype(F)
    for most, least in ((100, 0.5), (300, 0.001), (300, 0.0)):
        arrays = [boxes, scores, np.array([most]), np.array([0.45], F), np.array([least], F)]
        yield f"NonMaxSuppression {count} x 80, {most} above {least}", *_built("NonMaxSuppression", arrays, [np.int64])
    x = (rng.random((1, 3, int(1024 * part), 512)) * 2).astype(F).round()
    yield f"NonZero {x.shape}", *_built("NonZero", [x], [np.int64])
    flat = rng.integers(0, 5000, int(1_000_000 * part))
    yield f"Unique {flat.shape}", *_built("Unique", [flat], [np.int64] * 4)
    yield f"Compress {flat.shape}", *_built("Compress", [flat, rng.random(flat.size) < 0.3], [np.int64], axis=0)


def _built(
    op: str, arrays: list[np.ndarray], outputs: list[Any], **attributes: Any
) -> tuple[Any, dict[str, np.ndarray]]:
    return model(op, arrays, outputs=outputs, **attributes), {f"x{k}": it for k, it in enumerate(arrays)}


def milliseconds(run: Callable[[], object]) -> float:
    run()
    times, end = [], time.perf_counter() + SECONDS
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 100):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return 1000 * float(np.median(sorted(times)[: len(times) // 2 + 1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", type=float, default=1.0)
    part = parser.parse_args().part
    rows = []
    for name, made, feeds in cases(part):
        text = made.SerializeToString()
        ours, theirs = wgpu.session(text), ort.InferenceSession(text, providers=["CPUExecutionProvider"])
        equal = all(
            a.shape == b.shape and bool((a == b).all())
            for a, b in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True)
        )
        both = [milliseconds(partial(it.run, None, feeds)) for it in (ours, theirs)]
        rows.append((name, *(f"{it:.1f}" for it in both), "equal" if equal else "differ"))
    show_table(("case", "ms", "CPU provider", "results"), rows, wgpu.devices()[0].ep_metadata["name"])


if __name__ == "__main__":
    main()
