"""Generated documents are what their generators write."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from onnxruntime_ep_wgpu import cli
from tests.language.models import Decoder, write
from tests.support import make_model

ROOT = Path(__file__).parents[2]


def test_the_list_of_options_is_the_table_in_code():
    document = runpy.run_path(str(ROOT / "scripts" / "document_options.py"))["document"]
    assert (ROOT / "docs" / "options.md").read_text() == document(), "run scripts/document_options.py"


def test_every_document_that_the_readme_links_exists():
    readme = (ROOT / "README.md").read_text()
    for part in readme.split("](")[1:]:
        target = part.split(")")[0]
        assert target.startswith("http") or (ROOT / target).exists(), target


def blocks(language: str, document: str = "README.md") -> list[str]:
    """The code blocks of a document in a language."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the model.onnx and the folder of a language model that the README speaks of."""
    nodes = [node("GlobalAveragePool", ["input"], ["p"]), node("Relu", ["p"], ["y"])]
    onnx.save(make_model(nodes, {"input": (np.float32, [1, 3, "height", "width"])}), tmp_path / "model.onnx")
    write(Decoder(layers=1, length=4096), tmp_path / "model-folder")
    return tmp_path


@pytest.mark.parametrize("block", blocks("python"))
def test_what_the_readme_prints_runs(block: str, folder: Path) -> None:
    run(block, folder)


PROGRAMS = [
    (document, k)
    for document in ("docs/hosts.md", "docs/memory.md", "docs/profiling.md")
    for k in range(len(blocks("python", document)))
]


@pytest.mark.parametrize(("document", "number"), PROGRAMS)
def test_the_programs_in_documents_run_as_they_are_printed(document: str, number: int, folder: Path) -> None:
    run(blocks("python", document)[number], folder)


@pytest.mark.parametrize("number", range(len(blocks("python", "docs/language.md"))))
def test_the_programs_about_language_models_run_as_they_are_printed(number: int, folder: Path) -> None:
    pytest.importorskip("onnxruntime_genai")
    run(blocks("python", "docs/language.md")[number], folder, ending="\nassert model is not None")


LIBRARIES = Path(__file__).parent / "libraries"
"""Stand-ins for libraries that make sessions themselves; each does with providers and sessions what the library does."""


@pytest.mark.parametrize("number", range(len(blocks("python", "docs/clients.md"))))
def test_the_programs_about_libraries_run_with_stand_ins(number: int, folder: Path) -> None:
    for name in ("det", "cls", "rec", "det_10g"):
        shutil.copy(folder / "model.onnx", folder / f"{name}.onnx")
    shutil.copytree(LIBRARIES, folder, dirs_exist_ok=True)
    ending = """
from onnxruntime_ep_wgpu import check
held = {"model": lambda it: [it.model.model], "detector": lambda it: [it.session], "magika": lambda it: [it._onnx_session],
        "engine": lambda it: [section.session for section in it.cfg.values()]}
found = [it for name, sessions in held.items() if name in globals() for it in sessions(globals()[name])]
assert found
for it in found:
    check(it)
"""
    run(blocks("python", "docs/clients.md")[number], folder, ending)


def test_the_programs_for_pyodide_use_what_there_is() -> None:
    """They run in a browser; here their names are looked up."""
    package = ROOT / "src" / "onnxruntime_ep_wgpu"
    for block in blocks("python", "docs/web.md"):
        tree = compile(block, "docs/web.md", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        (source,) = (it for it in ast.walk(tree) if isinstance(it, ast.ImportFrom))
        assert source.module == "onnxruntime_ep_wgpu.web"
        session = ast.parse((package / "web" / "session.py").read_text())
        (made,) = (it for it in session.body if isinstance(it, ast.ClassDef) and it.name == "InferenceSession")
        methods = {it.name for it in made.body if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef)}
        used = {it.attr for it in ast.walk(tree) if isinstance(it, ast.Attribute) and it.attr != "install"}
        assert used and used <= methods
        exported = (package / "web" / "__init__.py").read_text()
        assert all(re.search(rf"\b{name.name}\b", exported) for name in source.names)


def test_what_the_map_prints_is_what_the_sources_say() -> None:
    sources = [path.read_text() for path in (ROOT / "src" / "onnxruntime_ep_wgpu").rglob("*.py")]
    for block in blocks("python", "docs/architecture.md"):
        assert len(ast.parse(block).body) == 1, "one definition"
        assert any(block in text for text in sources), block


def test_every_python_program_in_documents_is_looked_at() -> None:
    looked_at = {document for document, _ in PROGRAMS}
    looked_at |= {f"docs/{name}.md" for name in ("architecture", "clients", "language", "web")}
    having = {f"docs/{it.name}" for it in (ROOT / "docs").glob("*.md") if blocks("python", f"docs/{it.name}")}
    assert having == looked_at


def test_every_file_that_a_document_links_exists():
    for document in sorted((ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
            assert target.startswith("http") or (document.parent / target).exists(), (document.name, target)


SESSION_IS_OURS = "\nassert session.get_providers()[0] in ('WebGpuExecutionProvider', 'WgpuExecutionProvider')"


def run(block: str, folder: Path, ending: str = SESSION_IS_OURS) -> None:
    """Runs a program in a process of its own; it warns of nothing and its session is on this provider."""
    done = subprocess.run([sys.executable, "-c", block + ending], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr


def test_the_commands_in_the_readme_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("wgpu-ep ")]
    assert {shlex.split(line)[1] for line in lines} == {name for name, _ in cli.commands()}
    monkeypatch.chdir(folder)
    for line in lines:
        assert cli.main(shlex.split(line, comments=True)[1:]) == 0, line + capsys.readouterr().err
