"""Graphics drivers print nothing while they look for a display. In: nothing. Out: a `with`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_display_probe() -> Iterator[None]:
    """Keeps graphics drivers from printing that XDG_RUNTIME_DIR is missing while they look for a Wayland display.

    Mesa's device-select layer (Vulkan) and EGL both probe for one; with an existing folder, any, they find none silently.
    """
    if os.name != "posix" or "XDG_RUNTIME_DIR" in os.environ:
        yield
        return
    try:
        os.environ["XDG_RUNTIME_DIR"] = os.sep
        yield
    finally:
        os.environ.pop("XDG_RUNTIME_DIR", None)
