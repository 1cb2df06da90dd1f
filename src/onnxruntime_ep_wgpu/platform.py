"""Operating-system facts that the Python part needs; the native part has its own in csrc/platform.h.

In: nothing. Out: the path of the library that ONNX Runtime loads; text in the form of the system's file names.
"""

from __future__ import annotations

import sys
from pathlib import Path

# The file names that setup.py gives the library.
_LIBRARY = {"win32": "onnxruntime_ep_wgpu.dll", "darwin": "libonnxruntime_ep_wgpu.dylib"}


def library_path() -> Path:
    """Where the provider library lies, beside this file. Raises FileNotFoundError when it was not built."""
    path = Path(__file__).resolve().parent / _LIBRARY.get(sys.platform, "libonnxruntime_ep_wgpu.so")
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: install the package with `pip install .`, which builds it")
    return path


def file_name(text: str) -> str | bytes:
    """Text as ONNX Runtime takes file names here: wide characters on Windows, else UTF-8 bytes."""
    return text if sys.platform == "win32" else text.encode()
