"""Asking a program of this repository for help, or misspelling an argument, does nothing else."""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(
    path.relative_to(ROOT)
    for folder in ("bench", "examples", "demo", "scripts", "tests/graphs", "tests/program")
    for path in (ROOT / folder).rglob("*.py")
    if "if __name__ ==" in path.read_text() or path.name == "__main__.py"
)


def test_there_are_programs() -> None:
    assert {Path("bench/compare.py"), Path("examples/draw_output.py"), Path("demo/__main__.py")} <= {*PROGRAMS}


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), (["--nonsense", "--help"], 0), (["--nonsense"], 2)])
def test_help_is_all_that_happens(
    program: Path,
    arguments: list[str],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setattr(sys, "argv", [str(program), *arguments])
    written: list[object] = []
    monkeypatch.setattr(Path, "write_text", lambda self, *_: written.append(self))
    name = ".".join(program.with_suffix("").parts)
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(SystemExit) as ended:
        if (program.parent / "__init__.py").exists() or importlib.util.find_spec(name) is not None:
            runpy.run_module(name, run_name="__main__")
        else:
            runpy.run_path(str(ROOT / program), run_name="__main__")
    assert (ended.value.code or 0) == code
    shown = capsys.readouterr()
    assert "usage:" in (shown.out if code == 0 else shown.err)
    assert not written and not list(tmp_path.iterdir())
