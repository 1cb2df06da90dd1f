"""Reads templates of kernels and bodies of maps from `emit/wgsl/`. Those that a device also uses as probes are in `program/`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parents[2]
_FOLDERS = (_PACKAGE / "compiler" / "emit" / "wgsl", _PACKAGE / "program")


@cache
def template(name: str) -> str:
    """Returns the text of `wgsl/<name>.wgsl`, with each line `#include <other>` replaced by that file."""
    first, shared = (folder / f"{name}.wgsl" for folder in _FOLDERS)
    text = (first if first.exists() else shared).read_text("utf-8")
    return re.sub(r"^#include (\S+)\n", lambda line: template(line[1]), text, flags=re.MULTILINE)


@cache
def map_body(name: str) -> str:
    """Returns the text of `wgsl/bodies/<name>.wgsl`, the body of a map, without comments and with its directives."""
    lines = template(f"bodies/{name}").rstrip().split("\n")
    return "\n".join(line.removeprefix("  ") for line in lines if not line.lstrip().startswith("//"))
