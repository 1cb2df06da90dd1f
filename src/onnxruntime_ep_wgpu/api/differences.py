"""How far two arrays are from each other, as `verify` counts it.

In: what was calculated, and what is right. Out: errors as parts of the largest finite value that is right.
"""

from __future__ import annotations

from typing import Any

import numpy as np

TOLERANCE = {"float16": 4e-3}
"""By type where the tolerance is not that of OTHERS: f16 has 11 bits, and both providers round every value to them."""
OTHERS = 1e-3


def tolerance_of(dtype: str, asked: float | None) -> float:
    """The largest error that is none."""
    return TOLERANCE.get(dtype, OTHERS) if asked is None else asked


def above(got: Any, want: Any, tolerance: float | None) -> tuple[float, float, str]:
    """The largest error, its scale, and how many elements are above the tolerance, as "3 of 1000"."""
    found, scale = errors(got.reshape(-1), want.reshape(-1)) if want.size else (np.zeros(1), 0.0)
    count = int(np.count_nonzero(~(found <= tolerance_of(str(want.dtype), tolerance))))
    return float(found.max()), scale, f"{count} of {want.size}"


def errors(got: Any, want: Any, slack: Any = 0.0) -> tuple[Any, float]:
    """The difference of every element, less `slack`, as a part of the scale, and the scale."""
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    scale = float(np.abs(b[finite]).max()) if finite.any() else 0.0
    whole = got.dtype.kind in "iub"
    with np.errstate(invalid="ignore"):
        # float64 does not distinguish all 64-bit integers.
        same = got == want if whole else (a == b) | (np.isnan(a) & np.isnan(b))
        apart = np.maximum(np.abs(a - b), 1.0) if whole else np.abs(a - b)
        difference = np.where(same, 0.0, np.where(np.isfinite(a) & finite, apart, np.inf))
    difference = np.maximum(0.0, difference - slack)
    if whole:
        return np.where(difference == 0, 0.0, np.inf), scale
    return difference / (scale or 1.0), scale
