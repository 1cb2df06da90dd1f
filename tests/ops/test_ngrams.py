"""TfIdfVectorizer of integers: lengths, tokens that are skipped, criteria, rows, beside the CPU provider."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests.support import compile_model, run_model

from .compare import check, model


def _grams(seed: int, vocabulary: int = 4) -> dict[str, Any]:
    """Distinct n-grams of one to three tokens, in a random order of columns."""
    rng = np.random.default_rng(seed)
    pool, counts, number = [], [], 0
    for length in (1, 2, 3):
        every = np.stack(np.meshgrid(*[np.arange(vocabulary)] * length), -1).reshape(-1, length)
        chosen = rng.permutation(every)[: rng.integers(1, len(every) + 1)]
        counts.append(len(pool))
        pool += chosen.reshape(-1).tolist()
        number += len(chosen)
    indexes = rng.permutation(number)
    return {"pool_int64s": pool, "ngram_counts": counts, "ngram_indexes": indexes.tolist()}


@pytest.mark.costly
@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("lengths", [(1, 1), (1, 2), (2, 2), (2, 3), (3, 3), (1, 3)])
@pytest.mark.parametrize("skips", [0, 1, 5])
def test_counts(mode: str, lengths: tuple[int, int], skips: int) -> None:
    rng = np.random.default_rng(skips)
    how = _grams(skips) | {"mode": mode, "max_skip_count": skips}
    how |= {"min_gram_length": lengths[0], "max_gram_length": lengths[1]}
    weights = {"weights": rng.standard_normal(len(how["ngram_indexes"])).astype(np.float32).tolist()}
    for x in (rng.integers(0, 5, (3, 11)), rng.integers(0, 5, 7, np.int32)):
        check("TfIdfVectorizer", x, outputs=[np.float32], **how)
        check("TfIdfVectorizer", x, outputs=[np.float32], symbolic=True, **how, **weights)


SOME: dict[str, Any] = {
    "mode": "TF",
    "min_gram_length": 1,
    "max_gram_length": 2,
    "max_skip_count": 0,
    "ngram_counts": [0, 2],
}
SOME |= {"ngram_indexes": [0, 1, 2], "pool_int64s": [7, -9, 7, 7]}


@pytest.mark.parametrize("shape", [(0,), (1,), (2, 0), (0, 4)])
def test_short_and_empty_rows(shape: tuple[int, ...]) -> None:
    built = model("TfIdfVectorizer", [np.full(shape, 7)], outputs=[np.float32], **SOME)
    want = np.zeros((*shape[:-1], 3), np.float32)
    want[..., 0] = shape[-1]
    want[..., 2] = max(0, shape[-1] - 1)
    np.testing.assert_array_equal(run_model(built, np.full(shape, 7))[0], want)


def test_tokens_of_all_64_bits() -> None:
    """They are compared whole: none is equal to another one of the same low bits, or to the ends of 32 bits."""
    x = np.array([7, 7 + 2**32, -9, -9 - 2**40, 2**63 - 1, -(2**63), 7, 7])
    check("TfIdfVectorizer", x, outputs=[np.float32], **SOME)


def test_a_vocabulary_as_large_as_those_of_texts() -> None:
    rng = np.random.default_rng(0)
    pool = rng.permutation(5000)
    how = SOME | {
        "max_gram_length": 1,
        "ngram_counts": [0],
        "pool_int64s": pool.tolist(),
        "ngram_indexes": np.arange(5000).tolist(),
    }
    check("TfIdfVectorizer", rng.integers(0, 9000, (4, 60)), outputs=[np.float32], **how)


@pytest.mark.parametrize(
    "changed, words",
    [
        ({"pool_int64s": [2**31, 1, 2, 3]}, "tokens beyond"),
        ({"ngram_counts": [0, 9]}, "ngram_counts"),
        ({"ngram_indexes": [0, -1, 2]}, "ngram_indexes"),
        ({"ngram_indexes": [0]}, "fewer than"),
        ({"max_gram_length": 3}, "lengths"),
        ({"mode": "IDF", "weights": [1.0]}, "weights"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        compile_model(model("TfIdfVectorizer", [np.arange(4)], outputs=[np.float32], **SOME | changed))
