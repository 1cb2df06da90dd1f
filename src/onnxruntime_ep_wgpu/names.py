"""The names of the provider in ONNX Runtime, and the warning about the one that ONNX Runtime keeps for itself.

Clients look for devices of `WebGpuExecutionProvider`, the name of ONNX Runtime's own provider. Passed as text,
`providers=["WebGpuExecutionProvider"]`, that name does not reach a library before ONNX Runtime 1.32: it is taken for the
provider that ONNX Runtime may have been built with, and when it was not, as in the packages on PyPI, the session is made on
the CPU and nothing says so. So the devices are there under both names, and `PROVIDER` is the one to pass as text, which
reaches them in every version.

No callback of ours runs when the wrong name is passed. What can be seen is that a program registered the library and that
no session used it until the end: only then is there a warning, about the line that registered, and only where the name can
be the cause: ONNX Runtime keeps it, and there was a device. A program that passes devices, or the right name, makes a session
here and is told nothing; `check()` tells at once, for a session.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

EP_NAME = "WebGpuExecutionProvider"
PROVIDER = "WgpuExecutionProvider"
NAMES = (EP_NAME, PROVIDER)
REGISTRATION = "onnxruntime_ep_wgpu"
"""Under which name this package registers its library by itself. Programs choose other names."""

GIVEN_BACK = (1, 32)
"""Since this version ONNX Runtime asks the registered libraries for EP_NAME as well, when it was built without."""

_PACKAGE = os.path.dirname(__file__)


class ProviderNameWarning(UserWarning):
    """A program that has not read `PROVIDER`, the name to pass to InferenceSession, registered the library, and ended without
    a session on this provider."""


class _State(threading.local):
    quiet = 0


_state = _State()
_knows_the_name = False
_used = False
_device_shown = False
_registered_at: tuple[str, int, int] | None = None  # file, line, process


def told() -> None:
    """Notes that the program knows the name to pass."""
    global _knows_the_name
    _knows_the_name = True


def knows_the_name() -> bool:
    """Whether the program has read `PROVIDER`."""
    return _knows_the_name


def used() -> None:
    """Notes that ONNX Runtime makes a session with this provider."""
    global _used
    _used = True


def device_shown() -> None:
    """Notes that ONNX Runtime has a device of this provider."""
    global _device_shown
    _device_shown = True


def version(text: str) -> tuple[int, ...]:
    """The first two numbers of a version of ONNX Runtime."""
    return tuple(map(int, text.split(".")[:2]))


def kept(ort_version: str) -> bool:
    """Whether this ONNX Runtime keeps EP_NAME, passed as text, for itself."""
    return version(ort_version) < GIVEN_BACK


def pass_this(ort_version: str) -> str:
    """What to pass instead of EP_NAME, and why, to an ONNX Runtime that keeps it."""
    return (
        f"pass providers=[{PROVIDER!r}] (onnxruntime_ep_wgpu.PROVIDER): onnxruntime {ort_version} takes {EP_NAME!r}, passed"
        " as text, for a provider of its own and makes a session on the CPU without a word"
    )


@contextmanager
def passing_no_name() -> Iterator[None]:
    """While the block runs, this thread registers for a caller who passes devices."""
    _state.quiet += 1
    try:
        yield
    finally:
        _state.quiet -= 1


def registering() -> None:
    """Notes the line outside this package that registers the library, for a warning when the process ends."""
    global _registered_at
    if _state.quiet or _registered_at is not None:
        return
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    _registered_at = frame.f_code.co_filename, frame.f_lineno, os.getpid()
    atexit.register(_warn_when_unused)


def _warn_when_unused() -> None:
    ort = sys.modules.get("onnxruntime")  # programs without have no `providers=[...]`
    if _registered_at is None or _used or _knows_the_name or not _device_shown or ort is None:
        return
    if not kept(ort.__version__):
        return
    file, line, process = _registered_at
    if process == os.getpid():
        warnings.warn_explicit(
            "onnxruntime_ep_wgpu was registered here, and no session used it. If one was meant to,"
            f" {pass_this(ort.__version__)}; or pass devices of onnxruntime.get_ep_devices()."
            " onnxruntime_ep_wgpu.check(session) says why a session is not on this provider.",
            ProviderNameWarning,
            file,
            line,
        )
