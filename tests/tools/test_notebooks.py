"""The notebooks of the documents run from their first cell to the last, each in a new kernel and an empty folder."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

from tests import patience

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))
RICH = {"first_session": 2, "slow_kernel": 3, "quantise": 1, "export": 0}
"""How many cells show more than text."""


def test_each_is_named_in_the_guide() -> None:
    guide = (NOTEBOOKS[0].parents[1] / "guides" / "notebooks.md").read_text()
    assert {it.stem for it in NOTEBOOKS} == {*RICH}
    assert all(f"../notebooks/{it.name}" in guide for it in NOTEBOOKS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda it: it.stem)
def test_every_cell_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", patience.here()["PYTHONPATH"])
    book = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells), "a notebook is committed without what its cells showed"
    nbclient.NotebookClient(
        book, timeout=patience.SECONDS, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    shown = [it for cell in book.cells if cell.cell_type == "code" for it in cell.outputs]
    assert not [it for it in shown if it.output_type == "stream" and it.name == "stderr"]
    assert sum("text/html" in it.get("data", {}) for it in shown) == RICH[path.stem]
