"""A Program in a file: its JSON, followed by the bytes of its weights, each at a multiple of 16.

In: a Program, or a path. Out: the file, or a Program with weights that are mapped and not read. Invariants: a loaded program
equals the saved one. A damaged file, another format version and an insufficient Target are ProgramErrors.
"""

from __future__ import annotations

import enum
import json
import math
import struct
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ProgramError, cause_of, cut
from ..writing import OutputFile, atomic_file
from .dtypes import DType
from .program import FORMAT_VERSION, Assertion, Check, Declined, Dispatch, Kernel, Program, Storage, Symbol, Value
from .reading import MOST, MOST_AXES, items, parsed, program_of
from .target import Target, check_target
from .weights import weight_array, weight_bytes

_MAGIC = b"wgpuprog"
_ROWS: dict[str, type[Any]] = {
    "symbols": Symbol,
    "values": Value,
    "kernels": Kernel,
    "dispatches": Dispatch,
    "checks": Check,
    "assertions": Assertion,
    "declined": Declined,
}
# The types of stored weights, by their names in numpy. Elements narrower than a byte are stored as bytes.
_STORED = {it.value[1]: it for it in DType if it.bits >= 8}
COLUMNS: dict[str, tuple[str, ...]] = {
    **{table: tuple(it.name for it in fields(kind)) for table, kind in _ROWS.items()},
    "weights": ("dtype", "shape", "nbytes"),
}
"""The tables of a header, one row per object, with their columns. `web/src/columns.ts` has those that browsers read."""


def save(program: Program, path: str | Path) -> None:
    """Writes the program and its weights to one file. It may be the file that they were loaded from. Raises WriteError."""
    with atomic_file(path) as file:
        write(program, file)


def write(program: Program, file: OutputFile) -> None:
    """Like `save`, to an open file."""
    arrays = [weight_array(w) for w in program.weights]
    text = json.dumps(header(program, arrays), separators=(",", ":")).encode()
    file.write(_MAGIC + struct.pack("<II", program.format_version, len(text)) + text)
    for array in arrays:
        file.write(b"\0" * (-file.tell() % 16))
        file.write(weight_bytes(array))


def load(path: str | Path, target: Target | None = None) -> Program:
    """Reads a saved program from an untrusted source.

    Raises ProgramError if it is damaged, has another format version, or needs more than `target` offers.
    """
    try:
        with open(path, "rb") as file:
            if file.read(8) != _MAGIC:
                raise ProgramError(f"{path} is not a saved program")
            version, length = struct.unpack("<II", file.read(8))
            if version != FORMAT_VERSION:
                raise ProgramError(
                    f"{path} has format version {version}, this package reads {FORMAT_VERSION}: export it again"
                )
            text = file.read(length)
            if len(text) < length:
                raise ValueError(f"it is truncated in its header of {length} bytes")
            found = parsed(text)
            start = file.tell()
        program = from_header(found)
        program = replace(program, weights=_mapped(found["weights"], program, path, start))
    except (struct.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ProgramError(f"{path} is damaged: {cause_of(error)}") from error
    if target is not None:
        check_target(program.target, target, str(path))
    return program


def header(program: Program, arrays: Sequence[Any] = ()) -> dict[str, Any]:
    """Returns a program as JSON objects, without the bytes of its weights, which are `arrays`."""
    return {
        "format_version": program.format_version,
        "name": program.name,
        "target": program.target.as_json(),
        "definitions": program.definitions,
        "inputs": program.inputs,
        "outputs": program.outputs,
        **{table: [row_of(it, COLUMNS[table]) for it in getattr(program, table)] for table in _ROWS},
        "message_definitions": program.message_definitions,
        "aliases": program.aliases,
        **({"sized": program.sized} if program.sized else {}),
        "weights": list(map(weight_row, arrays)),
    }


def from_header(found: dict[str, Any]) -> Program:
    """Returns the program of a header. Raises KeyError, TypeError or ValueError if it is damaged."""
    return program_of(found, COLUMNS)


def row_of(it: Any, columns: Sequence[str]) -> list[Any]:
    """Returns a row of a table of a header."""
    cells = [getattr(it, name) for name in columns]
    return [cell.name if isinstance(cell, enum.Enum) else cell for cell in cells]


def _mapped(rows: Any, program: Program, path: str | Path, start: int) -> tuple[Any, ...]:
    """Maps the weights after the header, which ends at byte `start`, and checks their sizes against the values of the program."""
    weights = []
    for row in items(rows):
        kind, shape, nbytes = stored_weight(row)
        start += -start % 16
        weights.append(np.memmap(path, kind, "r", start, shape) if nbytes else np.empty(shape, kind))
        start += nbytes
    check_weights(program, weights)
    return tuple(weights)


def weight_row(array: Any) -> list[Any]:
    """Returns the header's row for a stored weight."""
    return [array.dtype.name, array.shape, array.nbytes]


def stored_weight(row: Any) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Returns type, shape and bytes of a stored weight. Raises ValueError."""
    dtype, shape, nbytes = items(row)
    if dtype not in _STORED:  # arrays of numpy's object types would contain addresses
        raise ValueError(f"no weight is stored as {cut(dtype)}")
    if len(items(shape)) > MOST_AXES or any(type(it) is not int or not 0 <= it < MOST for it in shape):
        raise ValueError(f"a weight has the shape {cut(shape)}")
    if nbytes != _STORED[dtype].nbytes(math.prod(shape)):
        raise ValueError(f"a weight of {dtype} {shape} has {cut(nbytes)} bytes")
    return _STORED[dtype].numpy, tuple(shape), nbytes


def check_weights(program: Program, weights: Sequence[Any]) -> None:
    """Raises ValueError if the sizes of these arrays differ from those of the program's weight values."""
    for it in program.values:
        if it.storage is not Storage.WEIGHT:
            continue
        if it.weight >= len(weights):
            raise ValueError(f"the value {it.name!r} is the weight {it.weight} of {len(weights)}")
        extents = [dim for dim in it.shape if isinstance(dim, int)]
        if len(extents) < len(it.shape) or weights[it.weight].nbytes != it.dtype.nbytes(math.prod(extents)):
            raise ValueError(f"the value {it.name!r} of shape {cut(it.shape)} has {weights[it.weight].nbytes} bytes")
