"""Generated documents are what their generators write."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

import onnxruntime_ep_wgpu as webgpu_ep
from onnxruntime_ep_wgpu import cli
from onnxruntime_ep_wgpu.api import tuning
from onnxruntime_ep_wgpu.compiler.lower.ops import registry
from tests import patience
from tests.conformance import table
from tests.language.models import Decoder, write
from tests.support import make_model
from tests.tools.test_tune import take_adapters_for_gpus

ROOT = Path(__file__).parents[2]


def test_conformance_says_where_the_cpu_provider_differs() -> None:
    assert (ROOT / "docs" / "conformance.md").read_text().endswith(f"\n\n{table.DIFFERENCES}")


def test_the_list_of_options_is_the_table_in_code():
    document = runpy.run_path(str(ROOT / "scripts" / "document_options.py"))["document"]
    assert (ROOT / "docs" / "options.md").read_text() == document(), "run scripts/document_options.py"


def test_the_python_api_is_what_docstrings_say():
    document = runpy.run_path(str(ROOT / "scripts" / "document_api.py"))["document"]
    assert (ROOT / "docs" / "api.md").read_text() == document(), "run scripts/document_api.py"


def test_what_is_not_on_pypi_is_not_installed_from_there() -> None:
    """Lines for later say so."""
    documents = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    lines = [line for it in documents for line in it.read_text().splitlines()]
    named = [it for it in lines if re.search(r"pip install .*onnxruntime-ep-wgpu(?!-)", it)]
    assert len(named) >= 2
    assert [it for it in named if "PyPI" not in it] == []


@pytest.mark.parametrize(
    "document", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda it: it.name
)
def test_the_commands_in_documents_have_arguments_that_there_are(document: Path) -> None:
    text = document.read_text()
    lines = re.findall(r"`(wgpu-ep [^`]+)`", text) + re.findall(r"^ *(wgpu-ep .+)$", text, re.MULTILINE)
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        if len(words) > 1 and "..." not in words:
            cli.make_parser(words).parse_args(words)


def headings(document: Path) -> set[str]:
    """As links name them."""
    found = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", it.lower()).replace(" ", "-") for it in found}


@pytest.mark.parametrize(
    "document", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda it: it.name
)
def test_every_document_that_is_linked_exists(document: Path):
    for part in document.read_text().split("](")[1:]:
        target = part.split(")")[0]
        if not target.startswith("http"):
            path, _, heading = target.partition("#")
            linked = document.parent / path if path else document
            assert linked.exists(), target
            assert not heading or heading in headings(linked), target


def blocks(language: str, document: str = "README.md") -> list[str]:
    """The code blocks of a document in a language."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


def _texts(tree: ast.AST) -> Iterator[str]:
    """Every text in code as a pattern: what is put into it may be anything. Parts that are added to one are texts of their own."""
    for it in ast.walk(tree):
        if isinstance(it, ast.JoinedStr):
            yield "".join(re.escape(part.value) if isinstance(part, ast.Constant) else "(.+)" for part in it.values)
        elif isinstance(it, ast.Constant) and isinstance(it.value, str):
            yield re.escape(it.value).replace(r"\{\}", "(.+)")


@pytest.fixture(scope="module")
def messages() -> list[re.Pattern[str]]:
    """Those of the package that say something by themselves."""
    files = (ROOT / "src" / "onnxruntime_ep_wgpu").rglob("*.py")
    found = {text for file in files for text in _texts(ast.parse(file.read_text()))}
    return [re.compile(text, re.DOTALL) for text in found if len(re.sub(r"\(\.\+\)|\\", "", text)) > 10]


SENTENCE = re.compile(r"\b[a-z]{2,} [a-z]{2,} [a-z]{2,}\b")
"""Words that were written, and not put there."""
OF_OTHERS = "Not enough memory left|cannot open shared object file|of the data"
FIRST_ERRORS = [line for block in blocks("text", "docs/troubleshooting.md") for line in block.splitlines()]


@pytest.mark.costly
@pytest.mark.parametrize("line", FIRST_ERRORS)
def test_the_messages_that_a_document_explains_are_those_of_the_code(
    line: str, messages: list[re.Pattern[str]]
) -> None:
    """What is fixed in texts of the code covers a message, but for what is put there: names, numbers, shapes."""
    kind, _, rest = line.partition(": ")
    if kind.endswith(("Error", "Warning")):
        assert kind in webgpu_ep.__all__
        line = rest
    fixed = set()
    for message in messages:
        for found in message.finditer(line):
            holes = {k for n in range(1, message.groups + 1) for k in range(*found.span(n))}
            fixed |= set(range(*found.span())) - holes
    fixed |= {k for found in re.finditer(OF_OTHERS, line) for k in range(*found.span())}
    left = "".join("\0" if k in fixed else letter for k, letter in enumerate(line)).split("\0")
    assert len(fixed) > 0.2 * len(line) and not [it for it in left if SENTENCE.search(it)], left


