"""Properties of the operating system that the Python code needs. csrc/platform.h has those of the native code.

In: nothing. Out: the path of the provider library; whether Python runs in a browser; text encoded as a file name; the memory
available for the page cache, and read-ahead of files.
"""

from __future__ import annotations

import os
import sys

# The file names of the library in setup.py.
_LIBRARY = {"win32": "onnxruntime_ep_wgpu.dll", "darwin": "libonnxruntime_ep_wgpu.dylib"}


def library_path() -> str:
    """Returns the path of the provider library, beside this file. Raises FileNotFoundError if it was not built."""
    # Not with pathlib, which imports thirty modules of the standard library.
    folder = os.path.dirname(os.path.realpath(__file__))
    path = os.path.join(folder, _LIBRARY.get(sys.platform, "libonnxruntime_ep_wgpu.so"))
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path} is missing: install the package with `pip install .`, which builds it")
    return path


def is_browser() -> bool:
    """Returns whether Python runs in a browser (Pyodide), without ONNX Runtime."""
    return sys.platform == "emscripten"


def file_name(text: str) -> str | bytes:
    """Returns text in the form of ONNX Runtime's file names: wide characters on Windows, else UTF-8 bytes."""
    return text if sys.platform == "win32" else text.encode()


def memory_for_files() -> int:
    """Returns the bytes of memory available for the page cache; 0 if unknown or if the system takes no read-ahead advice."""
    if not hasattr(os, "posix_fadvise"):
        return 0
    try:
        with open("/proc/meminfo", "rb") as file:
            found = [line.split()[1] for line in file if line.startswith(b"MemAvailable:")]
    except OSError:
        return 0
    return int(found[0]) << 10 if found else 0


def will_read(file: int, offset: int, nbytes: int) -> None:
    """Asks the system to read part of an open file ahead of mapping it. May wait for the disk. Raises OSError.

    Call it only if `memory_for_files` is above 0."""
    if sys.platform == "linux":
        os.posix_fadvise(file, offset, nbytes, os.POSIX_FADV_WILLNEED)
