"""Chooses the next token at random.

In: scores of next tokens. Out: a token per prompt. Invariant: the distribution is that of the CPU provider. With a seed, the
tokens are those of a CPU provider that is built with GNU's C++ library, because the random number generator is the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .parameters import SearchParameters

Array = np.ndarray[Any, Any]
_FACTOR, _MODULUS = 16807, 2**31 - 1


class RandomNumbers:
    """Random numbers from 0 to 1, equal to those of `std::uniform_real_distribution<double>` with `std::minstd_rand0`.

    Each is made from two steps of a linear congruential generator.
    """

    def __init__(self, seed: int) -> None:
        self._state = seed % _MODULUS or 1

    def __call__(self) -> float:
        span = _MODULUS - 1
        low = self._next() - 1
        return min((low + float(self._next() - 1) * span) / (float(span) * span), 1.0 - 2.0**-53)

    def _next(self) -> int:
        self._state = self._state * _FACTOR % _MODULUS
        return self._state


def sample(scores: Array, parameters: SearchParameters, chance: RandomNumbers) -> Array:
    """Returns a token for each row. Changes the scores of tokens that are filtered out."""
    for row in scores:
        (_filter_custom if parameters.search.custom else _filter)(row, parameters)
    return np.array([_draw(row, chance) for row in scores], np.int32)


def _filter(row: Array, parameters: SearchParameters) -> None:
    """Filters out the least likely tokens, as long as the sum of their probabilities is at most 1 - top_p."""
    order = np.argsort(row, kind="stable")
    summed = np.cumsum(_softmax(row[order]), dtype=np.float32)
    keep = max(1, len(row) - parameters.search.min_tokens_to_keep)
    low = summed <= np.float32(1) - np.float32(parameters.search.top_p)
    low[keep:] = False
    row[order[low]] = np.float32(parameters.search.filter_value)


def _filter_custom(row: Array, parameters: SearchParameters) -> None:
    """Keeps the most likely tokens until the sum of their probabilities exceeds top_p, and filters out the others."""
    order = np.argsort(-row, kind="stable")
    summed = np.cumsum(_softmax(row[order]), dtype=np.float32)
    beyond = np.flatnonzero(summed[:-1] > np.float32(parameters.search.top_p)) + 1
    row[order[beyond]] = np.float32(parameters.search.filter_value)


def _softmax(row: Array) -> Array:
    raised: Array = np.exp(row - row.max())
    raised /= raised.sum(dtype=np.float32)
    return raised


def _draw(row: Array, chance: RandomNumbers) -> int:
    finite = np.isfinite(row)
    highest = float(row[finite].max()) if finite.any() else float(np.finfo(np.float32).min)
    summed = np.cumsum(np.where(finite, np.exp(np.where(finite, row, 0).astype(np.float64) - highest), 0.0))
    return min(int(np.searchsorted(summed, chance() * summed[-1], side="right")), len(row) - 1)
