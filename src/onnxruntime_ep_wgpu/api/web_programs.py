"""Compact encoding of an export's Programs: repetitions within one, and between those for several adapters, are stored once.

In: Programs, and the offsets of their weights in the pool. Out: deflated JSON `{lines, texts, expressions, columns, programs}`:

- An item of `texts` is a list of indices into `lines`. A negative number is the negated length of the range that begins at the
  index before it.
- A table of a header is a list of indices into `columns`. In these, WGSL is an index into `texts`. In the columns of
  EXPRESSIONS, a list `[k]` is expression k.
- The manifest has the Targets.
- If the pool stores a weight as matrices that the page transposes, `matrices` is their `[rows, columns, bits]`, else 0.

Invariant: the tokens of a kernel are unchanged. The other reader is `web/src/program.ts`.
"""

from __future__ import annotations

import itertools
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from ..errors import ProgramError, cause_of, cut
from ..program.file import COLUMNS, header
from ..program.flow import Flow, flow_header
from ..program.program import Program
from ..program.reading import parsed
from ..program.weights import Permuted, weight_array

MOST_TEXT = 1 << 28  # limit of an inflated file in bytes; browsers cannot read longer text
MOST_WGSL = 1 << 26  # limit in characters, because a few indices can expand to text of any length
POOLS = ("texts", "expressions", "columns")
TABLES = ("values", "kernels", "dispatches", "weights")
# Columns with lists of expressions over dims, which many rows share.
EXPRESSIONS = ("shape", "elements", "uniforms", "guards", "workgroups")
# Columns that browsers do not read: infinity flags of kernels, work for profiles, and types and shapes that values have too.
_UNREAD = {"kernels": ("makes_infinity",), "dispatches": ("flops", "traffic"), "weights": ("dtype", "shape")}


def encode(programs: Sequence[Program | Flow], places: Callable[[Program], Sequence[int]]) -> bytes:
    """Encodes Programs. `places(program)` returns the pool offsets of its weights. Programs within Flows follow the others."""
    lines, texts, expressions, columns = _Numbers(), _Numbers(), _Numbers(), _Numbers()
    headers = []
    for found in _all_headers(programs, places):
        for name in (
            "target",
            "declined",
            "assertions",
        ):  # the manifest, the compiler or the index checks have these
            del found[name]
        for name in TABLES:
            table = dict(
                zip(columns_of(name), map(list, zip(*found[name], strict=True)), strict=False)
            )  # {} without rows
            for at in [it for it in table if it in EXPRESSIONS]:
                table[at] = _expressions(table[at], lambda it: [expressions(_json(it))])
            if name == "kernels" and table:
                table["wgsl"] = [[texts(_json(_text(it, lines))) for it in row] for row in table["wgsl"]]
            for at in _UNREAD.get(name, ()) if table else ():
                table[at] = [0] * len(table[at])
            found[name] = [columns(_json(column)) for column in table.values()]
        headers.append(found)
    parts = {
        "lines": _json("\n".join(lines.all)),
        **{name: f"[{','.join(it.all)}]" for name, it in zip(POOLS, (texts, expressions, columns), strict=True)},
        "programs": _json(headers),
    }
    whole = ",".join(f'"{name}":{text}' for name, text in parts.items())
    return zlib.compress(f"{{{whole}}}".encode(), 9)


def _all_headers(
    programs: Sequence[Program | Flow], places: Callable[[Program], Sequence[int]]
) -> list[dict[str, Any]]:
    """Returns the headers of these Programs and of all within them, in file order. Equal parts are stored once."""
    found: list[dict[str, Any]] = [{} for _ in programs]
    numbers: dict[str, int] = {}

    def number(program: Program | Flow) -> int:
        made = of(program)
        key = _json({**made, "target": None})
        if key not in numbers:
            numbers[key] = len(found)
            found.append(made)
        return numbers[key]

    def of(program: Program | Flow) -> dict[str, Any]:
        if isinstance(program, Flow):
            return flow_header(program, [number(it) for it in program.programs])
        made = header(program, [weight_array(it) for it in program.weights])
        made["weights"] = [
            [*row, place, _transposed(it) or 0]
            for it, row, place in zip(program.weights, made["weights"], places(program), strict=True)
        ]
        return made

    for place, program in enumerate(programs):
        found[place] = of(program)
    return found


