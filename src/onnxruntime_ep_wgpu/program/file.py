"""A Program in a file: its JSON and behind it the bytes of its weights, each at a multiple of 16.

In: a Program, or a path. Out: the file, or a Program whose weights are mapped, not read. Invariant: what is loaded equals
what was saved; a damaged file, another format version and a Target that does not suffice are a ProgramError.
"""

from __future__ import annotations

import enum
import json
import struct
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ProgramError
from ..writing import Output, replacing
from .dtypes import DType, numpy_type
from .program import FORMAT_VERSION, Assertion, Check, Declined, Dispatch, Kernel, Program, Storage, Symbol, Value
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
COLUMNS: dict[str, tuple[str, ...]] = {
    **{table: tuple(it.name for it in fields(kind)) for table, kind in _ROWS.items()},
    "weights": ("dtype", "shape", "nbytes"),
}
"""The tables of a header, a row for each thing, and what their columns are; `web/src/columns.ts` has those that browsers read."""


def save(program: Program, path: str | Path) -> None:
    """Writes the program and its weights to one file, which may be the one that they were loaded from. Raises WriteError."""
    with replacing(path) as file:
        write(program, file)


def write(program: Program, file: Output) -> None:
    """Like `save`, to a file that is open."""
    arrays = [weight_array(w) for w in program.weights]
    text = json.dumps(header(program, arrays), separators=(",", ":")).encode()
    file.write(_MAGIC + struct.pack("<II", program.format_version, len(text)) + text)
    for array in arrays:
        file.write(b"\0" * (-file.tell() % 16))
        file.write(weight_bytes(array))


def load(path: str | Path, target: Target | None = None) -> Program:
    """Reads a saved program. Raises ProgramError when it is damaged, of another format version, or needs more than
    `target` offers."""
    try:
        with open(path, "rb") as file:
            if file.read(8) != _MAGIC:
                raise ProgramError(f"{path} is not a saved program")
            version, length = struct.unpack("<II", file.read(8))
            if version != FORMAT_VERSION:
                raise ProgramError(
                    f"{path} has format version {version}, this package reads {FORMAT_VERSION}: export it again"
                )
            found = json.loads(file.read(length))
            start = file.tell()
        program = from_header(found, _mapped(found["weights"], path, start))
    except (struct.error, ValueError, KeyError, TypeError, IndexError) as error:
        raise ProgramError(f"{path} is damaged: {error}") from error
    if target is not None:
        check_target(program.target, target, str(path))
    return program


def header(program: Program, arrays: Sequence[Any] = ()) -> dict[str, Any]:
    """All of a program but the bytes of its weights, `arrays`, as JSON has it."""
    return {
        "format_version": program.format_version,
        "name": program.name,
        "target": program.target.as_json(),
        "definitions": program.definitions,
        "inputs": program.inputs,
        "outputs": program.outputs,
        **{table: [_row(it, COLUMNS[table]) for it in getattr(program, table)] for table in _ROWS},
        "said": program.said,
        "aliases": program.aliases,
        "weights": [[a.dtype.name, a.shape, a.nbytes] for a in arrays],
    }


def from_header(found: dict[str, Any], weights: Sequence[Any] = ()) -> Program:
    """The program of a header; raises KeyError, TypeError or ValueError when it is damaged."""
    target = Target(**{**found["target"], "features": frozenset(found["target"]["features"])})
    tables: dict[str, Any] = {
        table: tuple([_of_row(kind, row, COLUMNS[table]) for row in found[table]]) for table, kind in _ROWS.items()
    }
    return Program(
        name=found["name"],
        target=target,
        definitions=_tuple(found["definitions"]),
        inputs=tuple(found["inputs"]),
        outputs=tuple(found["outputs"]),
        said=_tuple(found["said"]),
        aliases=_tuple(found["aliases"]),
        weights=tuple(weights),
        **tables,
    )


def _row(it: Any, columns: Sequence[str]) -> list[Any]:
    cells = [getattr(it, name) for name in columns]
    return [cell.name if isinstance(cell, enum.Enum) else cell for cell in cells]


def _of_row(kind: type[Any], row: Sequence[Any], columns: Sequence[str]) -> Any:
    cells = dict(zip(columns, map(_tuple, row), strict=True))
    if kind is Value:
        cells |= {"dtype": DType[cells["dtype"]], "storage": Storage[cells["storage"]]}
    return kind(**cells)


def _mapped(rows: Sequence[Any], path: str | Path, start: int) -> list[Any]:
    """The weights behind the header, which ends at byte `start`."""
    weights = []
    for dtype, shape, nbytes in rows:
        start += -start % 16
        kind = numpy_type(dtype)
        weights.append(np.memmap(path, kind, "r", start, tuple(shape)) if nbytes else np.empty(shape, kind))
        start += nbytes
    return weights


def _tuple(value: Any) -> Any:
    return tuple(_tuple(v) for v in value) if isinstance(value, list) else value
