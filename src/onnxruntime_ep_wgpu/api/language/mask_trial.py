"""Whether a model leaves out what its mask says, tried: decisive, after what its nodes show.

In: a decoder whose caches could begin with rows that mean nothing. Out: True where such rows change no logits, of two ids and of
one behind them. The rows are of another id, as a model makes them, and of zeros, as `kept_rows` does: one that attends to them,
or counts them as positions, gives other logits. Five runs of one or two ids, when a model is loaded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .decoder import Decoder
from .state import State

_KEYS = 5
_ROUNDING = 0.02
"""Of the deviation of logits: many times what f16 and other kernels make, and a fraction of what attention to a row does."""

Array = np.ndarray[Any, np.dtype[Any]]


def leaves_out_rows(decoder: Decoder) -> bool:
    if decoder.context < _KEYS:  # models may have tables for so many keys
        return False
    other, *ids = (decoder.vocabulary * k // 7 for k in (1, 5, 3, 4))
    behind = State(decoder, 1)
    behind.run_ids(np.array([[other]]), np.array([1]), rows=2)
    behind.used = np.zeros(1, np.int64)  # its two rows are masked from here on
    wanted, got = _logits(State(decoder, 1), ids, 0), _logits(behind, ids, 2)
    difference = np.sqrt(np.square(got - wanted).mean(-1))
    return bool((difference <= _ROUNDING * wanted.std(-1)).all())  # NaN is not


def _logits(state: State, ids: list[int], rows: int) -> Array:
    """(2, vocabulary), of the second id of three and of the last, behind caches of so many rows."""
    found = []
    for part in (ids[:2], ids[2:]):
        rows += len(part)
        logits = state.run_ids(np.array([part]), np.array([len(part)]), rows)
        found.append(logits.numpy().reshape(-1).astype(np.float32))
    return np.stack(found)
