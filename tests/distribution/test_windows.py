"""The plain C files compile for Windows, without a warning."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILER = "x86_64-w64-mingw32-gcc"
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror")
PLAIN_C = sorted(path for path in (ROOT / "csrc").glob("*.c") if "Python.h" not in path.read_text())


def compile_for_windows(*arguments: str | Path) -> None:
    assert shutil.which(COMPILER), f"{COMPILER} is missing: apt-get install gcc-mingw-w64-x86-64"
    result = subprocess.run([COMPILER, *FLAGS, *arguments], capture_output=True, text=True, cwd=ROOT, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("source", PLAIN_C, ids=lambda path: path.name)
def test_every_plain_c_file_compiles_for_windows(source: Path, tmp_path: Path) -> None:
    compile_for_windows("-c", source, "-o", tmp_path / "result.o")


def test_the_library_for_onnxruntime_links_and_exports_its_two_functions(tmp_path: Path) -> None:
    library = tmp_path / "onnxruntime_ep_wgpu.dll"
    compile_for_windows("-shared", ROOT / "csrc" / "shim.c", "-lpsapi", "-o", library)
    listing = subprocess.run(["x86_64-w64-mingw32-objdump", "-p", library], capture_output=True, text=True, check=True)
    exports = listing.stdout[listing.stdout.index("[Ordinal/Name Pointer] Table") :]
    for name in ("CreateEpFactories", "ReleaseEpFactory"):
        assert name in exports
