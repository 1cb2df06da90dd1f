"""Philox in Python, and what operators make of its words: the measure of the generator that kernels have.

Of Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3 (2011). Words have 32 bits, as in kernels, or 64, as
in numpy, with which this is compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_MULTIPLIERS = {32: (0xD2511F53, 0xCD9E8D57), 64: (0xD2E7470EE14C6C93, 0xCA5A826395121157)}
_STEPS = {32: (0x9E3779B9, 0xBB67AE85), 64: (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)}


def philox(counter: Any, key: Any, bits: int = 32) -> list[Any]:
    """Four words of each counter, a list of four numbers or arrays of them, after ten rounds."""
    mask = (1 << bits) - 1
    a, b, c, d = (np.asarray(it, object) for it in counter)
    low, high = key
    for _ in range(10):
        first, second = a * _MULTIPLIERS[bits][0], c * _MULTIPLIERS[bits][1]
        a, b, c, d = (second >> bits) ^ b ^ low, second & mask, (first >> bits) ^ d ^ high, first & mask
        low, high = (low + _STEPS[bits][0]) & mask, (high + _STEPS[bits][1]) & mask
    return [a, b, c, d]


def words(count: int, key: tuple[int, int], run: int) -> np.ndarray:
    """The words (uint32) of `count` elements in a run, counted from 1."""
    blocks = np.arange(-(-count // 4))
    made = philox((blocks, 0, run & 0xFFFFFFFF, run >> 32), key)
    return np.stack([it.astype(np.uint32) for it in made], axis=1).reshape(-1)[:count]


def of_seed(seed: float) -> tuple[int, int]:
    """The key of an attribute that is a float."""
    return int(np.float32(seed).view(np.uint32)), 0


def unit(words: np.ndarray) -> np.ndarray:
    """Numbers (float32) from 0 on and below 1."""
    return (words >> 8).astype(np.float32) * np.float32(2**-24)


def normal(words: np.ndarray) -> np.ndarray:
    """Standard normal numbers (float64), one for each word of whole pairs."""
    radius, angle = words.reshape(-1, 2).T
    small = np.maximum(radius.astype(np.float64), 0.5) * 2.0**-32
    length = np.sqrt(-2 * np.log(np.where(radius < 1 << 24, small, unit(radius).astype(np.float64))))
    place = ((angle >> 30) + ((angle & 0x3FFFFFFF) >> 6) * 2.0**-24 - 0.5) * np.pi / 2
    return np.stack([length * np.cos(place), length * np.sin(place)], axis=1).reshape(-1)
