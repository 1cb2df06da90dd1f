"""Builds the native parts: the cffi modules (csrc/build_*.py) and the library that ONNX Runtime loads (csrc/shim.c).

With WGPU_EP_PYODIDE=1 it builds the wheel for Pyodide instead: no native parts, and the JavaScript of web/dist.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

PYODIDE = os.environ.get("WGPU_EP_PYODIDE") == "1"
SHIM = "onnxruntime_ep_wgpu.shim"
SHIM_FILES = {"win32": "onnxruntime_ep_wgpu.dll", "darwin": "libonnxruntime_ep_wgpu.dylib"}


class BuildExt(build_ext):
    """The shim is a plain shared library: its own file name, its own two exports, no Python module in it."""

    def get_ext_filename(self, ext_name: str) -> str:
        if ext_name.split(".")[-1] != "shim":
            return super().get_ext_filename(ext_name)
        name = SHIM_FILES.get(sys.platform, "libonnxruntime_ep_wgpu.so")
        return str(Path(*ext_name.split(".")[:-1], name))

    def get_export_symbols(self, ext: Extension) -> list[str]:
        if ext.name.split(".")[-1] != "shim":
            return super().get_export_symbols(ext)
        return ["CreateEpFactories", "ReleaseEpFactory"]


class BuildPy(build_py):
    """With the JavaScript that runs in a page, for Pyodide."""

    def run(self) -> None:
        super().run()
        if not PYODIDE:
            return
        library = Path("web/dist/ort.wgpu.whole.min.mjs")
        if not library.exists():
            raise SystemExit("error: web/dist is not built: scripts/pyodide_wheel does that first")
        self.copy_file(str(library), str(Path(self.build_lib) / "onnxruntime_ep_wgpu" / "web" / library.name))


class Wheel(bdist_wheel):
    """One wheel per platform for Python 3.11 and later; that for Pyodide is for all of them."""

    def finalize_options(self) -> None:
        if not PYODIDE:
            self.py_limited_api = "cp311"
        super().finalize_options()


setup(
    cmdclass={"build_ext": BuildExt, "build_py": BuildPy, "bdist_wheel": Wheel},
    cffi_modules=[]
    if PYODIDE
    else [f"{path.as_posix()}:ffibuilder" for path in sorted(Path("csrc").glob("build_*.py"))],
    ext_modules=[]
    if PYODIDE
    else [
        Extension(
            SHIM,
            ["csrc/shim.c"],
            include_dirs=["csrc"],
            depends=["csrc/platform.h"],
            libraries=["psapi"] if sys.platform == "win32" else [],
            py_limited_api=True,
        )
    ],
)
