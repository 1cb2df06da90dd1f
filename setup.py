"""Builds the native parts: the cffi modules (csrc/build_*.py) and the library that ONNX Runtime loads (csrc/shim.c)."""

from __future__ import annotations

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

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


class Wheel(bdist_wheel):
    """One wheel per platform for Python 3.11 and later."""

    def finalize_options(self) -> None:
        self.py_limited_api = "cp311"
        super().finalize_options()


setup(
    cmdclass={"build_ext": BuildExt, "bdist_wheel": Wheel},
    cffi_modules=[f"{path.as_posix()}:ffibuilder" for path in sorted(Path("csrc").glob("build_*.py"))],
    ext_modules=[
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
