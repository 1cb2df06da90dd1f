"""The text of files in `emit/wgsl/`: templates of kernels, and bodies of maps."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "emit" / "wgsl"


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
