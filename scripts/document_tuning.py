"""Writes the table of docs/tuning.md from the classes in compiler/tune/: `python scripts/document_tuning.py`."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Mapping
from pathlib import Path

from onnxruntime_ep_wgpu.compiler.tune import KERNELS

TARGET = Path(__file__).parents[1] / "docs" / "tuning.md"
HEAD = ["| kernel | parameters | bounds may name |", "| --- | --- | --- |"]


def _bounds(kernel: str) -> str:
    """Returns the quantities that bounds may name, or a reference to the first kernel with the same ones."""
    about: Mapping[str, str] = KERNELS[kernel].about
    first = next(name for name in sorted(KERNELS) if KERNELS[name].about == about)
    if first != kernel and about:
        return f"those of `{first}`"
    return ", ".join(f"`{name}`{f' ({what})' if what else ''}" for name, what in about.items())


def _parameters(kernel: str) -> str:
    """Returns the first paragraph of the docstring in one line."""
    said = inspect.cleandoc(KERNELS[kernel].__doc__ or "").split("\n\n")[0]
    return " ".join(said.split()).removesuffix(".")


def document(before: str) -> str:
    """Returns the whole file: `before` with a new table."""
    lines = before.splitlines()
    begin = lines.index(HEAD[0])
    end = next(at for at in range(begin, len(lines)) if not lines[at].startswith("|"))
    rows = [f"| `{kernel}` | {_parameters(kernel)} | {_bounds(kernel)} |" for kernel in sorted(KERNELS)]
    return "\n".join([*lines[:begin], *HEAD, *rows, *lines[end:]]) + "\n"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    TARGET.write_text(document(TARGET.read_text()))
