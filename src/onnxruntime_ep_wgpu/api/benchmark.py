"""Measures run times as a caller experiences them. The web runtime has the same function `benchmark`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import OptionError
from ..records import dataclass

if TYPE_CHECKING:
    import onnxruntime as ort


@dataclass(frozen=True)
class Times:
    """Run times in milliseconds: the mean, the shortest and the longest."""

    avg: float
    min: float
    max: float


def benchmark(session: ort.InferenceSession, feeds: Mapping[str, Any], iterations: int = 10) -> Times:
    """Measures `iterations` runs with results on the host, after one warm-up run.

    `feeds` maps input names to arrays. Returns milliseconds. Raises OptionError for `iterations` below 1, and what `run` raises.
    """
    if not isinstance(iterations, int) or iterations < 1:
        raise OptionError(f"iterations is {iterations!r}, it must be an integer of at least 1")
    times = []
    for _ in range(iterations + 1):
        start = time.perf_counter()
        session.run(None, dict(feeds))
        times.append(1000 * (time.perf_counter() - start))
    counted = times[1:]
    return Times(sum(counted) / iterations, min(counted), max(counted))
