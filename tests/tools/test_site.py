"""The site of the documents: it is made without a warning, has every document, and what its guides print runs."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
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
    assert "http://" not in re.sub(r"http://(www\.w3\.org|localhost)\S*", "", first), "a page loads from elsewhere"


def voice() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> voice (float[1,160] samples, float[1,8] state)'
        " => (float[1,1] probability, float[1,8] next_state) <float[160,8] w> { m = MatMul (samples, w) s = Add (m, state)"
        " next_state = Tanh (s) axes = Constant <value_ints = [1]> () t = ReduceSum (next_state, axes)"
        " probability = Sigmoid (t) }"
    )


def detector(make: np.random.Generator) -> onnx.ModelProto:
    """64 boxes of an image, and which of them are left."""
    weights: dict[str, Any] = {
        "w": make.normal(size=(3 * 64 * 64, 64 * 5)).astype(F) / 50,
        "shape": np.array([1, 64, 5]),
        **{name: np.array([k]) for name, k in (("zero", 0), ("four", 4), ("five", 5))},
        "last": np.array([-1]),
        "most": np.array([10]),
        "limit": np.array([0.5], F),
        "column": np.array(2),
    }
    nodes = [
        node("Flatten", ["image"], ["flat"]),
        node("MatMul", ["flat", "w"], ["m"]),
        node("Sigmoid", ["m"], ["p"]),
        node("Reshape", ["p", "shape"], ["r"]),
        node("Slice", ["r", "zero", "four", "last"], ["all"]),
        node("Slice", ["r", "four", "five", "last"], ["s"]),
        node("Transpose", ["s"], ["by_class"], perm=[0, 2, 1]),
        node("NonMaxSuppression", ["all", "by_class", "most", "limit", "limit"], ["chosen"]),
        node("Gather", ["chosen", "column"], ["at"], axis=1),
        node("Gather", ["all", "at"], ["boxes"], axis=1),
        node("Gather", ["s", "at"], ["scores"], axis=1),
    ]
    return make_model(nodes, {"image": (F, [1, 3, 64, 64])}, weights)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the models that the guides speak of."""
    make = np.random.default_rng(0)
    nodes = [
        node("Conv", ["input", "k"], ["c"]),
        node("GlobalAveragePool", ["c"], ["p"]),
        node("Flatten", ["p"], ["scores"]),
    ]
    images = {"input": (F, ["batch", 3, "height", "width"])}
    models = {"classifier": make_model(nodes, images, {"k": make.normal(size=(10, 3, 3, 3)).astype(F)})}
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
    models["encoder"] = make_model(nodes, {"input_ids": ids, "attention_mask": ids}, weights)
    models["voice"], models["detector"] = voice(), detector(make)
    weight = onnx.numpy_helper.from_array(make.normal(size=(160, 8)).astype(F), "w")
    del models["voice"].graph.initializer[:]
    models["voice"].graph.initializer.append(weight)
    for name, model in models.items():
        onnx.save(model, tmp_path / f"{name}.onnx")
    return tmp_path


@pytest.mark.exhaustive
@pytest.mark.parametrize(("guide", "number"), PROGRAMS)
def test_what_a_guide_prints_runs(guide: str, number: int, folder: Path) -> None:
    block = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "guides" / f"{guide}.md").read_text(), re.DOTALL)[
        number
    ]
    done = patience.run([sys.executable, "-c", block], cwd=folder)
    assert done.returncode == 0, done.stderr
