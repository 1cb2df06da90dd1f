"""Modules that are executed on first use and not on import.

onnx_ir imports sympy for arithmetic with names of dimensions, which this package never uses. That import is half of the time to
import the compiler (0.4 of 0.8 s of CPU time). onnx imports modules that merge models and that write them as text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import Any

OF_ONNX_IR = (
    "sympy",
    "onnx_ir._symbolic_shapes",  # only a table of sympy functions
    "google.protobuf.json_format",
    "google.protobuf.text_format",
    "onnx.compose",
)


class DeferredModule:
    """Stands for a module in annotations. `load` returns the module, on the first access to an attribute."""

    def __init__(self, load: Callable[[], ModuleType]) -> None:
        self._load = load

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._load(), attribute)


@contextmanager
def lazy_imports(*names: str) -> Iterator[None]:
    """Makes modules of these names lazy if they are first imported during the `with`.

    Such a module is executed on the first access to an attribute, inside or outside the block. Modules imported earlier do not
    change."""
    finder = _Finder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder:
    """A finder on `sys.meta_path` that returns the path's modules with a lazy loader."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in self._names else None
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = LazyLoader(spec.loader)
        return spec
