"""Reads a Program from the JSON at the beginning of its file, and checks everything before its use.

In: JSON objects from an untrusted source. Out: a Program, or a ValueError, KeyError or TypeError that describes the fault.

Invariants of a Program that was read, which plans and runs need not check again:

- Every count and index is in range, and every type is known.
- Every expression is well formed, over names that are defined before it.
- No kernel writes a value that it must not write.

The values of expressions depend on the inputs. `postfix` and `layout` bound them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ..errors import cut
from .consistency import check_consistent
from .dtypes import DType
from .postfix import OPERATIONS, Postfix, arity
from .program import (
    FORMAT_VERSION,
    REPETITION,
    Assertion,
    Check,
    Declined,
    Dispatch,
    Kernel,
    Program,
    Storage,
    Symbol,
    Value,
)
from .target import UNSTORED, MatrixUnit, Target

MOST = 1 << 64  # bound of the absolute values of all whole numbers in a file
_MOST_COUNT = (1 << 53) - 1  # the largest count that a number of JavaScript represents
MOST_AXES = 64  # the limit of numpy
_MOST_DIGITS = 40  # longer numbers take long to parse, and no number of a Program is

T = TypeVar("T")
Cell = Callable[[Any], Any]


def parsed(text: bytes | bytearray | str) -> Any:
    """Parses JSON from an untrusted source. Raises ValueError."""
    return json.loads(text, parse_constant=_no_number, parse_int=_number(int), parse_float=_number(float))


def _number(kind: Callable[[str], T]) -> Callable[[str], T]:
    def read(text: str) -> T:
        if len(text) > _MOST_DIGITS:
            raise ValueError(f"a number has {len(text)} digits, the maximum is {_MOST_DIGITS}")
        return kind(text)

    return read


def _no_number(text: str) -> None:
    """Refuses NaN and Infinity, which Python's parser accepts but JSON does not have."""
    raise ValueError(f"{text} is not a number")


def program_of(found: Any, columns: Mapping[str, Sequence[str]]) -> Program:
    """Returns the Program of a header with these columns in its tables. Raises ValueError, KeyError or TypeError."""
    if type(found) is not dict:
        raise ValueError(f"{cut(found)} is not a header")
    if found["format_version"] != FORMAT_VERSION:
        raise ValueError(f"its format version is {cut(found['format_version'])}, this package reads {FORMAT_VERSION}")
    expressions = _Expressions()
    cells = _cells(expressions)

    def table(name: str, kind: type[T]) -> tuple[T, ...]:
        wanted, readers = columns[name], cells[name]
        return tuple([_row(name, kind, row, wanted, readers) for row in items(found[name])])

    symbols = table("symbols", Symbol)
    expressions.know(it.name for it in symbols)
    of_inputs = frozenset(expressions.known)
    expressions.know([REPETITION])
    definitions = expressions.definitions(found["definitions"])
    before = frozenset(expressions.known)
    values = table("values", Value)
    dispatches = table("dispatches", Dispatch)
    assertions = table("assertions", Assertion)
    message_definitions = expressions.definitions(found["message_definitions"])
    checks = table("checks", Check)
    for it in checks:
        expressions.only(before, it.condition)
    program = Program(
        name=_text(found["name"]),
        target=target_of(found["target"]),
        symbols=symbols,
        definitions=definitions,
        inputs=_list(_count)(found["inputs"]),
        outputs=_list(_count)(found["outputs"]),
        values=values,
        kernels=table("kernels", Kernel),
        dispatches=dispatches,
        checks=checks,
        assertions=assertions,
        message_definitions=message_definitions,
        declined=table("declined", Declined),
        aliases=_list(_pair(_count))(found["aliases"]),
        sized=_list(_pair(_count))(found.get("sized", [])),
        weights=(),
    )
    check_consistent(program)
    for k in program.inputs:
        for extent in program.values[k].shape:
            expressions.only(of_inputs, extent)
    return program


def target_of(found: Any) -> Target:
    """Returns the needs of a Program. Raises ValueError."""
    kinds: dict[type, Cell] = {
        str: _text,
        bool: _flag,
        int: _limit,
        frozenset: lambda it: frozenset(_list(_text)(it)),
        tuple: _list(_matrix_unit),
    }
    least, known = Target(), set(Target().as_json())
    if type(found) is not dict or set(found) - {"matrices"} != known:
        raise ValueError(f"{cut(found)} is not a target, which has {', '.join(sorted(known))}")
    assert not known & {*UNSTORED}
    target = Target(**{name: kinds[type(getattr(least, name))](value) for name, value in found.items()})
    if not target.offset_alignment:
        raise ValueError("its target has an alignment of 0 bytes")
    return target


def _matrix_unit(it: Any) -> MatrixUnit:
    m, n, k, operand, result, subgroup = items(it)
    return MatrixUnit(m, n, k, operand, result, subgroup)


# ---- cells


def _text(it: Any) -> str:
    if type(it) is not str:
        raise ValueError(f"{cut(it)} is not a string")
    return it


def _flag(it: Any) -> bool:
    if type(it) is not bool:
        raise ValueError(f"{cut(it)} is not a boolean")
    return it


