"""Declarations of C code for cffi, taken from the code itself, and C functions that call Python.

In: a C source with its includes, and the names that Python uses: types, constants, functions and variables. Each begins a line
there, and functions and variables are static. Out: their declarations.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
FILES = sorted(str(it) for it in HERE.glob("*.[ch]"))
_COMMENT = re.compile(r"/\*.*?\*/", re.S)
_INCLUDE = re.compile(r'^#include "(.*)"', re.M)
_TYPE = re.compile(r"^(?:typedef )?(?:struct|enum)\b[^;{]*(?:\{[^}]*\}[^;{]*)?;", re.M)
_STATIC = re.compile(r"^(?:PLATFORM_MAYBE_UNUSED )?static ([^;{=]*?)\s*([;{=])", re.M)
# The first name before its parameters or at the end: (*name)(...), name(...) or name.
_NAME = re.compile(r"\(\*(\w+)\)|(\w+)(?:\((?!\*)|$)")


def declared(source: str, names: str) -> str:
    """Returns the declarations of `names`, which spaces separate. Types come first. Raises SystemExit if one is missing."""
    text = _COMMENT.sub("", _with_includes(source, set()))
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
    return "\n".join(it for it, of_it in found if of_it & wanted) + "\n"


def _with_includes(source: str, done: set[str]) -> str:
    def text(found: re.Match[str]) -> str:
        name = found[1]
        if name in done:
            return ""
        done.add(name)
        return _with_includes((HERE / name).read_text(encoding="utf-8"), done)

    return _INCLUDE.sub(text, source)


class Callback(NamedTuple):
    """A C function `c_NAME` that calls the Python function `py_NAME` until that has answered (python_call.h).

    `declaration` and `python` are for cffi, `source` for the compiler."""

    declaration: str
    python: str
    source: str


def callback(name: str, parameters: str, result: str = "void", unanswered: str = "") -> Callback:
    """Returns a callback. Without Python it returns 0, and the value of the C expression `unanswered` if Python failed."""
    arguments = ", ".join(part.replace("*", " ").split()[-1] for part in parameters.split(","))
    signature, entry = f"{result} c_{name}({parameters})", f"void py_{name}(int again, {parameters})"
    body = f"WgpuCall call; if (!wgpu_enter(&call)) return{'' if result == 'void' else ' 0'}; "
    body += f"do py_{name}(call.again, {arguments}); while (wgpu_unanswered(&call)); wgpu_leave(&call);"
    if unanswered:
        body += f" if (!call.answered) return {unanswered};"
    if result != "void":
        body += f" return ({result})" + ("(intptr_t)" if "*" in result else "") + "call.answer;"
    return Callback(f"{signature};\n", f"{entry};\n", f"static {entry};\nstatic {signature} {{ {body} }}\n")
