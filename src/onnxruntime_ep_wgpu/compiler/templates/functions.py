"""The functions declared in `wgsl/prelude/`: their text, the names they mention, and their types."""

from __future__ import annotations

import re
from functools import cache

from ...records import dataclass
from .files import template

NAME = re.compile(r"\b[A-Za-z_]\w*\b")
_SCALARS = ("f32", "i32", "u32", "bool")


@cache
def definitions(pairs: bool) -> dict[str, tuple[str, frozenset[str]]]:
    """Returns (text, names it mentions) by name for every top-level function or variable of the prelude."""
    out: dict[str, tuple[str, frozenset[str]]] = {}
    files = ["float", "functions", "minifloat", "int64_pair", "int128", "float64", "random", "workgroup", "subgroups"]
    for file in files if pairs else [*files, "int64_native"]:
        for block in re.split(r"\n(?=(?:fn|var|const)\b)", "\n" + template(f"prelude/{file}")):
            head = re.match(r"(?:fn|var(?:<\w+>)?|const)\s+(\w+)", block)
            if head:
                code = re.sub(r"//[^\n]*", "", block).strip()
                out[head[1]] = (code, frozenset(NAME.findall(code)) - {head[1]})
                if twin := _twin(code):
                    out[vector(head[1])] = (twin, frozenset(NAME.findall(twin)) - {vector(head[1])})
    return out


def vector(name: str) -> str:
    """Returns the name of the variant of a function for four elements, with vec4 in place of scalars."""
    return f"{name}_x4"


def _twin(code: str) -> str | None:
    """Returns the variant for four elements, or None if it is not a function of scalars."""
    head = re.match(r"fn (\w+)\(([^)]*)\) -> (f32|i32|u32|bool) ", code)
    parameters = [p.split(": ") for p in head[2].split(", ")] if head and head[2] else []
    if head is None or not parameters or any(kind not in _SCALARS for _, kind in parameters):
        return None
    declared = ", ".join(f"{name}: vec4<{kind}>" for name, kind in parameters)
    calls = [f"{head[1]}({', '.join(f'{name}.{e}' for name, _ in parameters)})" for e in "xyzw"]
    return f"fn {vector(head[1])}({declared}) -> vec4<{head[3]}> {{\n  return vec4<{head[3]}>({', '.join(calls)});\n}}"


@dataclass(frozen=True)
class Signature:
    """The WGSL types of a function's parameters and result."""

    parameters: tuple[str, ...]
    result: str


@cache
def signature(name: str, pairs: bool) -> Signature | None:
    """Returns the signature of a prelude function, or None if there is no such function or it has no result."""
    code, _ = definitions(pairs).get(name, ("", None))
    head = re.match(r"fn \w+\(([^)]*)\) -> ([\w<>]+)", code)
    if head is None:
        return None
    return Signature(tuple(re.findall(r"\w+: ([\w<>]+)", head[1])), head[2])
