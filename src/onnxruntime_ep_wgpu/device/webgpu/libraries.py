"""A WebGPU library by its name, and the one that a process takes where nothing else is asked for.

In: WGPU_EP_LIBRARY. Out: `named()`, `asked()`. Invariant: `wgpu-native` is always there; nothing of Dawn is loaded before it is
asked for.
"""

from __future__ import annotations

import os

from ...errors import OptionError, cut
from . import dawn, wgpu_native
from .api import Library

AUTO = "auto"
NAMES = (wgpu_native.NAME, dawn.NAME)
VARIABLE = "WGPU_EP_LIBRARY"


def named(name: str) -> Library:
    """The library. Raises OptionError for a name of none, and DeviceError, with the command to run, when it cannot be opened."""
    if name not in NAMES:
        raise OptionError(f"there is no WebGPU library {cut(name)}; valid: {', '.join(NAMES)}")
    return dawn.library() if name == dawn.NAME else wgpu_native.library()


def base() -> Library:
    """The library that is always there, whose adapters are those of this machine."""
    return wgpu_native.library()


def beside(library: Library | None) -> str:
    """A library behind the name of a graphics API; "" for that which is always there."""
    return "" if library is None or library.name == wgpu_native.NAME else f", {library.name}"


def asked() -> str:
    """What WGPU_EP_LIBRARY says: a name, or `auto`. Raises OptionError for another text."""
    text = os.environ.get(VARIABLE, "").strip() or AUTO
    if text not in (AUTO, *NAMES):
        raise OptionError(
            f"{VARIABLE}={cut(text)}: there is no such WebGPU library; valid: {', '.join((AUTO, *NAMES))}"
        )
    return text


def usual() -> str:
    """The library of what is no session's, as memory that ONNX Runtime asks for before there is one."""
    return wgpu_native.NAME if asked() == AUTO else asked()