def _whole(it: Any) -> int:
    if type(it) is not int or not -MOST < it < MOST:  # true is an int
        raise ValueError(f"{cut(it)} is not an integer of at most 64 bits")
    return it


def _count(it: Any) -> int:
    if not 0 <= _whole(it) <= _MOST_COUNT:
        raise ValueError(f"{cut(it)} is not a valid count")
    return int(it)


def _limit(it: Any) -> int:
    if _whole(it) < 0:
        raise ValueError(f"{cut(it)} is not a valid limit of an adapter")
    return int(it)


def items(it: Any) -> list[Any]:
    if type(it) is not list:
        raise ValueError(f"{cut(it)} is not a list")
    return it


def _list(of: Cell, most: float = float("inf")) -> Cell:
    def read(it: Any) -> tuple[Any, ...]:
        if len(items(it)) > most:
            raise ValueError(f"a list has {len(it)} items, the maximum is {most}")
        return tuple([of(part) for part in it])

    return read


def _pair(of: Cell) -> Cell:
    def read(it: Any) -> tuple[Any, Any]:
        first, second = items(it)
        return of(first), of(second)

    return read


def _or_none(of: Cell) -> Cell:
    return lambda it: None if it is None else of(it)


def _named(kind: type[Any]) -> Cell:
    """A reader of a member of an enumeration, by its name."""

    def read(it: Any) -> Any:
        if _text(it) not in kind.__members__:
            raise ValueError(f"there is no {kind.__name__} {cut(it)}")
        return kind[it]

    return read


def _access(it: Any) -> str:
    if it not in ("read", "read_write"):
        raise ValueError(f"the access of a binding is {cut(it)}, it must be read or read_write")
    return str(it)


def _row(table: str, kind: type[T], row: Any, columns: Sequence[str], readers: Mapping[str, Cell]) -> T:
    cells = items(row)
    if len(cells) != len(columns):
        raise ValueError(f"a row of {table} has {len(cells)} cells instead of {len(columns)}")
    try:
        return kind(**{name: readers[name](cell) for name, cell in zip(columns, cells, strict=True)})
    except ValueError as error:
        raise ValueError(f"a row of {table}: {error}") from error


def _cells(expressions: _Expressions) -> dict[str, dict[str, Cell]]:
    """The readers for the cells of each table."""
    dim, texts = expressions.of, _list(_text)
    dims = _list(dim)
    return {
        "symbols": {"name": _text, "input": _count, "index": _count, "is_element": _flag},
        "values": {
            "name": _text, "dtype": _named(DType), "shape": _list(dim, MOST_AXES), "storage": _named(Storage), "weight": _whole,
            "elements": dims,
        },
        "kernels": {"label": _text, "wgsl": texts, "bindings": _list(_access), "uniforms": _count, "makes_infinity": _flag},
        "dispatches": {
            "kernel": _count, "args": _list(_count), "uniforms": dims, "guards": dims, "workgroups": dims, "origin": texts,
            "operators": texts, "flops": dim, "traffic": dim, "repeats": dim, "ranges": _list(_or_none(_pair(dim))),
        },
        "checks": {"condition": dim, "text": _text, "dims": dims, "limit": _flag},
        "assertions": {"value": _count, "low": dim, "high": dim, "what": _text, "origin": texts},
        "declined": {"rule": _text, "reason": _text, "origin": texts},
    }  # fmt: skip


# ---- expressions


class _Expressions:
    """Reads expressions over the names that are `known` so far."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self._read: dict[tuple[Any, ...], tuple[int | str, ...]] = {}  # checked expressions

    def know(self, names: Iterable[str]) -> None:
        self.known.update(f"${it}" for it in names)

    def of(self, it: Any) -> Postfix:
        if type(it) is not list:
            return _whole(it)
        try:
            found = self._read.get(tuple(it))
        except TypeError as error:  # a nested list
            raise ValueError(f"{cut(it)} is not an expression") from error
        if found is None:
            found = self._read[tuple(it)] = self._checked(it)
        return found

    def definitions(self, rows: Any) -> tuple[tuple[str, Postfix], ...]:
        """Reads named expressions, each over names that are known before it, and adds their names."""
        found = []
        for row in items(rows):
            name, expression = items(row)
            found.append((_text(name), self.of(expression)))
            self.know([name])
        return tuple(found)

    def only(self, names: frozenset[str], dim: Postfix) -> None:
        """Raises ValueError if an expression uses other names than these."""
        if not isinstance(dim, int):
            for token in dim:
                if isinstance(token, str) and token.startswith("$") and token not in names:
                    raise ValueError(f"the dimension {cut(token[1:])} is not known where it is used")

    def _checked(self, tokens: list[Any]) -> tuple[int | str, ...]:
        depth = 0
        for token in tokens:
            if type(token) is int:
                _whole(token)
                depth += 1
            elif _text(token) in self.known:
                depth += 1
            elif token in OPERATIONS:
                depth -= arity(token) - 1
                if depth < 1:
                    raise ValueError(f"the expression {cut(tokens)} lacks an operand")
            else:
                what = "operation" if not token.startswith("$") else "dimension"
                raise ValueError(f"there is no {what} {cut(token.removeprefix('$'))}")
        if depth != 1:
            raise ValueError(f"the expression {cut(tokens)} has {depth} results instead of one")
        return tuple(tokens)
