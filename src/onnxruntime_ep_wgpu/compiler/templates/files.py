"""The text of files in `emit/wgsl/`, and in `program/` what a device probes with too: templates of kernels, and bodies of maps."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parents[2]
_FOLDERS = (_PACKAGE / "compiler" / "emit" / "wgsl", _PACKAGE / "program")


@cache
def template(name: str) -> str:
    """The text of `wgsl/<name>.wgsl`, with that of others in place of lines `#include <other>`."""
    first, shared = (folder / f"{name}.wgsl" for folder in _FOLDERS)
    text = (first if first.exists() else shared).read_text("utf-8")
    return re.sub(r"^#include (\S+)\n", lambda line: template(line[1]), text, flags=re.MULTILINE)


@cache
def map_body(name: str) -> str:
    """The text of `wgsl/bodies/<name>.wgsl`, the body of a map, without comments; its directives are still there."""
    lines = template(f"bodies/{name}").rstrip().split("\n")
    return "\n".join(line.removeprefix("  ") for line in lines if not line.lstrip().startswith("//"))
