"""Rewrites WGSL functions without `else`, and with one `return` at their end.

Kernels call these functions many times, and drivers inline each call. SwiftShader's compile time doubles with each `if` that has
two branches in a loop. A `return` in the middle counts as such a branch too. A product of 6 KB with 40 such calls took gigabytes
and never finished. An `if` with one branch costs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

_RETURN = re.compile(r"\breturn\b")
_BRANCHES = re.compile(r"\belse\b|\breturn;|\breturn\b.*\breturn\b", re.DOTALL)
_FUNCTION = re.compile(r"(fn \w+\([^{]*?\)(?: -> ([^{]+?))?) \{(.*)\}\s*", re.DOTALL)
_DECLARED = re.compile(r"\b(?:let|var|const)\s+(\w+)")
_WORD = re.compile(r"\w+")
_BRACES = re.compile(r"[{}]")
_MARKS = re.compile(r"[(){};]")
_ELSE = re.compile(r"\s*else\b")
_RESULT = "returned"
_CONSTANT = re.compile(rf"{_RESULT} = (?:[\w<>]+\()?-?[\w.]*\)?;")


class _NotRewritable(Exception):
    """A `return` is in a loop or a switch, or the code after it would be duplicated."""


@lru_cache(maxsize=4096)
def with_single_branches(code: str) -> str:
    """Returns the function with a second `if` for each `else` and for the code after an `if` that returns.

    Returns it unchanged if that is impossible.
    """
    function = _FUNCTION.fullmatch(code) if _BRANCHES.search(code) else None
    if function is None:
        return code
    try:
        lines = _Function().nested(_statements(function[3]))
    except _NotRewritable:
        return code
    if function[2]:
        lines = [f"var {_RESULT}: {function[2]};", *lines, f"return {_RESULT};"]
    return "\n".join([f"{function[1]} {{", *_indented(lines), "}"])


class _Function:
    """The statements of a function. It counts the named conditions."""

    def __init__(self) -> None:
        self._conditions = 0

    def nested(self, statements: Sequence[str]) -> list[str]:
        """Returns the statements without `else` and `return`."""
        lines: list[str] = []
        for number, statement in enumerate(statements):
            rest = statements[number + 1 :]
            if statement.startswith("return"):
                value = statement.removeprefix("return").rstrip(";").strip()
                return [*lines, f"{_RESULT} = {value};"] if value else lines
            if statement.startswith("{") and _RETURN.search(statement):
                return [*lines, *self.nested([*_statements(statement[1:-1]), *rest])]
            if not _is_if(statement):
                if _RETURN.search(statement):
                    raise _NotRewritable
                lines.append(statement)
            else:
                parts, returns = _parts(statement), _RETURN.search(statement)
                if returns and len(rest) > 1 and _continuing_paths(parts) > 1:
                    raise _NotRewritable
                lines += self._chain(parts, rest if returns else [])
                if returns:
                    break
        return lines

    def _chain(self, parts: list[tuple[str, list[str]]], rest: Sequence[str]) -> list[str]:
        """Rewrites an `if`, its `else`s and the statements after it. The latter follow each branch that does not return."""
        (condition, block), *others = parts
        if not condition:
            return self._block_and_rest(block, rest)
        first = self._block_and_rest(block, rest)
        second = self._chain(others, rest) if others else self.nested(rest)
        if not second:
            return [f"if {condition} {{", *_indented(first), "}"]
        if len(first) == 1 and _CONSTANT.fullmatch(first[0]):  # the other branch assigns as well
            return [*first, f"if (!{condition}) {{", *_indented(second), "}"]
        name = f"holds{self._conditions}"
        self._conditions += 1
        lines = [f"let {name} = {condition};", f"if ({name}) {{", *_indented(first), "}"]
        return [*lines, f"if (!{name}) {{", *_indented(second), "}"]

    def _block_and_rest(self, block: Sequence[str], rest: Sequence[str]) -> list[str]:
        if _ends(block) or not rest:
            return self.nested(block)
        declared = set(_DECLARED.findall("\n".join(block)))
        if not declared.isdisjoint(_WORD.findall("\n".join(rest))):
            raise _NotRewritable
        return self.nested([*block, *rest])


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _is_if(statement: str) -> bool:
    return re.match(r"if\b", statement) is not None


def _continuing_paths(parts: list[tuple[str, list[str]]]) -> int:
    """Returns how many paths through an `if` continue after it."""
    return sum(not _ends(block) for _, block in parts) + (parts[-1][0] != "")


def _ends(block: Sequence[str]) -> bool:
    """Returns whether no code runs after these statements: the last one is a `return`, or an `if` with only such branches."""
    if block and _is_if(block[-1]):
        parts = _parts(block[-1])
        return not parts[-1][0] and all(_ends(it) for _, it in parts)
    return bool(block) and block[-1].startswith("return")


def _parts(statement: str) -> list[tuple[str, list[str]]]:
    """Returns (condition in parentheses, statements) of the branches of an `if`. The condition of an `else` is ""."""
    parts, begin, opened, depth = [], 0, 0, 0
    for mark in _BRACES.finditer(statement):
        depth += 1 if mark[0] == "{" else -1
        if mark[0] == "{" and depth == 1:
            opened = mark.end()
        elif depth == 0:
            condition = re.sub(r"^\s*(?:else\b)?\s*(?:if\b)?", "", statement[begin : opened - 1]).strip()
            parts.append((condition, _statements(statement[opened : mark.start()])))
            begin = mark.end()
    return parts


def _statements(text: str) -> list[str]:
    """Returns the statements of a block. An `else` belongs to its `if`."""
    statements, begin, depth = [], 0, 0
    for mark in _MARKS.finditer(text):
        if mark[0] in "({":
            depth += 1
        elif mark[0] in ")}":
            depth -= 1
        if depth == 0 and (mark[0] == ";" or (mark[0] == "}" and not _ELSE.match(text, mark.end()))):
            statements.append(text[begin : mark.end()].strip())
            begin = mark.end()
    return statements
