"""Declarations of C code for cffi, taken from the C sources.

In: source files, and the names that Python uses: types, constants, functions and variables. Out: their declarations. In the
sources each begins a line, and functions and variables are static.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
FILES = sorted(str(it) for it in HERE.glob("*.[ch]"))
_COMMENT = re.compile(r"/\*.*?\*/", re.S)
_TYPE = re.compile(r"^(?:typedef )?(?:struct|enum)\b[^;{]*(?:\{[^}]*\}[^;{]*)?;", re.M)
_STATIC = re.compile(r"^(?:PLATFORM_MAYBE_UNUSED )?static ([^;{=]*?)\s*([;{=])", re.M)
# The first name before its parameters or at the end: (*name)(...), name(...) or name.
_NAME = re.compile(r"\(\*(\w+)\)|(\w+)(?:\((?!\*)|$)")


def declared(sources: Iterable[str], names: str) -> str:
    """Returns the declarations of `names`, which spaces separate. Types come first. Raises SystemExit if one is missing."""
    text = "\n".join(_COMMENT.sub("", (HERE / it).read_text(encoding="utf-8")) for it in sources)
    found: list[tuple[str, set[str]]] = []
    for it in _TYPE.findall(text):
        named = it if "enum" in it else re.sub(r"\{.*\}", "", it, flags=re.S)
        found.append((it, set(re.findall(r"\w+", named))))
    for static, end in _STATIC.findall(text):
        name = _NAME.search(static)
        found.append((f"{'' if end == '{' else 'extern '}{static};", {name[1] or name[2]} if name else set()))
    wanted = set(names.split())
    if missing := wanted.difference(*(of_it for _, of_it in found)):
        raise SystemExit(f"C code does not declare {', '.join(sorted(missing))}")
    return "\n".join(it for it, of_it in found if of_it & wanted)
