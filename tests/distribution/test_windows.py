"""The plain C files compile for Windows, without a warning."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest

from tests import patience

ROOT = Path(__file__).resolve().parents[2]
COMPILER = "x86_64-w64-mingw32-gcc"
FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror")
BUILT = ("ort", "submit")
"""Extension modules whose C knows next to nothing of Python: cffi puts the files into one source, with what they need."""

PYTHON = """
#include <stddef.h>
int Py_IsInitialized(void);
typedef struct PyThreadState PyThreadState;
PyThreadState *PyGILState_GetThisThreadState(void);
PyThreadState *PyEval_SaveThread(void);
void PyEval_RestoreThread(PyThreadState *);
typedef int PyGILState_STATE;
PyGILState_STATE PyGILState_Ensure(void);
void PyGILState_Release(PyGILState_STATE);
typedef struct PyObject PyObject;
typedef ptrdiff_t Py_ssize_t;
typedef PyObject *(*PyCFunction)(PyObject *, PyObject *);
typedef struct { const char *ml_name; PyCFunction ml_meth; int ml_flags; const char *ml_doc; } PyMethodDef;
enum { METH_NOARGS = 4, METH_VARARGS = 1, METH_O = 8 };
extern PyObject *PyExc_KeyboardInterrupt, *Py_None;
#define Py_RETURN_NONE return Py_None
void Py_INCREF(PyObject *), Py_DECREF(PyObject *), Py_XINCREF(PyObject *), Py_XDECREF(PyObject *);
PyObject *PyCFunction_NewEx(PyMethodDef *, PyObject *, PyObject *);
int PyCallable_Check(PyObject *);
void PyErr_Clear(void), PyErr_SetInterrupt(void), PyErr_WriteUnraisable(PyObject *);
void PyErr_Restore(PyObject *, PyObject *, PyObject *);
int PyErr_ExceptionMatches(PyObject *), PyErr_GivenExceptionMatches(PyObject *, PyObject *);
PyObject *PyImport_AddModule(const char *), *PyImport_ImportModule(const char *);
PyObject *PyObject_CallMethod(PyObject *, const char *, const char *, ...);
int PyObject_SetAttrString(PyObject *, const char *, PyObject *);
PyObject *PyTuple_GetItem(PyObject *, Py_ssize_t);
"""
"""All that they ask it, whose header cffi includes."""


def units() -> dict[str, str]:
    """C sources by name: files that are compiled as they are, and what cffi is given to compile."""
    found = {"shim": '#include "shim.c"'}
    for name in BUILT:
        namespace = runpy.run_path(str(ROOT / "csrc" / f"build_{name}.py"))
        _, source, *_ = namespace["ffibuilder"]._assigned_source
        found[name] = PYTHON + source.replace("static void py_", "void py_")  # which cffi defines
    return found


UNITS = units()


def compile_for_windows(*arguments: str | Path) -> None:
    assert shutil.which(COMPILER), f"{COMPILER} is missing: apt-get install gcc-mingw-w64-x86-64"
    result = patience.run([COMPILER, *FLAGS, *arguments], cwd=ROOT)
    assert result.returncode == 0, result.stderr


@pytest.mark.costly
@pytest.mark.parametrize("name", UNITS)
def test_what_is_plain_c_compiles_for_windows(name: str, tmp_path: Path) -> None:
    source = tmp_path / f"unit_{name}.c"
    source.write_text(UNITS[name])
    unused = [] if name == "shim" else ["-Wno-unused-function"]  # Python calls them
    compile_for_windows("-c", "-I", ROOT / "csrc", *unused, source, "-o", tmp_path / "result.o")


def test_every_plain_c_file_is_in_one_of_them() -> None:
    plain = {path.name: path.read_text() for path in (ROOT / "csrc").glob("*.c")}
    texts = "".join((*UNITS.values(), *plain.values()))
    assert plain and all(f'#include "{name}"' in texts for name in plain)


def test_the_library_for_onnxruntime_links_and_exports_its_two_functions(tmp_path: Path) -> None:
    library = tmp_path / "onnxruntime_ep_wgpu.dll"
    compile_for_windows("-shared", ROOT / "csrc" / "shim.c", "-lpsapi", "-o", library)
    listing = patience.run(["x86_64-w64-mingw32-objdump", "-p", library], check=True)
    exports = listing.stdout[listing.stdout.index("[Ordinal/Name Pointer] Table") :]
    for name in ("CreateEpFactories", "ReleaseEpFactory"):
        assert name in exports
