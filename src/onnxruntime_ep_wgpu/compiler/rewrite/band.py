"""Constants that say by position which keys a query sees: the causal mask of a decoder, a sliding window.

In: how a constant is looked at by heads, queries and keys, and what it is where a key is seen. Out: the `Band` of keys that it
leaves each query, and the largest number outside of it. A constant that layers share is looked at once.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from ...live import Known
from ...program.weights import weight_array
from ...records import dataclass
from ..ir import Factor, Tensor, View, coalesce

Matrix = np.ndarray[Any, Any]
# Elements that are looked at together: others may be many, and the first of them that is no band's ends it.
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Band:
    """Query i sees the keys from i + `first` to i + `last`, of those that there are, and at least one."""

    first: int
    last: int

    def scores(self, queries: int, keys: int) -> int:
        """How many of them it leaves."""
        at = np.arange(queries)
        return int((np.minimum(at + self.last, keys - 1) - np.maximum(at + self.first, 0) + 1).sum())


_Found = tuple[Band, float] | None
_known: Known[Tensor, dict[Hashable, _Found]] = Known()


def band_of(constant: View, seen: float | bool) -> _Found:
    """The band in which a view (heads, queries, keys) of a weight is `seen`, and the largest number outside of it, NaN where
    there is one. None for what is no band, is not the same one in all heads, or leaves a query no key."""
    known = _known.get(constant.tensor)
    if known is None:
        known = {}
        _known.set(constant.tensor, known)
    key = (constant.shape, constant.axes, constant.offset, seen)
    if key not in known:
        known[key] = _found(constant, seen)
    return known[key]


def _found(constant: View, seen: float | bool) -> _Found:
    band: Band | None = None
    largest = -math.inf
    for matrix in _matrices(constant):
        band = band or _at_the_ends(matrix, seen)
        outside = None if band is None else _outside(matrix, seen, band)
        if outside is None:
            return None
        largest = float(np.maximum(largest, outside))
    return None if band is None else (band, largest)


def _matrices(constant: View) -> Iterator[Matrix]:
    """Queries by keys, each once that heads have in common; nothing of a view that numpy does not have."""
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


def _at_the_ends(matrix: Matrix, seen: float | bool) -> Band | None:
    """The band that the first and the last query are in."""
    first, last = matrix[0] == seen, matrix[-1] == seen
    if not first.any() or not last.any():
        return None
    queries, keys = matrix.shape
    return Band(int(last.argmax()) - (queries - 1), keys - 1 - int(first[::-1].argmax()))


def _outside(matrix: Matrix, seen: float | bool, band: Band) -> float | None:
    """The largest number outside of a band, None where it is not just what is seen."""
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
