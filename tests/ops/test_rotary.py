"""Rotary embeddings of both domains: heads in their own axis or merged, parts of a head, and every way to say a position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxruntime_ep_wgpu.errors import OutOfRangeError

from .compare import check, random

ROWS = 50


def caches(half: int, dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    return random(ROWS, half, dtype=dtype), random(ROWS, half, seed=2, dtype=dtype)


def positions(kind: str) -> np.ndarray:
    """For 2 sequences of 5: a position each, or that of the first."""
    if kind in ("first", "scalar"):
        return np.array([7] if kind == "first" else 7)
    return np.random.default_rng(0).integers(0, ROWS, (2, 5))


@pytest.mark.costly
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_of_onnx(interleaved: int, dtype: type) -> None:
    cosines, sines = caches(4, dtype)
    at = positions("each")
    how = {"opset": 23, "interleaved": interleaved}
    heads = random(2, 3, 5, 8, dtype=dtype)
    check("RotaryEmbedding", heads, cosines, sines, at, **how)
    check("RotaryEmbedding", random(2, 5, 24, dtype=dtype), cosines, sines, at, num_heads=3, **how)
    part = [np.ascontiguousarray(c[:, :2]) for c in (cosines, sines)]
    check("RotaryEmbedding", heads, *part, at, rotary_embedding_dim=4, num_heads=3, **how)
    each = [random(2, 5, 4, seed=k, dtype=dtype) for k in (1, 2)]
    check("RotaryEmbedding", heads, *each, **how)


@pytest.mark.costly
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("kind", ["first", "each"])
@pytest.mark.parametrize("size", [2, 8, 34])
def test_of_microsoft(interleaved: int, dtype: type, kind: str, size: int) -> None:
    how = {"domain": "com.microsoft", "interleaved": interleaved}
    at, tables = positions(kind), caches(size // 2, dtype)
    check("RotaryEmbedding", random(2, 3, 5, size, dtype=dtype), at, *tables, **how)
    check("RotaryEmbedding", random(2, 5, 3 * size, dtype=dtype), at, *tables, **how)
    check("RotaryEmbedding", random(2, 5, 3 * size, dtype=dtype), at, *tables, symbolic=True, constants=[2, 3], **how)


@pytest.mark.costly
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("kind", ["first", "scalar", "each"])
def test_of_a_part_of_each_head(interleaved: int, kind: str) -> None:
    how = {"domain": "com.microsoft", "interleaved": interleaved, "num_heads": 3, "rotary_embedding_dim": 4}
    check("RotaryEmbedding", random(2, 5, 3 * 10), positions(kind), *caches(2), **how)
    check("RotaryEmbedding", random(2, 3, 5, 10), positions(kind), *caches(2), **how)
    check("RotaryEmbedding", random(2, 5, 3 * 10), positions(kind), *caches(2), symbolic=True, **how)


def test_packed_sequences_may_be_longer_than_the_caches() -> None:
    at = np.random.default_rng(0).integers(0, ROWS, (1, 2 * ROWS))
    check("RotaryEmbedding", random(1, 2 * ROWS, 16), at, *caches(4), domain="com.microsoft", is_packed_batching=1)


@pytest.mark.parametrize("at", [np.array([ROWS - 4]), np.array([-1]), np.full((2, 5), ROWS)], ids=str)
def test_a_position_that_no_row_has_is_named(at: np.ndarray) -> None:
    with pytest.raises(OutOfRangeError, match="outside the rows of the cosines"):
        check("RotaryEmbedding", random(2, 5, 16), at, *caches(4), domain="com.microsoft", constants=[1], want=[])
