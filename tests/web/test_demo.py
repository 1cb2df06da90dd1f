"""The page of web/demo in Chromium, with the models that `make web-demo` makes: minutes on a software adapter."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests import patience
from tests.support import make_model

from . import folders, node

ROOT = node.WEB.parent


@pytest.mark.exhaustive
@pytest.mark.skipif(bool(node.missing() or node.no_browser()), reason=str(node.missing() or node.no_browser()))
def test_the_page(built: None, tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    folders.text(tmp_path)
    made = patience.run([sys.executable, "demo/models.py", "--chat", tmp_path], cwd=node.WEB)
    if "cannot be fetched from" in made.stderr:
        pytest.skip(made.stderr.strip().splitlines()[-1])
    assert made.returncode == 0, made.stderr
    node.check("demo/page.test.mjs")


def refusal(folder: Path) -> str:
    done = patience.run([sys.executable, "demo/models.py", "--chat", folder], cwd=node.WEB)
    assert done.returncode == 2 and not done.stdout
    return done.stderr


def test_a_chat_takes_a_causal_language_model_alone(tmp_path: Path) -> None:
    assert f"there is no folder {tmp_path / 'nope'}" in refusal(tmp_path / "nope")
    assert "it is no model folder of transformers.js" in refusal(tmp_path)
    nodes = [helper.make_node("Cast", ["input_ids"], ["last_hidden_state"], to=1)]
    (tmp_path / "onnx").mkdir()
    onnx.save(make_model(nodes, {"input_ids": (np.int64, ["n", "s"])}), tmp_path / "onnx" / "model.onnx")
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["BertModel"]}))
    before = sorted(tmp_path.rglob("*"))
    said = refusal(tmp_path)
    assert (
        "onnx/model.onnx is no causal language model, which a chat needs (BertModel: from input_ids to last_hidden_state)"
        in said
    )
    assert "Traceback" not in said and sorted(tmp_path.rglob("*")) == before


def test_make_names_a_folder_for_the_chat_that_is_not_there() -> None:
    done = patience.run(["make", "web-demo", "CHAT=/nope"], cwd=ROOT)
    assert done.returncode and done.stderr.splitlines()[0] == "CHAT=/nope: there is no folder /nope"


def test_the_wheel_for_pyodide_says_what_it_misses(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "pyodide_wheel", tmp_path / "scripts")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)

    def said() -> str:
        done = patience.run([tmp_path / "scripts" / "pyodide_wheel"])
        assert done.returncode == 2
        return done.stderr

    assert said() == "error: .venv is not there: run scripts/setup web first\n"
    python.symlink_to(sys.executable)
    assert said() == "error: the packages of web/ are not installed: run scripts/setup web first\n"
