"""TfIdfVectorizer of integers: counts the n-grams of an attribute's list in rows of tokens.

One invocation counts the n-grams of one column of the result. Strings stay on the CPU: they cannot be stored on a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ....errors import UnsupportedError
from ....program.dtypes import DType
from ..builder import Builder, Operand
from .index import narrowed
from .registry import op

Criterion = Literal["TF", "IDF", "TFIDF"]
LARGEST = 2**31 - 2  # of a token: tokens are compared as i32, where a number beyond is one of the two limits
WIDEST = 1 << 24  # columns of a result


@op("TfIdfVectorizer", types=frozenset({DType.INT32, DType.INT64}))
def tf_idf_vectorizer(
    b: Builder,
    x: Operand,
    *,
    mode: Criterion,
    min_gram_length: int,
    max_gram_length: int,
    max_skip_count: int,
    ngram_counts: list[int],
    ngram_indexes: list[int],
    pool_int64s: list[int] | None = None,
    pool_strings: list[str] | None = None,
    weights: list[float] | None = None,
) -> Operand:
    """x (tokens,) or (rows, tokens) -> (columns,) or (rows, columns) of f32: counts scaled by `weights`, one per n-gram."""
    if x.rank not in (1, 2):
        raise UnsupportedError(f"tokens must have rank 1 or 2, and {x} is given")
    if pool_strings or pool_int64s is None:
        raise UnsupportedError("n-grams of strings, which cannot be stored on a device")
    pool, indexes = np.asarray(pool_int64s, np.int64), np.asarray(ngram_indexes, np.int64)
    if max_skip_count < 0 or not 1 <= min_gram_length <= max_gram_length <= len(ngram_counts):
        lengths = f"{min_gram_length} to {max_gram_length}, of the lengths for which {len(ngram_counts)} ngram_counts are given"
        raise UnsupportedError(f"n-grams of the lengths {lengths}, with {max_skip_count} tokens between them")
    if np.abs(pool).max(initial=0) > LARGEST:
        raise UnsupportedError(f"n-grams of tokens beyond {LARGEST} are not supported")
    if not indexes.size or indexes.min() < 0 or indexes.max() >= WIDEST:
        raise UnsupportedError(f"ngram_indexes must be from 0 to {WIDEST - 1}, and not empty")
    columns = int(indexes.max()) + 1
    scale = np.asarray([1.0] * len(indexes) if weights is None or not len(weights) else weights, np.float32)
    if len(scale) != len(indexes):
        raise UnsupportedError(f"{len(scale)} weights for {len(indexes)} n-grams")
    if mode == "IDF" and len(np.unique(indexes)) < len(indexes) and len(np.unique(scale)) > 1:
        raise UnsupportedError("several n-grams of one column have different weights, and IDF uses one")
    starts = [int(it) for it in ngram_counts]
    first, begins, lengths_of, numbers = _by_column(pool, indexes, starts, range(min_gram_length, max_gram_length + 1))
    rows = x if x.rank == 2 else b.reshape(x, (1, *x.shape))
    tokens = rows.shape[1]
    operands = {
        "x": (narrowed(b, rows), (1, 1)),
        "pool": (b.constant(np.append(pool, 0).astype(np.int32)), (1,)),
        "first": (b.constant(first), (1,)),
        "begin": (b.constant(begins), (1,)),
        "length": (b.constant(lengths_of), (1,)),
    }
    if mode != "TF":
        operands["weight"] = b.constant(scale[numbers]), (1,)
    most = int(np.diff(first).max(initial=0))
    y = b.map(
        "ngrams",
        DType.FLOAT32,
        (rows.shape[0], columns),
        ("row", "column"),
        (1, 1),
        operands,
        parameters={"tokens": tokens},
        cost=64,
        reuse=True,
        iterations=most * (max_skip_count + 1) * tokens * (1 + max_gram_length),
        STEPS=max_skip_count + 1,
        MODE=mode,
    )
    return y if x.rank == 2 else b.reshape(y, (columns,))


def _by_column(pool: np.ndarray, indexes: np.ndarray, starts: Sequence[int], wanted: range) -> tuple[np.ndarray, ...]:
    """Returns the n-grams of wanted lengths, ordered by column, as four arrays: the start of each column, and per n-gram its
    position in the pool, its length and its number. Of equal n-grams the last one counts."""
    ends, number, found = [*starts[1:], len(pool)], 0, dict[bytes, tuple[int, int, int, int]]()
    for length, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        if not 0 <= start <= end <= len(pool):
            raise UnsupportedError(f"ngram_counts {starts} do not divide {len(pool)} tokens")
        for place in range(start, end - length + 1, length):
            if number >= len(indexes):
                raise UnsupportedError(f"{len(indexes)} ngram_indexes are fewer than the n-grams")
            if length in wanted:
                found[pool[place : place + length].tobytes()] = int(indexes[number]), place, length, number
            number += 1
    grams = np.array(sorted(found.values()), np.int32).reshape(-1, 4)
    first = np.searchsorted(grams[:, 0], np.arange(int(indexes.max()) + 2)).astype(np.int32)
    grams = np.append(grams, np.zeros((1, 4), np.int32), axis=0)  # an array on a device has at least one element
    return first, *(grams[:, k].copy() for k in (1, 2, 3))
