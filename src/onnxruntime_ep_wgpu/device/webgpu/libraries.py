"""A WebGPU library by its name, and the default library of a process.

In: WGPU_EP_LIBRARY. Out: `named()`, `requested()`, and the package of the library with matrix units. Invariants: `BASE` is always
installed, and wgpu-py uses it too. Nothing of another library is loaded before it is requested. No other module imports an
implementation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from ...errors import OptionError, cut
from . import dawn, wgpu_native
from .api import Library

AUTO = "auto"
VARIABLE = "WGPU_EP_LIBRARY"
_OPENERS: Mapping[str, Callable[[], Library]] = {wgpu_native.NAME: wgpu_native.library, dawn.NAME: dawn.library}
NAMES = tuple(_OPENERS)
BASE = wgpu_native.NAME
MATRIX_LIBRARY, MATRIX_PACKAGE = dawn.NAME, dawn.PACKAGE
"""The library with an interface to matrix units, and the Python package that contains it."""


def named(name: str) -> Library:
    """Returns a library. Raises OptionError for an unknown name, and DeviceError, with the command to run, if it cannot open."""
    if name not in NAMES:
        raise OptionError(f"there is no WebGPU library {cut(name)}; valid: {', '.join(NAMES)}")
    return _OPENERS[name]()


def matrix_library_installed() -> bool:
    """Whether the library with matrix units is installed. Does not load it."""
    return dawn.installed()


def matrix_library_version() -> str:
    """Returns the version of the package with matrix units. Does not load it."""
    return dawn.installed_version()


def base() -> Library:
    """Returns the library that is always installed. It enumerates the adapters of the machine."""
    return named(BASE)


def name_suffix(library: Library | None) -> str:
    """Returns the suffix with a library's name for the name of a graphics API; "" for the base library."""
    return "" if library is None or library.name == BASE else f", {library.name}"


def requested() -> str:
    """Returns the value of WGPU_EP_LIBRARY: a name, or `auto`. Raises OptionError for any other text."""
    text = os.environ.get(VARIABLE, "").strip() or AUTO
    if text not in (AUTO, *NAMES):
        raise OptionError(
            f"{VARIABLE}={cut(text)}: there is no such WebGPU library; valid: {', '.join((AUTO, *NAMES))}"
        )
    return text


def setting(name: str) -> str:
    """Returns the text that sets a library where the current one was set: in the environment or in the options."""
    return f"{VARIABLE if requested() != AUTO else 'webgpuLibrary'}={name}"


def default_name() -> str:
    """Returns the library for work outside sessions, such as memory that ONNX Runtime requests before the first one."""
    return BASE if requested() == AUTO else requested()
