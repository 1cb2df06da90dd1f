"""The error metric of `verify`.

In: a calculated array and its reference. Out: errors relative to the scale, which is the largest finite absolute value of the
reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np

TOLERANCE = {"float16": 4e-3}
"""Tolerances of types that differ from OTHERS. f16 has 11 significant bits, and both providers round every value to them."""
OTHERS = 1e-3


def tolerance_of(dtype: str, asked: float | None) -> float:
    """Returns the largest accepted error: `asked`, or the type's default."""
    return TOLERANCE.get(dtype, OTHERS) if asked is None else asked


def above(got: Any, want: Any, tolerance: float | None) -> tuple[float, float, str]:
    """Returns the largest error, its scale, and the count of elements above the tolerance, as "3 of 1000"."""
    found, scale = errors(got.reshape(-1), want.reshape(-1)) if want.size else (np.zeros(1), 0.0)
    count = int(np.count_nonzero(~(found <= tolerance_of(str(want.dtype), tolerance))))
    return float(found.max()), scale, f"{count} of {want.size}"


def errors(got: Any, want: Any, slack: Any = 0.0) -> tuple[Any, float]:
    """Returns the relative error of every element after subtraction of `slack`, and the scale. Integers differ by 0 or inf."""
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    scale = float(np.abs(b[finite]).max()) if finite.any() else 0.0
    whole = got.dtype.kind in "iub"
    with np.errstate(invalid="ignore"):
        # float64 cannot represent all 64-bit integers.
        same = got == want if whole else (a == b) | (np.isnan(a) & np.isnan(b))
        apart = np.maximum(np.abs(a - b), 1.0) if whole else np.abs(a - b)
        difference = np.where(same, 0.0, np.where(np.isfinite(a) & finite, apart, np.inf))
    difference = np.maximum(0.0, difference - slack)
    if whole:
        return np.where(difference == 0, 0.0, np.inf), scale
    return difference / (scale or 1.0), scale
