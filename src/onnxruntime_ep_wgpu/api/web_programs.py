"""Programs of an export in few bytes: what repeats within one, and between those for several adapters, is there once.

In: Programs, and where in the pool their weights are. Out: deflated JSON, `{lines, texts, expressions, columns, programs}`. One of
`texts` is numbers of `lines`, a negative one the length of the range that begins with the number before it; a table of a header
is numbers of `columns`, in which WGSL is a number of `texts`, and in those of EXPRESSIONS a list `[k]` is expression k. Targets
are in the manifest. Where the pool has a weight as matrices that a page transposes, `matrices` are their `[rows, columns, bits]`,
else 0. Invariant: the tokens of a kernel stay what the compiler wrote; the same reader is in `web/src/program.ts`.
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

MOST_TEXT = 1 << 28  # bytes of a file, inflated; no longer text can be read in a browser
MOST_WGSL = 1 << 26  # characters: a few numbers stand for texts as long as one likes
POOLS = ("texts", "expressions", "columns")
TABLES = ("values", "kernels", "dispatches", "weights")
# Columns of lists of expressions over dims, which many rows have in common.
EXPRESSIONS = ("shape", "elements", "uniforms", "guards", "workgroups")
# Columns that browsers do not read: whether a kernel makes infinities, work for profiles, what values say of their weights.
_UNREAD = {"kernels": ("makes_infinity",), "dispatches": ("flops", "traffic"), "weights": ("dtype", "shape")}


def encode(programs: Sequence[Program | Flow], places: Callable[[Program], Sequence[int]]) -> bytes:
    """The file of Programs; `places` says where in the pool every weight of one is. Those within Flows stand behind the others."""
    lines, texts, expressions, columns = _Numbers(), _Numbers(), _Numbers(), _Numbers()
    headers = []
    for found in _all_headers(programs, places):
        for name in (
            "target",
            "declined",
            "assertions",
        ):  # the manifest has them, or code that compiles, or checks every index
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
    """Of these Programs and of all within them, as they are numbered in a file: what is equal is there once."""
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
    """The headers of the Programs but for their Targets, with a row `[0, 0, bytes, offset, matrices]` for each weight. Raises
    ProgramError when the file is damaged, and for one whose few bytes stand for more text than any export has."""
    try:
        inflating = zlib.decompressobj()
        text = inflating.decompress(data, MOST_TEXT)
        if not inflating.eof:
            raise ValueError("it is cut off, or longer than any export")
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
    """Item `number` of a pool; raises ValueError where it is none."""
    if type(number) is not int or not 0 <= number < len(pool):
        raise ValueError(f"there is no item {cut(number)} of {len(pool)}")
    return pool[number]


def columns_of(table: str) -> tuple[str, ...]:
    """The columns of a table of an export; of a weight also where the pool has it, and how."""
    return (*COLUMNS[table], "offset", "matrices") if table == "weights" else COLUMNS[table]


def stored_array(weight: Any) -> Any:
    """A weight as the pool has it: in the order that it has in the model, where a page can change that."""
    return weight_array(weight.data if _transposed(weight) else weight)


def _transposed(weight: Any) -> tuple[int, int, int] | None:
    return weight.transposed() if isinstance(weight, Permuted) else None


class _Numbers:
    """Different texts, numbered as they come."""

    def __init__(self) -> None:
        self.all: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.all.setdefault(text, len(self.all))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _expressions(column: list[Any], change: Callable[[Any], Any]) -> list[Any]:
    """A column of lists with their expressions changed; numbers stay, and so do the `uniforms` of kernels, which are numbers."""
    lists = (list, tuple)
    return [
        [change(it) if isinstance(it, lists) else it for it in row] if isinstance(row, lists) else row for row in column
    ]


# ---- texts


def _text(text: str, lines: _Numbers) -> list[int]:
    out: list[int] = []
    end = -1  # of the range that the last numbers are
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
    """Lines of WGSL, which has no texts in quotes, without comments and spaces that no token needs; brackets that end a block
    stand behind its last line."""
    out: list[str] = []
    for line in text.split("\n"):
        code = " ".join(re.sub(r"//.*", "", line).split())
        # Between two signs a space stays: they could be another sign together.
        code = re.sub(r"(?<=\w) (?=\W)|(?<=\W) (?=\w)|(?<=[(){}\[\],;:]) | (?=[(){}\[\],;:])", "", code)
        if code == "}" and out:
            out[-1] += code
        elif code:
            out.append(code)
    return out
