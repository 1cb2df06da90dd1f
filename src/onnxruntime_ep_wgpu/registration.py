"""Warns once at exit if a program registered the library and no session used it.

The package has no callback for a wrong provider name. It can only observe that the library was registered and not used until
the end. The warning points to the line that registered, and appears only if the name can be the cause: ONNX Runtime reserves
it, and there was a device. Programs that pass devices or the right name use the library and get no warning. `check()` answers
at once for one session.

In: events, recorded where they happen. Out: the warning. The state belongs to the process and is one object.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from .names import pass_this, reserves_name

_PACKAGE = os.path.dirname(__file__)


class ProviderNameWarning(UserWarning):
    """The program registered the library, never read `PROVIDER`, and ended without a session on this provider.

    `PROVIDER` is the name to pass to InferenceSession."""


class Registration:
    """The use of the library by this process since it was registered."""

    def __init__(self) -> None:
        self.knows_the_name = False  # the program has read `PROVIDER`
        self.used = False  # ONNX Runtime has created a session with this provider
        self.device_shown = False  # ONNX Runtime has listed a device of this provider
        self._at: tuple[str, int, int] | None = None  # file, line, process
        self._passing = threading.local()

    @contextmanager
    def passing_no_name(self) -> Iterator[None]:
        """Suppresses the warning for registrations by this thread in the block: the caller passes devices and no name."""
        before = getattr(self._passing, "quiet", False)
        self._passing.quiet = True
        try:
            yield
        finally:
            self._passing.quiet = before

    def start(self) -> None:
        """Records the line outside this package that registers the library, for a warning at exit."""
        if getattr(self._passing, "quiet", False) or self._at is not None:
            return
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
            frame = frame.f_back
        self._at = frame.f_code.co_filename, frame.f_lineno, os.getpid()
        atexit.register(self._warn_when_unused)

    def _warn_when_unused(self) -> None:
        ort = sys.modules.get("onnxruntime")  # a program without it cannot pass `providers=[...]`
        if self._at is None or self.used or self.knows_the_name or not self.device_shown or ort is None:
            return
        if not reserves_name(ort.__version__):
            return
        file, line, process = self._at
        if process == os.getpid():
            warnings.warn_explicit(
                "onnxruntime_ep_wgpu was registered here, and no session used it. If one was meant to,"
                f" {pass_this(ort.__version__)}; or pass devices of onnxruntime.get_ep_devices()."
                " onnxruntime_ep_wgpu.check(session) raises the reason why a session is not on this provider.",
                ProviderNameWarning,
                file,
                line,
            )


noted = Registration()
