"""Constants that are one in memory: one that equals another, or is another one transposed.

In: an ONNX graph. Out: which of its constants are looked at through another one, and how. A table of embeddings that is the last
product too comes as two constants, because who exported or optimised the model has transposed one of them; the product
reads the other as well, along k. Invariant: constants are tied only when all their bytes are compared, once for a
graph and the groups that are cut out of it. What is tied is part of the key of what is compiled: looking for it is no fact of
every constant.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir

from ..program.weights import Permuted
from .facts import unnoted

SMALLEST = 1 << 16  # bytes; of less it is not worth looking
_SAMPLES = 16
_COMPARED_AT_ONCE = 128  # rows and columns
_KEY = "tied constants"
_PRODUCTS = ("MatMul", "Gemm")

Array = np.ndarray[Any, Any]


Ties = Mapping[str, Permuted]
"""By the name of a constant, which then needs no memory: what it is of another one."""


def ties_of(graph: ir.Graph) -> Ties:
    """What is tied in a graph; looked for once."""
    if _KEY not in graph.meta:
        graph.meta[_KEY] = _found(graph)
    return graph.meta[_KEY]  # type: ignore[no-any-return]


def hand_on(ties: Ties, graph: ir.Graph) -> None:
    """Says of a graph with the same constants, or some of them, what is tied in it."""
    constants = graph.initializers
    graph.meta[_KEY] = {name: tie for name, tie in ties.items() if name in constants and tie.of in constants}


def places_of(ties: Ties, graph: ir.Graph) -> dict[str, int]:
    """Where in memory the constants of ties are."""
    names = {*ties, *(tie.of for tie in ties.values())}
    found = {name: graph.initializers[name].const_value for name in names}
    return {name: _bytes_of(it).ctypes.data for name, it in found.items() if it is not None}


def hold(ties: Ties, graph: ir.Graph, places: Mapping[str, int]) -> bool:
    """Whether these constants are tied in a graph that has all of them; as before where they are at the same `places`."""
    if places == places_of(ties, graph):
        return True
    for name, tie in ties.items():
        constant, other = graph.initializers[name].const_value, graph.initializers[tie.of].const_value
        if constant is None or other is None:
            return False
        array, whole = _bytes_of(constant), _bytes_of(other).transpose(tie.permutation)
        if array.dtype != whole.dtype or array.shape != whole.shape or not _equal(whole, array):
            return False
    return True


def _found(graph: ir.Graph) -> dict[str, Permuted]:
    alike: dict[tuple[Any, ...], list[ir.Value]] = defaultdict(list)
    for value in graph.initializers.values():
        tensor = value.const_value
        if (
            tensor is None
            or tensor.nbytes < SMALLEST
            or tensor.dtype == ir.DataType.STRING
            or tensor.dtype.bitwidth < 8
        ):
            continue
        shape = tuple(map(int, tensor.shape.numpy()))
        alike[tensor.dtype, tuple(sorted(shape)) if len(shape) == 2 else shape].append(value)
    out: dict[str, Permuted] = {}
    for values in alike.values():
        if len(values) > 1:
            out |= _among(sorted(values, key=_is_multiplied))
    return out


def _is_multiplied(value: ir.Value) -> bool:
    """Whether only products read it, for which it lies as well transposed."""
    return all(node.op_type in _PRODUCTS for node, _ in value.uses())


def _among(values: Iterable[ir.Value]) -> dict[str, Permuted]:
    """The ties among constants of a type and a size; the first of equal ones is the one that stays."""
    kept: dict[bytes, list[tuple[str, Array]]] = defaultdict(list)
    out: dict[str, Permuted] = {}
    for value in values:
        assert value.const_value is not None and value.name
        array = _bytes_of(value.const_value)
        tie = next((Permuted(n, tuple(range(array.ndim))) for n, it in kept[_sample(array)] if _equal(it, array)), None)
        if tie is None and array.ndim == 2 and _is_multiplied(value):
            transposed = array.T
            candidates = [
                (n, it) for n, it in kept[_sample(transposed)] if it.shape[1] % 4 == 0
            ]  # loaded in fours along k
            tie = next((Permuted(n, (1, 0)) for n, it in candidates if _equal(it, transposed)), None)
        if tie is None:
            kept[_sample(array)].append((value.name, array))
        else:
            out[value.name] = tie
    return out


def _bytes_of(tensor: ir.TensorProtocol) -> Array:
    """The elements as unsigned integers: NaN equals itself, and 0 is not -0."""
    array = unnoted(tensor)
    return array.view(f"u{array.dtype.itemsize}")


def _sample(array: Array) -> bytes:
    """The shape and some elements, by places that are as far along each axis in every array."""
    at = tuple(
        (place * extent).astype(np.int64) for place, extent in zip(_places(array.ndim), array.shape, strict=True)
    )
    found: bytes = array[at].tobytes()
    return repr(array.shape).encode() + found


@cache
def _places(rank: int) -> Array:
    """Of the samples, as parts of the extent of each axis: multiples of powers of the golden ratio, which lie apart."""
    steps = ((1 + 5**0.5) / 2) ** -np.arange(1.0, rank + 1)
    return steps[:, None] * np.arange(1, _SAMPLES + 1) % 1


def _equal(a: Array, b: Array) -> bool:
    """Equality of arrays of one shape, by tiles, in which the one that is transposed stays in the cache."""
    if a.ndim != 2:
        return bool(np.array_equal(a, b))
    step = _COMPARED_AT_ONCE
    return all(
        np.array_equal(a[i : i + step, j : j + step], b[i : i + step, j : j + step])
        for i in range(0, a.shape[0], step)
        for j in range(0, a.shape[1], step)
    )
