"""Loads every native part of the installed package: `python scripts/loads.py`. Needs no adapter; a failure raises an exception.

For builders of wheels (`tool.cibuildwheel` in pyproject.toml), which have neither a GPU nor a software adapter.
"""

from __future__ import annotations

import argparse
import ctypes
from importlib import import_module
from pathlib import Path

import onnxruntime_ep_wgpu as webgpu_ep


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    folder = Path(webgpu_ep.__file__).parent
    modules = sorted(
        {path.name.split(".")[0] for pattern in ("_*.so", "_*.pyd", "_wgpu.py") for path in folder.glob(pattern)}
    )
    if len(modules) < 3:
        raise SystemExit(f"error: {folder} has only the native modules {', '.join(modules)}")
    for name in modules:
        import_module(f"{webgpu_ep.__name__}.{name}")
    library = ctypes.CDLL(webgpu_ep.get_library_path())
    assert library.CreateEpFactories and library.ReleaseEpFactory
    print(f"loaded {', '.join(modules)} and {Path(webgpu_ep.get_library_path()).name}")


if __name__ == "__main__":
    main()
