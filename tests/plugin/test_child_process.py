"""The library asks a Python for its libpython without a shell: names are names, whatever characters they have."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onnxruntime_ep_wgpu as webgpu_ep
from tests import patience

from . import models
from .test_hosts import ROOT, host, run_host, shared_python  # noqa: F401

NAMES = (
    "$(touch entered) ", "`touch entered`", '"; touch entered; "', "'; touch entered; '", "a\ntouch entered\n", "%PATH%", "a & b",
    "a | b > c", "-c", "*", "~", "\\", 'ends with \\"', "é\u2028", b"\xff\xfe".decode(errors="surrogateescape"), "  ", "#", "!!",
)  # fmt: skip


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("child") / "child"
    source = Path(__file__).with_name("child.c")
    patience.run(
        ["gcc", "-Wall", "-Werror", "-I", ROOT / "csrc", "-o", program, source, "-ldl", "-lpthread"], check=True
    )
    return program


def ask(child: Path, *arguments: str | Path, cwd: Path | None = None) -> str | None:
    """The answer; None when there is none."""
    result = patience.run([child, *arguments], cwd=cwd, encoding="utf-8", errors="surrogateescape")
    assert result.returncode in (0, 3), result.stderr
    return result.stdout if result.returncode == 0 else None


def echo(folder: Path) -> Path:
    """A program that writes its own name and its arguments, a line each."""
    folder.mkdir(parents=True)
    program = folder / "python3"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n')
    program.chmod(stat.S_IRWXU)
    return program


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_program_in_any_folder_is_run_with_the_arguments_that_it_is_given(
    name: str, child: Path, tmp_path: Path
) -> None:
    program = echo(tmp_path / name / "bin")
    arguments = (*NAMES, "", name)
    answer = ask(child, "output", program, *arguments, cwd=tmp_path)
    assert answer == "".join(f"{it}\n" for it in (program, *arguments))
    assert sorted(it.name for it in tmp_path.iterdir()) == [name]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_python_in_any_folder_tells_its_library(name: str, child: Path, tmp_path: Path) -> None:
    folder = tmp_path / name / "bin"
    folder.mkdir(parents=True)
    (folder / "python3").symlink_to(sys.executable)
    answer = ask(child, "libpython", folder / "python3", cwd=tmp_path)
    assert answer == ask(child, "libpython", sys.executable) and (answer is not None) == shared_python()
    assert not (tmp_path / "entered").exists()


@pytest.mark.parametrize("host_state", ["output", "ignoring", "closed"])
def test_a_host_may_ignore_its_children_and_have_no_streams(host_state: str, child: Path, tmp_path: Path) -> None:
    assert ask(child, host_state, echo(tmp_path / "bin"), "a") == f"{tmp_path / 'bin' / 'python3'}\na\n"


@pytest.mark.parametrize(
    "command",
    [
        ["/nowhere/python3"], [""], ["/"], ["/etc/passwd"], ["true"], ["sh", "-c", "echo found; exit 1"], ["sh", "-c", "kill $$"],
        ["head", "-c", "4096", "/dev/zero"], ["yes"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_program_that_cannot_be_run_fails_or_says_too_much_gives_no_answer(command: list[str], child: Path) -> None:
    assert ask(child, "output", *command) is None


def test_a_name_without_a_folder_is_looked_for_in_path(child: Path) -> None:
    assert ask(child, "output", "printf", "%s", "found") == "found"


@settings(deadline=None, max_examples=20)
@given(st.lists(st.text(r"\" ab$%" + "\t&", max_size=12), min_size=1, max_size=60))
def test_arguments_are_quoted_as_programs_on_windows_read_them(child: Path, arguments: list[str]) -> None:
    answer = ask(child, "quoted", *arguments)
    assert answer is not None
    assert answer.split("\0")[:-1] == [subprocess.list2cmdline([it]) for it in arguments]


@pytest.mark.skipif(not shared_python(), reason="this Python has no shared libpython")
def test_a_c_program_runs_a_model_with_a_library_in_a_hostile_folder(host: Path, tmp_path: Path) -> None:  # noqa: F811
    """As in an environment: the executable is the one in a folder above the library."""
    folder = tmp_path / '$(touch entered) `touch entered`\'";touch entered;"'
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python3").symlink_to(sys.executable)
    library = shutil.copy(webgpu_ep.get_library_path(), folder / "lib.so")
    model = tmp_path / "square.onnx"
    model.write_bytes(models.square())
    packages = os.pathsep.join([str(ROOT / "src"), sysconfig.get_path("purelib")])
    result = run_host(host, library, model, PYTHONPATH=packages)
    assert (result.returncode, result.stdout) == (0, "ok\n"), result.stdout + result.stderr
    assert not list(Path.cwd().glob("entered*"))
