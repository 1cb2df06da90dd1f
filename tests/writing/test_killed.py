"""A process that is ended in the middle of a write, or a disk that is full, loses nothing that was there before."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import patience

ROOT = Path(__file__).resolve().parents[2]
REPLACED = ("text", "table", "program")
EXPORTED = ("folder", "file", "hub")
# How often a writer touches names at most until it is done, and bytes of a file where it may be cut.
TOUCHED = {**dict.fromkeys(REPLACED, 8), "folder": 24, "file": 26, "hub": 40}
BYTES = (0, 1, 900, 2500)


def ended(folder: Path, jobs: list[tuple[str, str, int]]) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "tests.writing.worker", str(folder), json.dumps(jobs)]
    done = patience.run(command, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


def check(folder: Path, jobs: list[tuple[str, str, int]]) -> None:
    wrong = []
    states: dict[str, set[object]] = {}
    for job, it in zip(jobs, ended(folder, jobs), strict=True):
        name, how, _ = job
        before = "old" if name in REPLACED else "absent"
        states.setdefault(name, set()).add(it["place"])
        right = it["place"] in (before, "new")
        if how == "full" and it["place"] == before:
            right = right and str(it["error"]).startswith(
                f"WriteError: {folder}/outputs/place cannot be written: File too large"
            )
            right = right and not it["left"]
        elif it["signal"] == 0:
            right = it["place"] == "new" and not it["error"] and not it["left"]
        if not right:
            wrong.append((job, it))
    assert not wrong
    for name, found in states.items():
        assert len(found) == 2, f"{name} was never ended before it was done, or always: {found}"


def test_what_was_there_stays_until_what_is_written_is_whole(tmp_path: Path) -> None:
    jobs = [(name, "killed", k) for name in REPLACED for k in range(TOUCHED[name])]
    jobs += [(name, "killed", k) for name in EXPORTED for k in (0, TOUCHED[name] // 3, TOUCHED[name] * 4)]
    jobs += [(name, how, k) for name in (*REPLACED, *EXPORTED) for how in ("cut", "full") for k in (BYTES[2],)]
    check(tmp_path, jobs)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [*REPLACED, *EXPORTED])
def test_what_was_there_stays_wherever_the_process_ends(name: str, tmp_path: Path) -> None:
    jobs = [(name, "killed", k) for k in range(TOUCHED[name])]
    check(tmp_path, [*jobs, *((name, how, k) for how in ("cut", "full") for k in (*BYTES, 1 << 20))])
