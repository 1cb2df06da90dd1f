"""Tests whether a model's mask works. This is the final check after `mask_reach`.

In: a decoder with caches that might begin with padding rows. Out: True if such rows do not change the logits of two ids and of one
after them. The padding is a row of another id, as the model makes it, and rows of zeros, as from `kept_rows`. A model that
attends to them, or counts them as positions, gives other logits. Costs five runs of one or two ids when a model is loaded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .decoder import Decoder
from .state import State

_KEYS = 5
_ROUNDING = 0.02
"""Tolerance relative to the logits' standard deviation: far above f16 rounding, and far below the effect of one more row."""

Array = np.ndarray[Any, np.dtype[Any]]


def leaves_out_rows(decoder: Decoder) -> bool:
    if decoder.context < _KEYS:  # a model may have tables of that length
        return False
    other, *ids = (decoder.vocabulary * k // 7 for k in (1, 5, 3, 4))
    behind = State(decoder, 1)
    behind.run_ids(np.array([[other]]), np.array([1]), rows=2)
    behind.used = np.zeros(1, np.int64)  # masks its two rows from here on
    wanted, got = _logits(State(decoder, 1), ids, 0), _logits(behind, ids, 2)
    difference = np.sqrt(np.square(got - wanted).mean(-1))
    return bool((difference <= _ROUNDING * wanted.std(-1)).all())  # False for NaN


def _logits(state: State, ids: list[int], rows: int) -> Array:
    """Returns logits (2, vocabulary) of the second id of three and of the last, in caches that begin with `rows` rows."""
    found = []
    for part in (ids[:2], ids[2:]):
        rows += len(part)
        logits = state.run_ids(np.array([part]), np.array([len(part)]), rows)
        found.append(logits.numpy().reshape(-1).astype(np.float32))
    return np.stack(found)
