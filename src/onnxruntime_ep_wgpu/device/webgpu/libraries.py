"""A WebGPU library by its name, and the default library of a process.

In: WGPU_EP_LIBRARY. Out: `named()`, `requested()`. Invariants: `wgpu-native` is always installed. Nothing of Dawn is loaded
before it is requested.
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
    """Returns a library. Raises OptionError for an unknown name, and DeviceError, with the command to run, if it cannot open."""
    if name not in NAMES:
        raise OptionError(f"there is no WebGPU library {cut(name)}; valid: {', '.join(NAMES)}")
    return dawn.library() if name == dawn.NAME else wgpu_native.library()


def base() -> Library:
    """Returns the library that is always installed. It enumerates the adapters of the machine."""
    return wgpu_native.library()


def name_suffix(library: Library | None) -> str:
    """Returns the suffix with a library's name for the name of a graphics API; "" for the base library."""
    return "" if library is None or library.name == wgpu_native.NAME else f", {library.name}"


def requested() -> str:
    """Returns the value of WGPU_EP_LIBRARY: a name, or `auto`. Raises OptionError for any other text."""
    text = os.environ.get(VARIABLE, "").strip() or AUTO
    if text not in (AUTO, *NAMES):
        raise OptionError(
            f"{VARIABLE}={cut(text)}: there is no such WebGPU library; valid: {', '.join((AUTO, *NAMES))}"
        )
    return text


def default_name() -> str:
    """Returns the library for work outside sessions, such as memory that ONNX Runtime requests before the first one."""
    return wgpu_native.NAME if requested() == AUTO else requested()
