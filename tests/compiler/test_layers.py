"""Imports point down and never in a circle: what each part of the package may import, at run time and for type checkers alike.

Every import statement of every file counts, inside functions and under TYPE_CHECKING too, and each name is resolved to the file
that it comes from.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import onnxruntime_ep_wgpu

PACKAGE = Path(onnxruntime_ep_wgpu.__file__).parent
NAME = PACKAGE.name


BUILT = (
    "_ort",
    "_submit",
    "_wgpu",
)  # native modules, some of which are no Python file


class Rule(NamedTuple):
    """What a part may import: of the package, and from outside beyond the standard library."""

    parts: str = ""
    libraries: str = ""


# Vocabulary: files of the root that any part may use.
WORDS = (
    "attempts errors fields lazily live names options platform process progress_line records registration rehearsal tabular"
    " threads trace writing"
)
RULES = {
    "errors": Rule(),
    "writing": Rule("errors"),
    "fields": Rule(),
    "lazily": Rule(),
    "attempts": Rule(),
    "live": Rule(),
    "names": Rule(),
    "records": Rule(),
    "registration": Rule("names"),
    "rehearsal": Rule(),
    "platform": Rule(),
    "process": Rule("errors"),
    "progress_line": Rule(),
    "tabular": Rule("", "rich"),
    "threads": Rule(),
    "trace": Rule("errors"),
    "version": Rule(),
    "options": Rule("errors records"),
    "program": Rule("errors fields records writing", "numpy ml_dtypes"),
    "kept": Rule("errors program records writing"),
    "device": Rule(f"kept program _wgpu _submit {WORDS}", "wgpu wgpudawn"),
    "compiler": Rule(f"program {WORDS}", "numpy onnx onnx_ir"),
    "runtime": Rule(f"device program {WORDS}", "numpy"),
    "plugin": Rule(f"compiler device kept program runtime _ort version {WORDS}", "numpy onnx_ir onnx"),
    "profiles": Rule(WORDS),
    "drawings": Rule(f"profiles program {WORDS}"),
    "api": Rule(
        f"compiler device drawings plugin profiles program runtime {WORDS}",
        "numpy onnx onnx_ir onnxruntime google tokenizers jinja2",
    ),
    "scale": Rule(f"api {WORDS}", "numpy onnxruntime ray starlette"),
    "web": Rule("errors", "numpy pyodide js"),
    "tools": Rule(f"api device kept plugin profiles program {WORDS}", "numpy onnxruntime rich"),
    "cli": Rule(f"tools version {WORDS}"),
    "__init__": Rule(f"api version {WORDS}"),
    "start": Rule("cli"),
    "__main__": Rule("start"),
}


# The compiler's folders and files, each of which may import those before it.
FLOORS = [
    "templates",
    "dims",
    "ir",
    "tune",
    "graph",
    "nodes",
    "passes",
    "rewrite",
    "kernels",
    "lower",
    "emit",
    "compile",
]


class Import(NamedTuple):
    """`file` is the imported one, None for a library, which is `name` then."""

    name: str
    file: Path | None


def imports_of(path: Path, text: str) -> Iterator[Import]:
    """What a file imports, wherever in it."""
    place = path.relative_to(PACKAGE.parent).with_suffix("").parts
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield resolved(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            base = list(place[: len(place) - node.level]) if node.level else []
            base += node.module.split(".") if node.module else []
            for alias in node.names:
                yield resolved([*base, alias.name])
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            # Folders load what is in them when it is asked for; a name that does not say so must be a constant.
            first = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
            own = isinstance(first, ast.FormattedValue) and ast.unparse(first.value) in ("__name__", "tools.__name__")
            relative = len(node.args) > 1 and ast.unparse(node.args[1]) == "__name__"
            if not own and not relative:
                assert isinstance(first, ast.Constant), f"{path}: a module that only a run knows"
                yield resolved(str(first.value).split("."))


def resolved(parts: list[str]) -> Import:
    """The file behind a dotted name: the last part may be a name in a module."""
    name = ".".join(parts)
    if parts[0] != NAME:
        return Import(parts[0], None)
    if parts[1:2] and parts[1] in BUILT:
        return Import(name, PACKAGE / f"{parts[1]}.py")
    for most in (len(parts), len(parts) - 1):
        path = PACKAGE.joinpath(*parts[1:most])
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.exists():
                return Import(name, file)
    raise AssertionError(f"there is no {name}")


def part_of(path: Path) -> str:
    inside = path.relative_to(PACKAGE)
    return inside.parts[0].removesuffix(".py")


FILES = sorted(PACKAGE.rglob("*.py"))
OWN = [path for path in FILES if part_of(path) not in BUILT]


def wrong_imports(path: Path, text: str) -> list[str]:
    """The imports of a file that its part has no right to."""
    part = part_of(path)
    rule = RULES[part]
    wrong = []
    for name, file in imports_of(path, text):
        if file is None:
            allowed = name in sys.stdlib_module_names or name in rule.libraries.split()
        else:
            allowed = part_of(file) in (part, *rule.parts.split())
        if not allowed:
            wrong.append(name)
    return wrong


def wrong_floors(path: Path, text: str) -> list[str]:
    """The imports of a file of the compiler that are of a floor above its own."""
    inside = PACKAGE / "compiler"
    own = FLOORS.index(path.relative_to(inside).parts[0].removesuffix(".py"))
    found = [it for it in imports_of(path, text) if it.file is not None and inside in it.file.parents]
    floors = {name: file.relative_to(inside).parts[0].removesuffix(".py") for name, file in found if file is not None}
    return [name for name, floor in floors.items() if floor in FLOORS and FLOORS.index(floor) > own]


@pytest.mark.parametrize("floor", FLOORS)
def test_imports_inside_of_the_compiler_point_down(floor: str) -> None:
    place = PACKAGE / "compiler" / floor
    files = [place.with_suffix(".py")] if place.with_suffix(".py").exists() else sorted(place.rglob("*.py"))
    wrong = {str(path.relative_to(PACKAGE)): wrong_floors(path, path.read_text()) for path in files}
    assert files and not {path: names for path, names in wrong.items() if names}


def test_every_file_of_the_compiler_has_its_floor() -> None:
    found = {path.relative_to(PACKAGE / "compiler").parts[0] for path in (PACKAGE / "compiler").rglob("*.py")}
    assert {name.removesuffix(".py") for name in found} == {"__init__", *FLOORS}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("graph/x.py", "from ..lower.ops import registry"),
        ("lower/ops/x.py", "from ...emit.kernel_text import generate"),
        ("lower/x.py", "from ..compile import compile_graph"),
        ("rewrite/x.py", "from ..lower import builder"),
        ("ir/x.py", "from ..nodes.divide import divided"),
        ("kernels.py", "from .emit import alike"),
    ],
)
def test_an_import_of_a_floor_above_is_noticed(file: str, text: str) -> None:
    assert wrong_floors(PACKAGE / "compiler" / file, text)


@pytest.mark.parametrize("part", RULES)
def test_imports_point_down(part: str) -> None:
    wrong = {
        str(path.relative_to(PACKAGE)): wrong_imports(path, path.read_text()) for path in OWN if part_of(path) == part
    }
    assert not {path: names for path, names in wrong.items() if names}


def test_every_part_has_its_rule() -> None:
    assert {part_of(path) for path in OWN} == set(RULES)


def test_only_the_list_of_libraries_imports_an_implementation() -> None:
    folder = PACKAGE / "device" / "webgpu"
    hidden = {folder / "wgpu_native.py", folder / "dawn.py"}
    importers = {path for path in OWN for it in imports_of(path, path.read_text()) if it.file in hidden}
    assert importers == {folder / "libraries.py"}


def test_every_right_is_used() -> None:
    """A rule says what is, not what might be."""
    for part, rule in RULES.items():
        found = [it for path in OWN if part_of(path) == part for it in imports_of(path, path.read_text())]
        used = {it.name for it in found if it.file is None} | {part_of(it.file) for it in found if it.file is not None}
        unused = {*rule.parts.split(), *rule.libraries.split()} - used - set(WORDS.split())
        assert not unused, part


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("runtime/x.py", "import onnx_ir"),
        ("program/x.py", "import numpy, cffi"),
        ("program/x.py", "import rich.table"),
        ("compiler/x.py", "from .._wgpu import ffi"),
        ("compiler/lower/x.py", "from ..._ort import lib"),
        ("device/x.py", "from .. import _ort"),
        ("compiler/x.py", f"from {NAME} import runtime"),
        ("compiler/x.py", f"import {NAME}.runtime.plan"),
        ("compiler/x.py", f"def f():\n from {NAME}.runtime import plan"),
        ("runtime/x.py", "from .. import LanguageModel"),
        ("runtime/x.py", "if TYPE_CHECKING:\n from ..compiler import dims"),
        ("runtime/x.py", "from ..plugin.node import ComputeInfo"),
        ("errors.py", "from .options import parse"),
        ("live.py", "import numpy"),
        ("compiler/x.py", f"importlib.import_module('{NAME}.runtime.plan')"),
    ],
)
def test_a_wrong_import_is_noticed(file: str, text: str) -> None:
    assert wrong_imports(PACKAGE / file, text)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one file, smallest first (Tarjan, 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(at: str) -> None:
        index[at] = low[at] = len(index)
        stack.append(at)
        for following in sorted(graph[at]):
            if following not in index:
                visit(following)
            if following in stack:
                low[at] = min(low[at], low[following])
        if low[at] == index[at]:
            component = stack[stack.index(at) :]
            del stack[stack.index(at) :]
            if len(component) > 1:
                found.append(sorted(component))

    for node in graph:
        if node not in index:
            visit(node)
    return sorted(found, key=len)


def test_no_imports_go_in_circles() -> None:
    known = set(OWN)
    graph = {
        str(path.relative_to(PACKAGE)): {
            str(it.file.relative_to(PACKAGE))
            for it in imports_of(path, path.read_text())
            if it.file in known and it.file is not None and it.file != path
        }
        for path in OWN
    }
    assert circles(graph) == []


def test_no_imports_of_the_web_runtime_go_in_circles() -> None:
    """Types count, and what is imported when it is asked for."""
    folder = Path(__file__).parents[2] / "web" / "src"
    said = re.compile(r"(?:\bfrom|\bimport\(?)\s*'(\.[^']+)\.js'")
    graph = {
        path.relative_to(folder).as_posix(): {
            (path.parent / f"{name}.ts").resolve().relative_to(folder.resolve()).as_posix()
            for name in said.findall(path.read_text())
        }
        for path in folder.rglob("*.ts")
    }
    assert graph["files.ts"] == {"disk.ts", "errors.ts", "found.ts", "kept.ts", "reason.ts"}
    assert circles(graph) == []


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set(), "f": {"g"}, "g": {"f"}}
    assert circles(graph) == [["f", "g"], ["a", "b", "c"]]


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "compiler" / "lower" / "ops").rglob("*.py")), ids=lambda path: path.stem
)
def test_bodies_of_more_than_five_keywords_are_files(path: Path) -> None:
    """And none is an f-string: what depends on an operator are constants, which directives are about."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            assert "_at(" not in ast.unparse(node), f"{path.name}:{node.lineno} is WGSL made by an f-string"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "_at(" in node.value:
            statements = sum(node.value.count(word) for word in ("let ", "var ", "if (", "for (", "return "))
            assert statements <= 5, (
                f"{path.name}:{node.lineno} has {statements} keywords of statements, more than five: put it into wgsl/bodies/"
            )
