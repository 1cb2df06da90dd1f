"""Suppresses what graphics drivers print when they look for a display. In: nothing. Out: a context manager."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_display_probe() -> Iterator[None]:
    """Keeps graphics drivers from printing that XDG_RUNTIME_DIR is missing while they look for a Wayland display.

    Mesa's device-select layer (Vulkan) and EGL both look for one. If the variable names any existing folder, they print nothing.
    """
    if os.name != "posix" or "XDG_RUNTIME_DIR" in os.environ:
        yield
        return
    try:
        os.environ["XDG_RUNTIME_DIR"] = os.sep
        yield
    finally:
        os.environ.pop("XDG_RUNTIME_DIR", None)
