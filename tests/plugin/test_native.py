"""The C parts compile everywhere without a warning, with no header of ONNX Runtime or Python."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests import patience

from .c_api import declared, ort_abi

CSRC = Path(__file__).resolve().parents[2] / "csrc"
COMPILERS = ["gcc", "x86_64-w64-mingw32-gcc"]
FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{CSRC}"]
# What C code without Python calls of it.
PYTHON = """
typedef struct PyThreadState PyThreadState;
PyThreadState *PyGILState_GetThisThreadState(void);
PyThreadState *PyEval_SaveThread(void);
void PyEval_RestoreThread(PyThreadState *state);
int Py_IsInitialized(void);
"""

every_compiler = pytest.mark.parametrize("compiler", COMPILERS)


def compile_text(compiler: str, text: str, *flags: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is missing")
    command = [compiler, *FLAGS, *flags, "-x", "c", "-"]
    result = patience.run(command, input=text)
    assert result.returncode == 0, result.stderr


@pytest.mark.costly
@every_compiler
def test_the_library_that_onnx_runtime_loads_compiles(compiler: str) -> None:
    compile_text(compiler, (CSRC / "shim.c").read_text())


@pytest.mark.costly
@every_compiler
def test_the_native_half_of_a_run_compiles(compiler: str) -> None:
    character = "wchar_t" if "mingw" in compiler else "char"
    text = (
        f'#include "platform.h"\n#include <stdbool.h>\n{PYTHON}\ntypedef {character} ORTCHAR_T;\n'
        + ort_abi.declarations()
    )
    text += "typedef struct { OrtDataTransferImpl table; const OrtApi *api; } WgpuOrtDataTransferImpl;\n"
    text += "".join(f"{slot.result} c_{name}({slot.parameters});\n" for name, slot in ort_abi.callbacks())
    text += '#define MEMOS 8\n#include "runs.c"\n#include "memory.c"\n'
    compile_text(compiler, text, "-Wno-unused-function")


@pytest.mark.costly
@every_compiler
def test_what_submits_and_reads_compiles(compiler: str) -> None:
    parts = ("tickets.c", "encode.c", "submit.c", "rounds.c", "readback.c")
    compile_text(compiler, "".join(f'#include "{name}"\n' for name in parts), "-Wno-unused-function")


def test_the_system_is_called_in_one_file_of_c_and_one_of_python() -> None:
    for name in ("shim.c", "runs.c", "memory.c", "python_call.h", "encode.c"):
        text = (CSRC / name).read_text()
        for word in ("dlsym", "dlopen", "mmap", "VirtualAlloc", "LoadLibrary", "<dlfcn.h>", "<windows.h>"):
            assert word not in text, f"{name} has {word}: it belongs into platform.h"
    package = CSRC.parent / "src" / "onnxruntime_ep_wgpu"
    for path in [*package.glob("*.py"), *(package / "plugin").glob("*.py"), *(package / "model").glob("*.py")]:
        if path.name != "platform.py":
            assert "sys.platform" not in path.read_text(), f"{path} asks which system this is: platform.py does"


def test_what_cffi_needs_is_declared_as_in_the_sources() -> None:
    found = declared.declared('#include "submit.c"\n', "Part MOST_CHAINED upload wgpu_count_error").splitlines()
    assert found == [
        "typedef struct { uint64_t buffer, to, bytes; } Part;",
        "enum { MOST_CHAINED = 8 };",
        "void wgpu_count_error(void);",
        "int upload(uint64_t to, uint64_t buffer, uint64_t offset, const void *data, size_t bytes);",
    ]
    variable = "static int64_t forked = 0;\nstatic void *(*download)(int);\nstatic int forked_by(int download) {}\n"
    assert declared.declared(variable, "forked download") == "extern int64_t forked;\nextern void *(*download)(int);\n"
    with pytest.raises(SystemExit, match="C code does not declare nowhere"):
        declared.declared(variable, "forked nowhere")


def test_the_generated_module_is_declared_for_this_system() -> None:
    command = [sys.executable, CSRC / "build_ort.py"]
    text = patience.run(command, check=True).stdout
    for name, slot in ort_abi.callbacks():
        assert f"c_{name}(" in text and slot.parameters is not None
        assert f"do py_{name}(call.again, " in text
