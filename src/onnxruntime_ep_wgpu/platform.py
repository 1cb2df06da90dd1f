"""Operating-system facts that the Python part needs; the native part has its own in csrc/platform.h.

In: nothing. Out: the path of the library that ONNX Runtime loads; whether this is a browser; text in the form of the system's
file names; memory that is free for files, and files that will be read.
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


def memory_for_files() -> int:
    """Bytes of memory that the system can give to parts of files; 0 where it does not say, or takes no advice."""
    if not hasattr(os, "posix_fadvise"):
        return 0
    try:
        with open("/proc/meminfo", "rb") as file:
            found = [line.split()[1] for line in file if line.startswith(b"MemAvailable:")]
    except OSError:
        return 0
    return int(found[0]) << 10 if found else 0


def will_read(file: int, offset: int, nbytes: int) -> None:
    """Has the system read a part of an open file, which is mapped later. Call it where `memory_for_files` is above 0. It may wait
    for the disk. Raises OSError."""
    if sys.platform == "linux":
        os.posix_fadvise(file, offset, nbytes, os.POSIX_FADV_WILLNEED)
