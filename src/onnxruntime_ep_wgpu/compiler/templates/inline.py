"""Inlines functions of a text into their callers.

    #inline at_row(row, k) rows[(row) * 4u + (k)]

In: a text with such lines, one per function. Out: the text without them, with `(rows[(i + 1u) * 4u + (k)])` for `at_row(i + 1u,
k)`.

A browser's compiler proves that an index is within its array from what it sees in one function. A parameter may have any value,
so its index is clamped. That costs an instruction per load, and prevents merging four loads into a vector.

An argument is repeated at each use of its parameter, so it should be a name or cheap.
"""

from __future__ import annotations

import re

from ...records import dataclass

_DEFINITION = re.compile(r"\s*#inline (?P<name>\w+)\((?P<parameters>[\w, ]*)\) (?P<body>.+)")
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")


@dataclass(frozen=True)
class _Inline:
    parameters: tuple[str, ...]
    body: str

    def text(self, arguments: list[str]) -> str:
        given = dict(zip(self.parameters, arguments, strict=True))
        return _WORD.sub(lambda word: given.get(word[0], word[0]), self.body)


def inlined(text: str) -> str:
    """Returns the text with its calls inlined. Raises ValueError for a wrong number of arguments."""
    if "#inline " not in text:
        return text
    known: dict[str, _Inline] = {}
    lines = []
    for line in text.split("\n"):
        found = _DEFINITION.fullmatch(line)
        if found is None:
            lines.append(_inlined_line(line, known))
        else:
            body = _inlined_line(found["body"], known)
            known[found["name"]] = _Inline(tuple(re.findall(r"\w+", found["parameters"])), body)
    return "\n".join(lines)


def _inlined_line(line: str, known: dict[str, _Inline]) -> str:
    """Returns a line with its calls inlined, those in arguments first."""
    out, at = "", 0
    for word in _WORD.finditer(line):
        inline = known.get(word[0])
        if inline is None or word.start() < at or line[word.end() : word.end() + 1] != "(":
            continue
        arguments, end = _arguments(line, word.end())
        if len(arguments) != len(inline.parameters):
            raise ValueError(f"{word[0]} takes {len(inline.parameters)} arguments, and has {', '.join(arguments)}")
        out += line[at : word.start()] + inline.text([_inlined_line(it.strip(), known) for it in arguments])
        at = end
    return out + line[at:]


def _arguments(line: str, begin: int) -> tuple[list[str], int]:
    """Returns the arguments between the parentheses that open at `begin`, and the position after the closing one."""
    depth, arguments, start = 0, [], begin + 1
    for at in range(begin, len(line)):
        depth += (line[at] in "([") - (line[at] in ")]")
        if depth == 0 or (depth == 1 and line[at] == ","):
            arguments.append(line[start:at])
            start = at + 1
        if depth == 0:
            return arguments, at + 1
    raise ValueError(f"{line.strip()!r} does not close the call on its line")
