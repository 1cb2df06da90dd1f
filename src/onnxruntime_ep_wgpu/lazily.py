"""Modules that are executed when something of theirs is used.

onnx_ir imports sympy, for arithmetic with names of dimensions, which nothing here asks it for: half of the time that a process
takes to import what compiles a graph (0.4 of 0.8 s of CPU time). onnx imports what puts
models together and writes them as text.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

OF_ONNX_IR = (
    "sympy",
    "onnx_ir._symbolic_shapes",  # is about sympy alone: its table of functions
    "google.protobuf.json_format",
    "google.protobuf.text_format",
    "onnx.compose",
)


@contextmanager
def executed_when_used(*names: str) -> Iterator[None]:
    """Modules of these names that are imported in a `with` are loaded, and executed when one is first looked at, wherever that
    is: to others they are modules as always. What has been imported before stays as it is."""
    finder = _Finder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder:
    """Finds what the path has, to be executed later."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in self._names else None
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = LazyLoader(spec.loader)
        return spec
