"""A program that registered the library and never had a session on it: it gets a warning when it ends, once.

No callback of ours runs when the wrong name is passed. What can be seen is that a program registered the library and that
no session used it until the end: only then is there a warning, about the line that registered, and only where the name can
be the cause: ONNX Runtime keeps it, and there was a device. A program that passes devices, or the right name, makes a session
here and gets no warning; `check()` answers at once, for a session.

In: what the program does, noted where it happens. Out: the warning. The state is the process's, in one object.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from .names import kept, pass_this

_PACKAGE = os.path.dirname(__file__)


class ProviderNameWarning(UserWarning):
    """A program that has not read `PROVIDER`, the name to pass to InferenceSession, registered the library, and ended without
    a session on this provider."""


class Registration:
    """What a process has done with the library since it was registered."""

    def __init__(self) -> None:
        self.knows_the_name = False  # the program has read `PROVIDER`, the name to pass
        self.used = False  # ONNX Runtime makes a session with this provider
        self.device_shown = False  # ONNX Runtime has a device of this provider
        self._at: tuple[str, int, int] | None = None  # file, line, process
        self._passing = threading.local()

    @contextmanager
    def passing_no_name(self) -> Iterator[None]:
        """While the block runs, this thread registers for a caller that passes devices."""
        before = getattr(self._passing, "quiet", False)
        self._passing.quiet = True
        try:
            yield
        finally:
            self._passing.quiet = before

    def start(self) -> None:
        """Notes the line outside this package that registers the library, for a warning when the process ends."""
        if getattr(self._passing, "quiet", False) or self._at is not None:
            return
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
            frame = frame.f_back
        self._at = frame.f_code.co_filename, frame.f_lineno, os.getpid()
        atexit.register(self._warn_when_unused)

    def _warn_when_unused(self) -> None:
        ort = sys.modules.get("onnxruntime")  # programs without have no `providers=[...]`
        if self._at is None or self.used or self.knows_the_name or not self.device_shown or ort is None:
            return
        if not kept(ort.__version__):
            return
        file, line, process = self._at
        if process == os.getpid():
            warnings.warn_explicit(
                "onnxruntime_ep_wgpu was registered here, and no session used it. If one was meant to,"
                f" {pass_this(ort.__version__)}; or pass devices of onnxruntime.get_ep_devices()."
                " onnxruntime_ep_wgpu.check(session) says why a session is not on this provider.",
                ProviderNameWarning,
                file,
                line,
            )


noted = Registration()
