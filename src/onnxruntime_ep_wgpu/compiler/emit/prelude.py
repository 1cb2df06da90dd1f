"""Text out of `wgsl/`: templates, bodies of maps, and the functions of the prelude, of which a kernel carries those it uses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

_FOLDER = Path(__file__).parent / "wgsl"
_SCALARS = ("f32", "i32", "u32", "bool")
_NAME = re.compile(r"\b[A-Za-z_]\w*\b")


@cache
def template(name: str) -> str:
    """The text of `wgsl/<name>.wgsl`, with that of others in place of lines `#include <other>`."""
    text = (_FOLDER / f"{name}.wgsl").read_text("utf-8")
    return re.sub(r"^#include (\S+)\n", lambda line: template(line[1]), text, flags=re.MULTILINE)


@cache
def map_body(name: str) -> str:
    """The text of `wgsl/bodies/<name>.wgsl`, the body of a map, without comments; its directives are still there."""
    lines = template(f"bodies/{name}").rstrip().split("\n")
    return "\n".join(line.removeprefix("  ") for line in lines if not line.lstrip().startswith("//"))


@cache
def _definitions(pairs: bool) -> dict[str, tuple[str, frozenset[str]]]:
    """Name to (text, names it mentions) for every top-level function or variable of the prelude."""
    out: dict[str, tuple[str, frozenset[str]]] = {}
    files = ["float", "functions", "minifloat", "int64_pair", "int128", "float64", "random", "workgroup", "subgroups"]
    for file in files if pairs else [*files, "int64_native"]:
        for block in re.split(r"\n(?=(?:fn|var|const)\b)", "\n" + template(f"prelude/{file}")):
            head = re.match(r"(?:fn|var(?:<\w+>)?|const)\s+(\w+)", block)
            if head:
                code = re.sub(r"//[^\n]*", "", block).strip()
                out[head[1]] = (code, frozenset(_NAME.findall(code)) - {head[1]})
                if twin := _twin(code):
                    out[vector(head[1])] = (twin, frozenset(_NAME.findall(twin)) - {vector(head[1])})
    return out


def vector(name: str) -> str:
    """The name of a function for four elements, which has vec4 where the one for single elements has scalars."""
    return f"{name}_x4"


def _twin(code: str) -> str | None:
    """The function for four elements, or None for what is no function of scalars."""
    head = re.match(r"fn (\w+)\(([^)]*)\) -> (f32|i32|u32|bool) ", code)
    parameters = [p.split(": ") for p in head[2].split(", ")] if head and head[2] else []
    if head is None or not parameters or any(kind not in _SCALARS for _, kind in parameters):
        return None
    declared = ", ".join(f"{name}: vec4<{kind}>" for name, kind in parameters)
    calls = [f"{head[1]}({', '.join(f'{name}.{e}' for name, _ in parameters)})" for e in "xyzw"]
    return f"fn {vector(head[1])}({declared}) -> vec4<{head[3]}> {{\n  return vec4<{head[3]}>({', '.join(calls)});\n}}"


@dataclass(frozen=True)
class Signature:
    """The types of a function's parameters and of its result, as WGSL has them."""

    parameters: tuple[str, ...]
    result: str


@cache
def signature(name: str, pairs: bool) -> Signature | None:
    """The signature of a function of the prelude; None when it has no such function, or one without a result."""
    code, _ = _definitions(pairs).get(name, ("", None))
    head = re.match(r"fn \w+\(([^)]*)\) -> ([\w<>]+)", code)
    if head is None:
        return None
    return Signature(tuple(re.findall(r"\w+: ([\w<>]+)", head[1])), head[2])


@lru_cache(maxsize=256)
def _mentioned(text: str) -> tuple[str, ...]:
    """The names in a text, in order; layers of a network have the same texts."""
    return tuple(sorted(set(_NAME.findall(text))))


_BEGIN = "  let w = id.x"  # of `main`, which `writer.py` writes


def with_needed(text: str, pairs: bool, own: Mapping[str, str] | None = None) -> str:
    """A kernel with its `main` behind the definitions that it uses; what these need to be told about a dispatch, `main` tells."""
    definitions = needed(text, pairs, own)
    if "hidden_zero" in definitions:
        assert _BEGIN in text, "an entry point begins with the number of its workgroup"
        text = text.replace(_BEGIN, f"  hidden_zero = id.z;  // a grid has two dimensions\n{_BEGIN}", 1)
    return f"{definitions}\n{text}"


def needed(text: str, pairs: bool, own: Mapping[str, str] | None = None) -> str:
    """Definitions that `text` uses, directly or through others, in an order that declares before use.

    `own` are functions of the kernel by name, which come beside those of the prelude.
    """
    definitions = _definitions(pairs)
    if own:
        mentions = {name: (code, frozenset(_NAME.findall(code)) - {name}) for name, code in own.items()}
        definitions = {**definitions, **mentions}
    wanted: dict[str, None] = {}

    def want(name: str) -> None:
        if name in wanted or name not in definitions:
            return
        for other in sorted(definitions[name][1]):
            want(other)
        wanted[name] = None

    for name in _mentioned(text):
        want(name)
    return "\n".join(definitions[name][0] for name in wanted)
