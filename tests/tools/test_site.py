"""The site of the documents: it is made without a warning, has every document, and what its guides print runs."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.helper import make_node as node

from tests import patience
from tests.support import make_model

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
PROGRAMS = [(guide.stem, k) for guide in GUIDES for k in range(guide.read_text().count("```python"))]
F = np.float32


def test_every_document_is_a_page() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    pages = set(re.findall(r": (\S+\.md)$", text, re.MULTILINE))
    documents = {str(it.relative_to(ROOT / "docs")) for it in (ROOT / "docs").rglob("*.md")}
    assert pages == documents | {"index.md"}


@pytest.mark.exhaustive
def test_the_site_is_made_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    line = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path)]
    done = patience.run(line, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    first = (tmp_path / "index.html").read_text()
    assert "Where each node runs" in first or "where each node runs" in first
    assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"?(?:https?:)?//[^>]*>", first), (
        "a page loads from elsewhere"
    )
    assert (tmp_path / "search" / "search_index.js").exists(), "no search where the site is opened from a disk"


def blocks(guide: str) -> list[str]:
    """The Python programs of a guide."""
    text = (ROOT / "docs" / "guides" / f"{guide}.md").read_text()
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def making() -> list[str]:
    """The programs of guides and notebooks that make a model."""
    cells = json.loads((ROOT / "docs" / "notebooks" / "first_session.ipynb").read_text())["cells"]
    texts = ["".join(it["source"]) for it in cells if it["cell_type"] == "code"]
    return [it for it in [*texts, *(block for guide in GUIDES for block in blocks(guide.stem))] if "onnx.save(" in it]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the models that the guides speak of."""
    monkeypatch.chdir(tmp_path)
    for program in making():
        exec(program, {})
    make = np.random.default_rng(0)
    nodes = [
        node("Conv", ["input", "k"], ["c"]),
        node("GlobalAveragePool", ["c"], ["p"]),
        node("Flatten", ["p"], ["scores"]),
    ]
    images = {"input": (F, ["batch", 3, "height", "width"])}
    models = {"model": make_model(nodes, images, {"k": make.normal(size=(10, 3, 3, 3)).astype(F)})}
    models["resnet50"] = models["model"]
    nodes = [
        node("Gather", ["table", "input_ids"], ["e"]),
        node("Cast", ["attention_mask"], ["m"], to=1),
        node("Unsqueeze", ["m", "last"], ["u"]),
        node("Mul", ["e", "u"], ["masked"]),
        node("MatMul", ["masked", "w"], ["hidden"]),
    ]
    ids = (np.int64, ["batch", "sequence"])
    weights: dict[str, Any] = {
        "table": make.normal(size=(30_000, 16)).astype(F),
        "last": np.array([-1]),
        "w": make.normal(size=(16, 16)).astype(F),
    }
    (tmp_path / "encoder").mkdir()
    models["encoder/model"] = make_model(nodes, {"input_ids": ids, "attention_mask": ids}, weights)
    for name, model in models.items():
        onnx.save(model, tmp_path / f"{name}.onnx")
    return tmp_path


@pytest.mark.exhaustive
@pytest.mark.parametrize(("guide", "number"), PROGRAMS)
def test_what_a_guide_prints_runs(guide: str, number: int, folder: Path) -> None:
    done = patience.run([sys.executable, "-c", blocks(guide)[number]], cwd=folder)
    assert done.returncode == 0, done.stderr
