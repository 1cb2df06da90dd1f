"""Hashes of n-grams beside the CPU provider: histories, ends, segments, offsets, numbers that wrap, one call beside several."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxruntime_ep_wgpu.errors import UnsupportedError
from tests import support
from tests.ops.compare import expected
from tests.ops.test_transformer_norms import build

TYPES = pytest.mark.parametrize("dtype", [np.int32, np.int64])
ORDERS, HEADS = 4, 2


def operands(dtype: Any, length: int) -> dict[str, np.ndarray]:
    rng, limits, all_heads = np.random.default_rng(length), np.iinfo(dtype), (ORDERS - 1) * HEADS
    return {
        "x": rng.integers(0, 5, (2, length)).astype(dtype),
        "multipliers": rng.integers(limits.min, limits.max, ORDERS, dtype),
        "rows": rng.integers(1, 1000, all_heads).astype(dtype),
        "past": rng.integers(0, 5, (2, ORDERS - 1)).astype(dtype),
        "offsets": rng.integers(0, 9999, all_heads).astype(dtype),
        "end": np.array(2, dtype),
        "segments": np.sort(rng.integers(0, 3, (2, length)), axis=1).astype(np.int32),
    }


def run(arrays: dict[str, np.ndarray], there: set[str], symbolic: bool, **how: Any) -> list[np.ndarray]:
    """What the node gives of these operands, which is what the CPU provider gives."""
    given = [it if name in there or k < 3 else None for k, (name, it) in enumerate(arrays.items())]
    while given[-1] is None:
        given.pop()
    dtype = arrays["x"].dtype
    model = build("NGramHashMapping", given, (dtype, dtype), symbolic=symbolic, pad_id=3, max_ngram_size=ORDERS,
                  n_head_per_ngram=HEADS, **how)  # fmt: skip
    want = expected(model, {f"x{k}": it for k, it in enumerate(given) if it is not None})
    got = support.run_model(model, *(it for it in given if it is not None))
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    return got


@TYPES
@pytest.mark.parametrize(
    "there",
    ["", "past", "offsets", "end", "end reset", "segments", "past offsets end reset segments"],
)
def test_hashes(there: str, dtype: Any) -> None:
    names = set(there.split())
    for length, symbolic in ((0, True), (1, False), (9, True)):
        run(operands(dtype, length), names, symbolic, reset_on_eos=int("reset" in names))


@TYPES
def test_a_sequence_in_pieces_has_the_hashes_of_the_whole(dtype: Any) -> None:
    arrays = operands(dtype, 9)
    how = {"reset_on_eos": 1}
    (whole, _), found = run(arrays, {"end"}, False, **how), []
    there, rest = {"end"}, arrays["x"]
    for length in (2, 4, 3):
        part, rest = rest[:, :length], rest[:, length:]
        hashes, past = run({**arrays, "x": part}, there, False, **how)
        there, arrays = {"end", "past"}, {**arrays, "past": past}
        found.append(hashes)
    np.testing.assert_array_equal(np.concatenate(found, axis=1), whole)


def test_what_does_not_fit_is_named() -> None:
    arrays = list(operands(np.int64, 3).values())[:3]
    for number, value, text in (
        (1, arrays[1][:2], "for n-grams of 4"),
        (2, arrays[2][:5], "for 6 heads of all orders"),
        (1, arrays[1].astype(np.int32), "have different types"),
    ):
        given = [*arrays[:number], value, *arrays[number + 1 :]]
        model = build("NGramHashMapping", given, (np.int64,), pad_id=3, max_ngram_size=ORDERS, n_head_per_ngram=HEADS)
        with pytest.raises(UnsupportedError, match=text):
            support.run_model(model, *given)
