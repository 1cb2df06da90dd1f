"""The names of the provider in ONNX Runtime, and the warning about the one that ONNX Runtime keeps for itself.

Clients look for devices of `WebGpuExecutionProvider`, the name of ONNX Runtime's own provider. Passed as text,
`providers=["WebGpuExecutionProvider"]`, that name never reaches a library: ONNX Runtime takes it for the provider that it
may have been built with, and when it was not, as in the packages on PyPI, it makes a session on the CPU and says nothing.
No callback of ours runs meanwhile. So the devices are there under both names, and who registers the library is told
which one can be passed, once, unless the program has shown that it knows (it read `PROVIDER`) or passes no name
(`session()`, `devices()`).
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

EP_NAME = "WebGpuExecutionProvider"
PROVIDER = "WgpuExecutionProvider"
NAMES = (EP_NAME, PROVIDER)

PASS_THIS = (
    f"pass providers=[{PROVIDER!r}] (onnxruntime_ep_wgpu.PROVIDER), registered beforehand: onnxruntime takes"
    f" {EP_NAME!r}, passed as text, for a provider of its own and makes a session on the CPU without a word"
)

_PACKAGE = os.path.dirname(__file__)


class ProviderNameWarning(UserWarning):
    """The library was registered by a program that has not read `PROVIDER`, the name to pass to InferenceSession."""


class _State(threading.local):
    quiet = 0


_state = _State()
_told = False


def told() -> None:
    """Notes that the program knows the name to pass."""
    global _told
    _told = True


@contextmanager
def passing_no_name() -> Iterator[None]:
    """While the block runs, this thread registers for a caller who passes devices."""
    _state.quiet += 1
    try:
        yield
    finally:
        _state.quiet -= 1


def warn_of_the_name() -> None:
    """Warns once per process, at the line outside this package that registers the library."""
    # Programs without Python's onnxruntime have no `providers=[...]`.
    if _told or _state.quiet or "onnxruntime" not in sys.modules:
        return
    told()
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(
        f"onnxruntime_ep_wgpu is registered. To name it to InferenceSession, {PASS_THIS}. Devices from"
        " onnxruntime.get_ep_devices() may be passed under either name. (Reading onnxruntime_ep_wgpu.PROVIDER before"
        " registering turns this warning off.)",
        ProviderNameWarning,
        stacklevel=level,
    )
