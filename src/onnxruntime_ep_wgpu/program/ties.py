"""Constants that share memory: one equals another, or is another one transposed.

In: the constants of a graph. Out: which of them are views of another one, and how. A table of embeddings that is also the last
product's weight comes as two constants, because the exporter or optimiser has transposed one of them. The product reads the other
one just as well, along k. Invariant: constants are tied only after a comparison of all their bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np

from ..records import dataclass
from .weights import Permuted

SMALLEST = 1 << 16  # bytes; smaller constants are not compared
PRODUCTS = ("MatMul", "Gemm")
"""Operators that also accept a transposed constant."""
_SAMPLES = 16
_COMPARED_AT_ONCE = 512  # rows and columns

Array = np.ndarray[Any, Any]

Ties = Mapping[str, Permuted]
"""By the name of a constant, which then needs no memory: the view of another one."""


@dataclass(frozen=True)
class Candidate:
    """A constant. Its `elements` are unsigned integers, so that NaN equals itself and 0 differs from -0.

    `multiplied`: only products read it.
    """

    name: str
    kind: int  # the ONNX code of its element type
    shape: tuple[int, ...]
    multiplied: bool
    elements: Callable[[], Array]


def ties_among(constants: Iterable[Candidate]) -> Ties:
    """Returns the ties among constants of at least SMALLEST bytes, with elements of whole bytes."""
    alike: dict[tuple[Any, ...], list[Candidate]] = defaultdict(list)
    for it in constants:
        alike[it.kind, tuple(sorted(it.shape)) if len(it.shape) == 2 else it.shape].append(it)
    out: dict[str, Permuted] = {}
    for values in alike.values():
        if len(values) > 1:
            out |= _of_one_size(sorted(values, key=lambda it: it.multiplied))
    return out


def _of_one_size(constants: Iterable[Candidate]) -> dict[str, Permuted]:
    """Returns the ties among constants of a type and a size.

    Only corners are compared first, because pages may still be on disk. A transposed constant has the same corners.
    """
    alike: dict[bytes, list[Candidate]] = defaultdict(list)
    for it in constants:
        flat = it.elements().reshape(-1)
        alike[flat[:1].tobytes() + flat[-1:].tobytes()].append(it)
    out: dict[str, Permuted] = {}
    for values in alike.values():
        if len(values) > 1:
            out |= _of_one_corner(values)
    return out


def _of_one_corner(constants: Iterable[Candidate]) -> dict[str, Permuted]:
    """The same for constants with equal corners. The first of equal ones is kept."""
    kept: dict[bytes, list[tuple[str, Array]]] = defaultdict(list)
    out: dict[str, Permuted] = {}
    for it in constants:
        array = it.elements()
        as_it_is = (Permuted(n, tuple(range(array.ndim))) for n, other in kept[_sample(array)] if equal(other, array))
        tie = next(as_it_is, None)
        if tie is None and array.ndim == 2 and it.multiplied:
            transposed = array.T
            candidates = [
                (n, other) for n, other in kept[_sample(transposed)] if other.shape[1] % 4 == 0
            ]  # loaded in fours along k
            tie = next((Permuted(n, (1, 0)) for n, other in candidates if equal(other, transposed)), None)
        if tie is None:
            kept[_sample(array)].append((it.name, array))
        else:
            out[it.name] = tie
    return out


def _sample(array: Array) -> bytes:
    """Returns the shape and some elements as bytes, at places that are the same fractions of each extent in every array."""
    at = tuple(
        (place * extent).astype(np.int64) for place, extent in zip(_places(array.ndim), array.shape, strict=True)
    )
    found: bytes = array[at].tobytes()
    return repr(array.shape).encode() + found


@cache
def _places(rank: int) -> Array:
    """The places of the samples, as fractions of the extent of each axis. They are multiples of powers of the golden ratio, and
    so are spread out."""
    steps = ((1 + 5**0.5) / 2) ** -np.arange(1.0, rank + 1)
    return steps[:, None] * np.arange(1, _SAMPLES + 1) % 1


def equal(a: Array, b: Array) -> bool:
    """Whether arrays of one shape are equal. Compares tiles, so that a transposed array stays in the cache."""
    if a.ndim != 2:
        return bool(np.array_equal(a, b))
    step = _COMPARED_AT_ONCE
    return all(
        np.array_equal(a[i : i + step, j : j + step], b[i : i + step, j : j + step])
        for i in range(0, a.shape[0], step)
        for j in range(0, a.shape[1], step)
    )