def test_operators_that_a_document_calls_without_a_kernel_have_none() -> None:
    named = [it for line in FIRST_ERRORS for it in re.findall(r"no kernel for ((?:\w+\.)*)(\w+)", line)]
    assert len(named) >= 2
    for domain, operator in named:
        assert registry.declared(operator, domain.rstrip(".")) is None, operator


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the model.onnx and the folder of a language model that the README speaks of."""
    nodes = [node("GlobalAveragePool", ["input"], ["p"]), node("Relu", ["p"], ["y"])]
    onnx.save(make_model(nodes, {"input": (np.float32, ["batch", 3, "height", "width"])}), tmp_path / "model.onnx")
    write(Decoder(layers=1, length=4096), tmp_path / "model-folder")
    return tmp_path


@pytest.mark.costly
@pytest.mark.parametrize("block", blocks("python"))
def test_what_the_readme_prints_runs(block: str, folder: Path) -> None:
    run(block, folder)


PROGRAMS = [
    (document, k)
    for document in ("docs/context.md", "docs/hosts.md", "docs/memory.md", "docs/profiling.md")
    for k in range(len(blocks("python", document)))
]


@pytest.mark.costly
@pytest.mark.parametrize(("document", "number"), PROGRAMS)
def test_the_programs_in_documents_run_as_they_are_printed(document: str, number: int, folder: Path) -> None:
    run(blocks("python", document)[number], folder)


@pytest.mark.costly
@pytest.mark.parametrize("number", range(len(blocks("python", "docs/language.md"))))
def test_the_programs_about_language_models_run_as_they_are_printed(number: int, folder: Path) -> None:
    pytest.importorskip("onnxruntime_genai")
    run(blocks("python", "docs/language.md")[number], folder, ending="\nassert model is not None")


LIBRARIES = Path(__file__).parent / "libraries"
"""Stand-ins for libraries that make sessions themselves; each does with providers and sessions what the library does."""


@pytest.mark.costly
@pytest.mark.parametrize("number", range(len(blocks("python", "docs/clients.md"))))
def test_the_programs_about_libraries_run_with_stand_ins(number: int, folder: Path) -> None:
    for name in ("det", "cls", "rec", "det_10g"):
        shutil.copy(folder / "model.onnx", folder / f"{name}.onnx")
    shutil.copytree(LIBRARIES, folder, dirs_exist_ok=True)
    shutil.copy(folder / "model.onnx", folder / "nudenet" / "320n.onnx")
    ending = """
from onnxruntime_ep_wgpu import check
held = {
    "TextEmbedding": lambda: [model.model.model],
    "get_model": lambda: [detector.session],
    "Magika": lambda: [magika._onnx_session],
    "RapidOCR": lambda: [section.session for section in engine.cfg.values()],
    "ORTModelForFeatureExtraction": lambda: [model.session, sentences.auto_model.session],
    "Kokoro": lambda: [kokoro.sess],
    "nudenet": lambda: [detector.onnx_session],
}
found = [it for name, sessions in held.items() if name in globals() for it in sessions()]
assert found
for it in found:
    check(it)
"""
    run(blocks("python", "docs/clients.md")[number], folder, ending)


@pytest.mark.costly
def test_the_program_about_pools_runs_as_it_is_printed(folder: Path) -> None:
    """Those about Ray are in tests/scale."""
    run(blocks("python", "docs/scale.md")[0], folder, ending="\nassert pool.statistics().completed > 20")


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
    constants_read = {document for document, _ in PROGRAMS}
    constants_read |= {f"docs/{name}.md" for name in ("architecture", "clients", "language", "scale", "web")}
    having = {f"docs/{it.name}" for it in (ROOT / "docs").glob("*.md") if blocks("python", f"docs/{it.name}")}
    assert having == constants_read


def test_every_file_that_a_document_links_exists():
    for document in sorted((ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
            assert target.startswith("http") or (document.parent / target).exists(), (document.name, target)


SESSION_IS_OURS = "\nassert session.get_providers()[0] in ('WebGpuExecutionProvider', 'WgpuExecutionProvider')"


def run(block: str, folder: Path, ending: str = SESSION_IS_OURS) -> None:
    """Runs a program in a process of its own; it warns of nothing and its session is on this provider."""
    done = patience.run([sys.executable, "-c", block + ending], cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr


def test_the_commands_in_the_readme_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("wgpu-ep ")]
    assert {shlex.split(line)[1] for line in lines} == {name for name, _ in cli.commands()}
    monkeypatch.chdir(folder)
    monkeypatch.setenv("WGPU_EP_CACHE", str(folder / "cache"))
    # As printed `tune` measures every kernel of a GPU for two minutes or more; test_tune.py looks at what it does.
    take_adapters_for_gpus(monkeypatch)
    monkeypatch.setattr(tuning, "CLASSES", tuning.wanted(["vectors"]))
    # Random weights end no answer: as long as the model's caches are, it goes on.
    write(Decoder(layers=1, length=128), folder / "model-folder")
    for line in lines:
        assert cli.main(shlex.split(line, comments=True)[1:]) == 0, line + capsys.readouterr().err
