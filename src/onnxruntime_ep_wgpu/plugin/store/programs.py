"""The Program of a group in an entry, with its weights by reference.

In: a Program, and the names of weights that are constants of the group's graph. Out: a header as in a Program's file, and the
bytes of constants that the compiler calculated, which are few. In the other direction: the same Program, with the constants of
a graph as its weights. Invariant: `program/reading.py`, the reader of files, has checked all data that are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...kept.entry import EntryError, understood
from ...program.dtypes import DType
from ...program.file import check_weights, from_header, header, stored_weight, weight_row
from ...program.program import Program
from ...program.weights import Permuted, weight_array, weight_bytes
from ...records import dataclass
from ..assign.shown import STRING, Constant, ShownGraph

KIND = "program"
MOST_CALCULATED = 4 << 20  # bytes of constants in an entry
_ALIGNED = 16


@dataclass(frozen=True)
class StoredProgram:
    """A Program, and the names of its graph's inputs and outputs, in the Program's order."""

    program: Program
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def content_of(
    stored: StoredProgram, names: Mapping[int, str], whole: bool = False
) -> tuple[dict[str, Any], bytes] | None:
    """Returns a Program as JSON, and its data; None if it cannot be stored, for example because of large calculated constants.

    `names`: the names of the graph's constants, by the identity of their tensors. `whole`: stores all constants.
    """
    rows: list[Any] = []
    data = bytearray()
    for weight in stored.program.weights:
        source = weight.data if isinstance(weight, Permuted) else weight
        name = names.get(id(source))
        if name is not None:
            rows.append([name, list(weight.permutation) if isinstance(weight, Permuted) else None])
            continue
        if hasattr(source, "facts") and not whole:
            return None  # a constant of another graph than the key's: no fact records its content
        array = np.ascontiguousarray(weight_array(weight))
        if len(data) + array.nbytes > MOST_CALCULATED and not whole:
            return None
        rows.append(weight_row(array))
        data += b"\0" * (-len(data) % _ALIGNED) + weight_bytes(array)
    content = {"inputs": stored.inputs, "outputs": stored.outputs, "weights": rows, "program": header(stored.program)}
    return content, bytes(data)


def program_of(content: Mapping[str, Any], data: bytes | memoryview, graph: ShownGraph, name: str) -> StoredProgram:
    """Returns the Program of an entry for a graph, with this name. Raises EntryError if it does not fit the graph."""
    with understood():
        found = replace(from_header(content["program"]), name=name)
        weights, at = [], 0
        for row in content["weights"]:
            if len(row) == 2:
                weights.append(_constant(graph, *row))
                continue
            dtype, shape, nbytes = stored_weight(row)
            at += -at % _ALIGNED
            if at + nbytes > len(data):
                raise EntryError("its data are truncated")
            raw = np.frombuffer(data[at : at + nbytes], np.uint8) if nbytes else np.empty(0, np.uint8)
            weights.append(raw.view(dtype).reshape(shape))
            at += nbytes
        check_weights(found, [weight_array(it) for it in weights])
        inputs, outputs = (tuple(content[it]) for it in ("inputs", "outputs"))
        _check_names(inputs, [it.name for it in graph.inputs], len(found.inputs))
        _check_names(outputs, [it.name for it in graph.outputs], len(found.outputs) - len(found.sized))
    return StoredProgram(replace(found, weights=tuple(weights)), inputs, outputs)


def _check_names(found: Sequence[Any], expected: Sequence[str], count: int) -> None:
    if sorted(found) != sorted(expected) or len(found) != count:
        raise EntryError("its inputs or outputs do not match its graph")


def _constant(graph: ShownGraph, name: Any, permutation: Any) -> Any:
    value = graph.initializers.get(name)
    if value is None or value.constant is None:
        raise EntryError(f"the graph has no constant {name!r}")
    array = array_of(value.constant)
    if permutation is None:
        return array
    if sorted(permutation) != list(range(array.ndim)) or any(type(it) is not int for it in permutation):
        raise EntryError(f"{permutation} is not a permutation of the axes of {name!r}")
    return Permuted(name, tuple(permutation), array)


def has_arrays(graph: ShownGraph) -> bool:
    """Whether `array_of` supports the types of all constants of a graph."""
    codes = {it.code for it in DType}
    constants = [value.constant for value in graph.initializers.values()]
    return all(it is None or it.code in codes or it.code == STRING for it in constants)


def array_of(it: Constant) -> Any:
    """Returns a constant as an array; elements narrower than a byte as packed bytes."""
    return it.raw if it.bits < 8 else it.raw.view(DType.of(it.code).numpy).reshape(it.shape)
