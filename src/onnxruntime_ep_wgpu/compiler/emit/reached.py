"""The declarations of a module that its entry point reaches.

In: the text of a module. Out: the same text without functions, structures, aliases, constants and variables that nothing in use
mentions. Kernels share templates, and each needs a part of what those declare. Invariant: a name counts wherever it stands, so
the text keeps every declaration that it uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|[A-Za-z_]\w*|[{}()\[\];]", re.DOTALL)
# What can be left out. Bindings, overrides, assertions, directives and entry points stay.
_NAMED = re.compile(r"(?:fn|struct|alias|const)\s+(\w+)|var\s*<\s*(?:private|workgroup)\s*>\s*(\w+)")


def reached(text: str) -> str:
    """The module without declarations that nothing reaches."""
    declarations = list(_declarations(text))
    by_name = {name: k for k, (name, _, _) in enumerate(declarations) if name}
    wanted = [k for k, (name, _, _) in enumerate(declarations) if not name]
    kept = set(wanted)
    while wanted:
        mentioned = {by_name[it] for it in declarations[wanted.pop()][2] if it in by_name} - kept
        kept |= mentioned
        wanted += mentioned
    return "".join(code for k, (_, code, _) in enumerate(declarations) if k in kept)


def _declarations(text: str) -> Iterator[tuple[str, str, set[str]]]:
    """Each declaration: its name, or "" where it always stays; its text with the comments before it; the names in it."""
    begin = depth = 0
    first = -1  # where its first token begins
    names: set[str] = set()
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark.startswith("/"):
            continue
        if first < 0:
            first = token.start()
        if mark in "{([":
            depth += 1
        elif mark in "})]":
            depth -= 1
        elif mark != ";":
            names.add(mark)
        if depth == 0 and mark in "};":
            found = _NAMED.match(text, first)
            yield (found[1] or found[2] if found else ""), text[begin : token.end()], names
            begin, first, names = token.end(), -1, set()
    yield "", text[begin:], set()
