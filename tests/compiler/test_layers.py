"""Imports point down: what each part of the package may import, at run time and for type checkers alike."""

from __future__ import annotations

import ast
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import onnxruntime_ep_wgpu

PACKAGE = Path(onnxruntime_ep_wgpu.__file__).parent
NAME = PACKAGE.name
# Modules of vocabulary beside the parts: they import each other and nothing else of the package.
VOCABULARY = frozenset({"", "errors", "live", "names", "options", "platform", "process", "tabular", "trace"})
MAY_IMPORT = {
    "options": {"errors"},
    "program": {"errors"},
    "device": {"program", *VOCABULARY},
    "compiler": {"program", *VOCABULARY},
    "runtime": {"device", "program", *VOCABULARY},
    "plugin": {"compiler", "device", "program", "runtime", *VOCABULARY},
    "profiles": {"device", "program", *VOCABULARY},
    "api": {"compiler", "device", "plugin", "profiles", "program", "runtime", *VOCABULARY},
    "web": {"errors"},
    "tools": {"api", "compiler", "device", "plugin", "profiles", "program", "runtime", *VOCABULARY},
}
FROM_OUTSIDE = {
    "wgpu": {"device"},
    "onnxruntime": {"api", "plugin", "tools"},
    "onnx": {"api", "compiler", "plugin", "tools"},
}


def _imports(path: Path) -> set[str]:
    """Absolute names of the modules that a file imports, wherever in the file."""
    place = path.relative_to(PACKAGE.parent).with_suffix("").parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            base = place[: len(place) - node.level]
            base = (*base, *node.module.split(".")) if node.module else base
            found |= {".".join((*base, alias.name)) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def _part(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and ((PACKAGE / parts[1]).is_dir() or f"{parts[1]}.py" in ROOT_FILES) else ""


ROOT_FILES = {path.name for path in PACKAGE.glob("*.py")}
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE)


@pytest.mark.parametrize("part", sorted(MAY_IMPORT))
def test_imports_point_down(part: str) -> None:
    wrong = defaultdict(set)
    for path in (PACKAGE / part).rglob("*.py"):
        for module in _imports(path):
            if module.split(".")[0] == NAME and _part(module) not in MAY_IMPORT[part] | {
                part,
                "_ort",
                "_calls",
                "_encode",
                "_wgpu",
            }:
                wrong[str(path.relative_to(PACKAGE))].add(module)
    assert not wrong, dict(wrong)


@pytest.mark.parametrize("library", sorted(FROM_OUTSIDE))
def test_a_library_is_known_to_few_parts(library: str) -> None:
    users = {
        path.relative_to(PACKAGE).parts[0] for path in FILES if any(m.split(".")[0] == library for m in _imports(path))
    }
    assert users <= FROM_OUTSIDE[library]


def test_every_part_has_its_rule() -> None:
    assert {path.relative_to(PACKAGE).parts[0] for path in FILES} == set(MAY_IMPORT)


def _when_imported(path: Path) -> set[str]:
    """The modules of the package that importing a file imports: not those in functions, nor those for types alone."""
    place = path.relative_to(PACKAGE.parent).with_suffix("").parts
    pending, found = list(ast.parse(path.read_text()).body), set()
    while pending:
        node = pending.pop()
        if isinstance(node, ast.ImportFrom) and node.level:
            base = (*place[: len(place) - node.level], *(node.module or "").split("."))
            inside = ".".join(filter(None, base))
            found |= {f"{inside}.{a.name}" if f"{inside}.{a.name}" in MODULES else inside for a in node.names}
        elif isinstance(node, (ast.If, ast.Try, ast.With)) and "TYPE_CHECKING" not in ast.unparse(node).split("\n")[0]:
            pending += node.body
    return found & MODULES.keys()


MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}


def test_no_module_imports_itself_through_others() -> None:
    graph = {name: _when_imported(path) - {name} for name, path in MODULES.items()}
    assert sum(map(len, graph.values())) > len(graph)  # they were read
    list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


@pytest.mark.parametrize("path", sorted((PACKAGE / "compiler" / "ops").rglob("*.py")), ids=lambda path: path.stem)
def test_bodies_of_more_than_three_statements_are_files(path: Path) -> None:
    """And none is an f-string: what depends on an operator are constants, which directives are about."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            assert "_at(" not in ast.unparse(node), f"{path.name}:{node.lineno} is WGSL made by an f-string"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "_at(" in node.value:
            statements = sum(node.value.count(word) for word in ("let ", "var ", "if (", "for (", "return "))
            assert statements <= 5, f"{path.name}:{node.lineno} is longer than three statements: put it into wgsl/bodies/"
