"""Speed ratios between two providers, per model and overall.

In: summary rows of `compare`. Out: per model the ratio of medians for every measure that both have, and for each measure the
geometric mean and the minimum. A ratio above 1 means that `ours` is faster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

MEASURES = {
    "with_copies": "with copies",
    "without_copies": "without copies",
    "gpu": "GPU time",
    "start_cold": "start, cold",
    "start_warm": "start, warm",
}
Row = dict[str, Any]


def ratios(rows: Sequence[Row], other: str = "official") -> Row:
    """Returns {"other", "models": {model: {measure: ratio}}, "geometric_mean": {measure: ratio},
    "least": {measure: [ratio, model]}}."""
    measured = {(row["model"], row["provider"]): row for row in rows if "error" not in row}
    models: dict[str, dict[str, float]] = {}
    for (model, provider), mine in measured.items():
        theirs = measured.get((model, other))
        if provider == "ours" and theirs:
            models[model] = {m: theirs[m] / mine[m] for m in MEASURES if mine.get(m) and theirs.get(m)}
    means, least = {}, {}
    for measure in MEASURES:
        of = {model: found[measure] for model, found in models.items() if measure in found}
        if of:
            means[measure] = math.exp(sum(map(math.log, of.values())) / len(of))
            lowest = min(of, key=lambda model: of[model])
            least[measure] = [of[lowest], lowest]
    return {"other": other, "models": models, "geometric_mean": means, "least": least}
