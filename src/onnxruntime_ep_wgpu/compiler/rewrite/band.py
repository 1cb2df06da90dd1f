"""Detects constants that define which keys a query sees by position: a causal mask, or a sliding window.

In: a view of a constant by heads, queries and keys, and its value for visible keys. Out: the `Band` of visible keys per query,
and the largest number outside of it. A constant that several layers share is analysed once.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from ...live import WeakAttributes
from ...program.weights import weight_array
from ...records import dataclass
from ..ir import Factor, Tensor, View, coalesce

Matrix = np.ndarray[Any, Any]
# Elements compared at a time. A tensor may be large; the search ends at the first block that is not part of a band.
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Band:
    """Query i sees the existing keys from i + `first` to i + `last`, and at least one."""

    first: int
    last: int

    def scores(self, queries: int, keys: int) -> int:
        """Returns the number of visible pairs of a query and a key."""
        at = np.arange(queries)
        return int((np.minimum(at + self.last, keys - 1) - np.maximum(at + self.first, 0) + 1).sum())


_Found = tuple[Band, float] | None
_known: WeakAttributes[Tensor, dict[Hashable, _Found]] = WeakAttributes()


def band_of(constant: View, seen: float | bool) -> _Found:
    """Returns the band in which a view (heads, queries, keys) of a weight equals `seen`, and the largest number outside of it.

    That number is NaN if there is a NaN. Returns None if the view is no band, differs between heads, or hides all keys of a
    query.
    """
    known = _known.get(constant.tensor)
    if known is None:
        known = {}
        _known.set(constant.tensor, known)
    key = (constant.shape, constant.axes, constant.offset, seen)
    if key not in known:
        known[key] = _computed_band(constant, seen)
    return known[key]


def _computed_band(constant: View, seen: float | bool) -> _Found:
    band: Band | None = None
    largest = -math.inf
    for matrix in _matrices(constant):
        band = band or _band_of_ends(matrix, seen)
        outside = None if band is None else _outside(matrix, seen, band)
        if outside is None:
            return None
        largest = float(np.maximum(largest, outside))
    return None if band is None else (band, largest)


def _matrices(constant: View) -> Iterator[Matrix]:
    """Yields matrices of queries by keys, one per distinct head. Yields none for a view that numpy cannot represent."""
    heads, *axes = map(coalesce, constant.axes)
    factors = [it for it in heads if it.stride != 0] + [axis[0] if axis else Factor(1, 0) for axis in axes]
    extents = [it.extent for it in factors if isinstance(it.extent, int)]
    strides = [it.stride for it in factors if isinstance(it.stride, int)]
    known = len(extents) == len(strides) == len(factors) and isinstance(constant.offset, int)
    if not known or any(len(axis) > 1 for axis in axes):
        return
    data = weight_array(constant.tensor.data).reshape(-1)[constant.offset :]
    whole = np.lib.stride_tricks.as_strided(data, extents, [it * data.itemsize for it in strides], writeable=False)
    for index in np.ndindex(*extents[:-2]):
        yield whole[index]


def _band_of_ends(matrix: Matrix, seen: float | bool) -> Band | None:
    """Returns the band defined by the first and the last query."""
    first, last = matrix[0] == seen, matrix[-1] == seen
    if not first.any() or not last.any():
        return None
    queries, keys = matrix.shape
    return Band(int(last.argmax()) - (queries - 1), keys - 1 - int(first[::-1].argmax()))


def _outside(matrix: Matrix, seen: float | bool, band: Band) -> float | None:
    """Returns the largest number outside of a band, or None if the visible elements are not exactly the band."""
    queries, keys = matrix.shape
    largest = -math.inf
    step = max(1, _BLOCK // keys)
    for begin in range(0, queries, step):
        block = matrix[begin : begin + step]
        distance = np.arange(keys) - np.arange(begin, begin + len(block))[:, None]
        inside = (distance >= band.first) & (distance <= band.last)
        if not np.array_equal(block == seen, inside):
            return None
        outside = block[~inside].astype(np.float64)
        largest = float(np.maximum(largest, outside.max(initial=-math.inf)))
    return largest
