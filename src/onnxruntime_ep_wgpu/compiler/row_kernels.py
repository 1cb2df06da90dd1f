"""The constants that templates over rows declare, for both who make such kernels: operators (`ops/normalise.py`) and the rules
that find them spelled out (`rewrite/spelled.py`). A template that gets another constant gets it here."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def layer_norm(epsilon: float, centred: bool, statistics: Collection[str] = ()) -> dict[str, Any]:
    """Of `layer_norm`; `statistics` are those of "mean" and "inverse" that are results as well."""
    return {
        "EPSILON": float(epsilon),
        "CENTRED": centred,
        "MEAN": int("mean" in statistics),
        "INVERSE": int("inverse" in statistics),
    }


def softmax(logarithm: bool = False, masked: bool = False, sink: bool = False) -> dict[str, Any]:
    """Of `softmax`; `masked`: a row without a finite element is 0, `sink`: a further operand counts in the sums alone."""
    return {"LOGARITHM": logarithm, "MASKED": masked, "SINK": sink}
