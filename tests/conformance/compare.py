"""What counts as the right result: the suite's tolerances, exact integers, the same types and shapes.

In: what a session gave and what the suite expects, tensors, sequences or None. Out: None, or what differs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

# Half-precision results differ by the order of sums; the suite's own tolerance is for float32.
LOOSER = {"float16": (2e-3, 1e-3), "bfloat16": (1.6e-2, 1e-2)}
FLOOR = 1e-6
"""Absolute error that any float32 sum may have: the suite's 1e-7 is below one rounding of a value near 1."""


def to_value(expected: Any) -> Any:
    """The suite keeps types that numpy lacks, and sequences, as protobuf messages."""
    if isinstance(expected, onnx.TensorProto):
        return numpy_helper.to_array(expected)
    if isinstance(expected, onnx.SequenceProto):
        return numpy_helper.to_list(expected)
    if isinstance(expected, onnx.OptionalProto):
        return numpy_helper.to_optional(expected)
    return expected


def difference(got: Any, want: Any, rtol: float, atol: float, values: bool = True) -> str | None:
    """None when equal within the tolerances; `values=False` compares types and shapes only."""
    want = to_value(want)
    if isinstance(want, list):
        if not isinstance(got, list) or len(got) != len(want):
            return f"a sequence of {len(want)} expected, got {_brief(got)}"
        found = (difference(g, w, rtol, atol, values) for g, w in zip(got, want, strict=True))
        return next((f"item {i}: {d}" for i, d in enumerate(found) if d), None)
    if want is None or got is None:
        return None if want is None and got is None else f"{_brief(want)} expected, got {_brief(got)}"
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return f"shape {list(want.shape)} expected, got {list(got.shape)}"
    if got.dtype != want.dtype and not (want.dtype.kind in "OUS" and got.dtype.kind in "OUS"):
        return f"type {want.dtype} expected, got {got.dtype}"
    return _elements(got, want, rtol, atol) if values else None


def _elements(got: np.ndarray, want: np.ndarray, rtol: float, atol: float) -> str | None:
    if want.dtype.kind in "OUSbiu" or want.dtype.name.startswith(("int", "uint")):
        wrong = got != want
        if want.dtype.kind in "OUS":
            wrong = got.astype(str) != want.astype(str)
    else:
        rtol, floor = LOOSER.get(want.dtype.name, (rtol, FLOOR))
        wide_got, wide_want = got.astype(np.float64), want.astype(np.float64)
        wrong = ~np.isclose(wide_got, wide_want, rtol, max(atol, floor), equal_nan=True)
    if not wrong.any():
        return None
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {want.size} wrong, at {list(where)} got {got[where]!s} want {want[where]!s}"


def _brief(value: Any) -> str:
    return f"{type(value).__name__} {getattr(value, 'shape', '')}".strip()
