"""The Program of a group in an entry, with its weights by reference.

In: a Program, and which of its weights are constants of the group's graph, by name. Out: a header as a file of a Program has it,
and the bytes of constants that the compiler calculated, which are few. Of these: the same Program, with the constants of a graph
as its weights. Invariant: the reader of files (`program/reading.py`) has looked at all that is used.
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
    """A Program, and the names of its graph's inputs and outputs in its order."""

    program: Program
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def content_of(
    stored: StoredProgram, names: Mapping[int, str], whole: bool = False
) -> tuple[dict[str, Any], bytes] | None:
    """As JSON has it, and the data behind it; None for a Program that cannot be kept, as with large constants of its own, which
    are kept where it is to be `whole`. `names` are those of the graph's constants, by the identity of their tensors."""
    rows: list[Any] = []
    data = bytearray()
    for weight in stored.program.weights:
        source = weight.data if isinstance(weight, Permuted) else weight
        name = names.get(id(source))
        if name is not None:
            rows.append([name, list(weight.permutation) if isinstance(weight, Permuted) else None])
            continue
        if hasattr(source, "facts") and not whole:
            return None  # of another graph than the key's: what it is was not noted
        array = np.ascontiguousarray(weight_array(weight))
        if len(data) + array.nbytes > MOST_CALCULATED and not whole:
            return None
        rows.append(weight_row(array))
        data += b"\0" * (-len(data) % _ALIGNED) + weight_bytes(array)
    content = {"inputs": stored.inputs, "outputs": stored.outputs, "weights": rows, "program": header(stored.program)}
    return content, bytes(data)


def program_of(content: Mapping[str, Any], data: bytes | memoryview, graph: ShownGraph, name: str) -> StoredProgram:
    """The Program of an entry for a graph, under a name of its own. Raises EntryError where it is none of that."""
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
                raise EntryError("its data are cut off")
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
        raise EntryError("its graph has other inputs or outputs")


def _constant(graph: ShownGraph, name: Any, permutation: Any) -> Any:
    value = graph.initializers.get(name)
    if value is None or value.constant is None:
        raise EntryError(f"the graph has no constant {name!r}")
    array = array_of(value.constant)
    if permutation is None:
        return array
    if sorted(permutation) != list(range(array.ndim)) or any(type(it) is not int for it in permutation):
        raise EntryError(f"{permutation} is no order of the axes of {name!r}")
    return Permuted(name, tuple(permutation), array)


def has_arrays(graph: ShownGraph) -> bool:
    """Whether the constants of a graph are all of types that `array_of` knows."""
    codes = {it.code for it in DType}
    constants = [value.constant for value in graph.initializers.values()]
    return all(it is None or it.code in codes or it.code == STRING for it in constants)


def array_of(it: Constant) -> Any:
    """A constant as an array; elements narrower than a byte as packed bytes."""
    return it.raw if it.bits < 8 else it.raw.view(DType.of(it.code).numpy).reshape(it.shape)
