"""Tests that share data make them once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import patience

from .shared import made, once

ROOT = Path(__file__).resolve().parents[1]
PROCESS = """
import os, sys
from pathlib import Path
from tests.shared import once
folder = Path(sys.argv[1])
def make():
    (folder / f"made-{os.getpid()}").touch()
    if sys.argv[2] == "dies": os._exit(3)
    return [os.getpid()]
print(once(folder, "key", make)[0])
"""


def start(folder: Path, how: str = "") -> subprocess.Popen[str]:
    return patience.started([sys.executable, "-c", PROCESS, str(folder), how], cwd=ROOT)


def test_several_processes_get_what_one_made(tmp_path: Path) -> None:
    said = {patience.ended(process).stdout for process in [start(tmp_path) for _ in range(4)]}
    assert len(said) == 1 and len(list(tmp_path.glob("made-*"))) == 1
    assert made(tmp_path, "key") == [int(said.pop())]
    assert once(tmp_path, "key", lambda: 1 / 0) == made(tmp_path, "key")


def test_what_a_process_did_not_finish_is_made_by_the_next(tmp_path: Path) -> None:
    assert patience.ended(start(tmp_path, "dies")).returncode == 3
    assert made(tmp_path, "key") is None
    with pytest.raises(ZeroDivisionError):
        once(tmp_path, "key", lambda: 1 / 0)
    assert made(tmp_path, "key") is None and made(tmp_path, "other") is None
    assert once(tmp_path, "key", lambda: {"a": 1}) == {"a": 1}
