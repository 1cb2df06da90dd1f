"""How long runs take, as a caller sees it: the same function as the web runtime's `benchmark`."""

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
    """Milliseconds of a run."""

    avg: float
    min: float
    max: float


def benchmark(session: ort.InferenceSession, feeds: Mapping[str, Any], iterations: int = 10) -> Times:
    """Runs with results in memory, after one that is not counted. `feeds` are arrays by input. Raises OptionError."""
    if not isinstance(iterations, int) or iterations < 1:
        raise OptionError(f"iterations is {iterations!r}, it takes a whole number from 1 on")
    times = []
    for _ in range(iterations + 1):
        start = time.perf_counter()
        session.run(None, dict(feeds))
        times.append(1000 * (time.perf_counter() - start))
    counted = times[1:]
    return Times(sum(counted) / iterations, min(counted), max(counted))
