"""The docstring of a folder names what is in it, so that whoever opens the folder knows where to look."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import onnxruntime_ep_wgpu

PACKAGE = Path(onnxruntime_ep_wgpu.__file__).parent
FOLDERS = sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_is_named_in_the_docstring_of_its_folder(folder: Path) -> None:
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]+`", said)))) | set(re.findall(r"^\w+(?=  )", said, re.M))
    modules = {it.stem for it in folder.glob("*.py") if not it.stem.startswith("_")}
    modules |= {it.name for it in folder.iterdir() if (it / "__init__.py").exists()}
    assert modules <= named


def test_a_class_has_a_name_of_its_own() -> None:
    """Whoever searches for a name finds one thing. What a file keeps to itself is found there, and `web/` runs without the rest."""
    places: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and path.parent.name != "web":
                places.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_the_map_names_what_is_at_the_root() -> None:
    page = (PACKAGE.parents[1] / "docs" / "architecture.md").read_text()
    modules = {it.name for it in PACKAGE.glob("*.py") if not it.stem.startswith("_")}
    assert {it for it in modules if f"`{it}`" not in page} == set()