def decode(data: bytes) -> list[dict[str, Any]]:
    """Returns the headers of the Programs without Targets. Each weight has a row `[0, 0, bytes, offset, matrices]`.

    Raises ProgramError if the file is damaged, or if it expands to more text than any export has."""
    try:
        inflating = zlib.decompressobj()
        text = inflating.decompress(data, MOST_TEXT)
        if not inflating.eof:
            raise ValueError("it is truncated, or longer than any export")
        return list(_headers(parsed(text)))
    except (zlib.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ProgramError(f"the programs of an export are damaged: {cause_of(error)}") from error


def _headers(found: Any) -> Iterator[dict[str, Any]]:
    lines = found["lines"].split("\n")
    texts, expressions, columns = (found[name] for name in POOLS)
    left = MOST_WGSL

    @cache
    def wgsl(number: int) -> str:
        nonlocal left
        parts = []
        for line in _lines(_at(texts, number), lines):
            left -= len(line) + 1
            if left < 0:
                raise ValueError("the texts of its kernels are too long")
            parts.append(line)
        return "\n".join(parts)

    for it in found["programs"]:
        for name in TABLES:
            table = dict(zip(columns_of(name), [list(_at(columns, k)) for k in it[name]], strict=False))
            for at in [it for it in table if it in EXPRESSIONS]:
                table[at] = _expressions(table[at], lambda it: _at(expressions, *it))
            if name == "kernels" and table:
                table["wgsl"] = [[wgsl(text) for text in row] for row in table["wgsl"]]
                table["makes_infinity"] = [False] * len(table["wgsl"])
            it[name] = [list(row) for row in zip(*table.values(), strict=True)]
        it["declined"], it["assertions"] = [], []
        yield it


def _at(pool: list[Any], number: int) -> Any:
    """Returns an item of a pool. Raises ValueError if the index is invalid."""
    if type(number) is not int or not 0 <= number < len(pool):
        raise ValueError(f"there is no item {cut(number)} of {len(pool)}")
    return pool[number]


def columns_of(table: str) -> tuple[str, ...]:
    """Returns the columns of a table. Weights have two more: their pool offset and their layout."""
    return (*COLUMNS[table], "offset", "matrices") if table == "weights" else COLUMNS[table]


def stored_array(weight: Any) -> Any:
    """Returns a weight in its pool layout: in the model's axis order, if a page can transpose it."""
    return weight_array(weight.data if _transposed(weight) else weight)


def _transposed(weight: Any) -> tuple[int, int, int] | None:
    return weight.transposed() if isinstance(weight, Permuted) else None


class _Numbers:
    """Distinct texts with indices in order of insertion."""

    def __init__(self) -> None:
        self.all: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.all.setdefault(text, len(self.all))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _expressions(column: list[Any], change: Callable[[Any], Any]) -> list[Any]:
    """Maps the expressions of a column of lists. Numbers stay, and so do the `uniforms` of kernels, which are numbers."""
    lists = (list, tuple)
    return [
        [change(it) if isinstance(it, lists) else it for it in row] if isinstance(row, lists) else row for row in column
    ]


# ---- texts


def _text(text: str, lines: _Numbers) -> list[int]:
    out: list[int] = []
    end = -1  # end of the range that `out` describes last
    for line in tight(text):
        number = lines(line)
        if number != end:
            out.append(number)
        elif out[-1] < 0:
            out[-1] -= 1
        else:
            out.append(-2)
        end = number + 1
    return out


def _lines(numbers: Sequence[int], lines: list[str]) -> Iterator[str]:
    first = 0
    for number in numbers:
        if number >= 0:
            first = number
            yield _at(lines, first)
        else:
            yield from itertools.islice(lines, first + 1, first - number)


def tight(text: str) -> list[str]:
    """Returns the lines of WGSL, which has no string literals, without comments and unnecessary spaces.

    A bracket that ends a block is appended to its last line."""
    out: list[str] = []
    for line in text.split("\n"):
        code = " ".join(re.sub(r"//.*", "", line).split())
        # A space between two operators stays, because together they could be a different token.
        code = re.sub(r"(?<=\w) (?=\W)|(?<=\W) (?=\w)|(?<=[(){}\[\],;:]) | (?=[(){}\[\],;:])", "", code)
        if code == "}" and out:
            out[-1] += code
        elif code:
            out.append(code)
    return out
