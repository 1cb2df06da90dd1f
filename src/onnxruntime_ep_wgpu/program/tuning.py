"""Choices about kernels: the algorithm, tile or grid, by kernel, element type and class of shapes.

In: rows from a user or a tuner, in Python or in a file. Out: `Choice`s, in order of precedence. Invariant: a choice changes the
speed of a kernel, and never its result. So a Program runs wherever its limits are met, with any choices. `compiler/tune/`
defines the names of kernels and parameters; here they are just names and numbers.

A file is JSON:

    {"format": 1, "adapter": "NVIDIA H200 (Vulkan)", "choices": [
      {"kernel": "matmul", "dtype": "float16", "where": {"m": {"least": 256}, "k": {"most": 64}},
       "use": {"m": 64, "n": 64, "k": 16, "rows": 4, "columns": 8, "slices": 1, "unrolled": 4}}]}

`dtype` is a label of the table in `program/dtypes.py`; any type if omitted. Bounds may be omitted too. `known` in a bound: the
choice applies only to sizes that are known when a graph is compiled.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import cause_of, cut
from ..records import dataclass
from .dtypes import DType

FORMAT = 1
_MOST_BYTES = 16 << 20  # of a file; excludes endless devices
_MOST = 1 << 31  # bound of all numbers, which count parts of a kernel


@dataclass(frozen=True)
class Bound:
    """A quantity of the shapes is from `least` to `most`; None means no limit."""

    quantity: str
    least: int | None = None
    most: int | None = None
    known: bool = False

    def holds(self, size: int) -> bool:
        """Whether a quantity of this size is within the bound."""
        return (self.least is None or self.least <= size) and (self.most is None or size <= self.most)


@dataclass(frozen=True)
class Choice:
    """`kernel` runs with these parameters if every bound holds and its elements are of type `dtype`; "" means any type."""

    kernel: str
    parameters: tuple[tuple[str, int], ...]
    bounds: tuple[Bound, ...] = ()
    dtype: str = ""

    def __str__(self) -> str:
        return f"{self.kernel}({', '.join(f'{name}={value}' for name, value in self.parameters)})"


Choices = tuple[Choice, ...]


def write_choices(choices: Iterable[Choice], path: str | os.PathLike[str], adapter: str) -> None:
    """Writes a file of choices that were measured on `adapter`, the name of a Target. Raises WriteError."""
    import json  # not needed by code that only lists devices

    from ..writing import write_file

    rows = [
        {
            "kernel": it.kernel,
            **({"dtype": it.dtype} if it.dtype else {}),
            "where": {bound.quantity: _limits(bound) for bound in it.bounds},
            "use": dict(it.parameters),
        }
        for it in choices
    ]
    write_file(path, json.dumps({"format": FORMAT, "adapter": adapter, "choices": rows}, indent=1) + "\n")


def read_choices(path: str | os.PathLike[str]) -> tuple[str, Choices]:
    """Returns the adapter that a file was measured on, and its choices.

    Raises ValueError for an invalid file, and OSError if it cannot be read.
    """
    import json

    try:
        with open(path, "rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES} bytes")
        found = json.loads(text)
        if type(found["format"]) is not int or found["format"] != FORMAT:
            raise ValueError(f"its format is {cut(found['format'])}, this package reads {FORMAT}")
        if type(found["adapter"]) is not str or type(found["choices"]) is not list:
            raise ValueError("the adapter must be a string, and the choices a list")
        return found["adapter"], tuple(_choice(row) for row in found["choices"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is not a table of choices: {cause_of(error)}") from error


def _limits(bound: Bound) -> dict[str, int | bool]:
    limits: dict[str, int | bool] = {}
    if bound.least is not None:
        limits["least"] = bound.least
    if bound.most is not None:
        limits["most"] = bound.most
    return {**limits, "known": True} if bound.known else limits


def _choice(row: Mapping[str, Any]) -> Choice:
    _only(row, {"kernel", "dtype", "where", "use"})
    dtype = row.get("dtype", "")
    if dtype not in ("", *(it.label for it in DType)):
        raise ValueError(f"there is no type {cut(dtype)}")
    if type(row["kernel"]) is not str:
        raise ValueError(f"there is no kernel {cut(row['kernel'])}")
    bounds = []
    for quantity, limits in row.get("where", {}).items():
        _only(limits, {"least", "most", "known"})
        least, most = (_whole(limits[it]) if it in limits else None for it in ("least", "most"))
        known = limits.get("known", False)
        if not isinstance(known, bool):
            raise ValueError(f"known is {cut(known)}, it must be true or false")
        bounds.append(Bound(quantity, least, most, known))
    parameters = tuple((name, _whole(value)) for name, value in row["use"].items())
    return Choice(row["kernel"], parameters, tuple(bounds), dtype)


def _only(row: Mapping[str, Any], names: set[str]) -> None:
    if unknown := set(row) - names:
        raise ValueError(f"{', '.join(sorted(unknown))} in {cut(dict(row))}; known: {', '.join(sorted(names))}")


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MOST:  # true is an int
        raise ValueError(f"{cut(value)} is not an integer from 0 to {_MOST - 1}")
    return value
