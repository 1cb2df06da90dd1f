"""Operating-system facts that the Python part needs; the native part has its own in csrc/platform.h.

In: nothing. Out: the path of the library that ONNX Runtime loads; whether this is a browser; text in the form of the system's
file names.
"""

from __future__ import annotations

import os
import sys

# The file names that setup.py gives the library.
_LIBRARY = {"win32": "onnxruntime_ep_wgpu.dll", "darwin": "libonnxruntime_ep_wgpu.dylib"}


def library_path() -> str:
    """Where the provider library lies, beside this file. Raises FileNotFoundError when it was not built."""
    # Without pathlib, which loads thirty modules of the standard library.
    folder = os.path.dirname(os.path.realpath(__file__))
    path = os.path.join(folder, _LIBRARY.get(sys.platform, "libonnxruntime_ep_wgpu.so"))
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path} is missing: install the package with `pip install .`, which builds it")
    return path


def is_browser() -> bool:
    """Whether Python itself runs in a browser, as Pyodide, where there is no ONNX Runtime."""
    return sys.platform == "emscripten"


def file_name(text: str) -> str | bytes:
    """Text as ONNX Runtime takes file names here: wide characters on Windows, else UTF-8 bytes."""
    return text if sys.platform == "win32" else text.encode()
