"""The models are compared value by value, and a difference is an exit status."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import patience

ROOT = Path(__file__).parents[2]


def verify(tmp_path: Path, *arguments: str) -> tuple[int, list[dict], str]:
    target = tmp_path / "found.json"
    command = [sys.executable, "-m", "bench.verify_zoo", *arguments, "--json", str(target)]
    done = patience.run(command, cwd=ROOT)
    return done.returncode, json.loads(target.read_text()), done.stdout


def test_a_right_model_has_every_value_compared(tmp_path: Path) -> None:
    status, (found,), shown = verify(tmp_path, "--models", "tiny")
    assert status == 0
    assert found["values"] == found["stored"] >= found["kernels"]
    assert found["kernels_differing"] == 0 and found["first_differing"] is None
    assert "tiny" in shown


@pytest.mark.costly
@pytest.mark.parametrize("model", ["tiny", "lstm_gru"])
def test_a_tolerance_that_no_kernel_meets_names_the_first_one(tmp_path: Path, model: str) -> None:
    status, (found,), shown = verify(tmp_path, "--models", model, "--tolerance", "0")
    assert status == 1
    assert found["first_differing"]["kernel"] in shown
    assert found["first_differing"]["nodes"]
