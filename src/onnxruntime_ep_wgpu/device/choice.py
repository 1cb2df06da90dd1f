"""Which library the sessions of an adapter take where nobody asks for one.

In: an adapter, and whether a model's products are of f16. Out: `LibraryChoice`, a name and the reason. Invariant: no error; where
anything speaks against another library, it is the one that is always there.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import NamedTuple

from ..errors import WgpuEpError
from .adapters import Adapter
from .webgpu import dawn, libraries

# Whether `auto` may take another library for its matrix units. Not before models of real sizes have been measured with both.
MATRIX_KERNELS = False


class LibraryChoice(NamedTuple):
    """The name of a library, and why that one."""

    name: str
    why: str


def automatic(adapter: Adapter, halves: Callable[[], bool]) -> LibraryChoice:
    """Dawn, where it is installed, the adapter multiplies matrices of f16 into f32, and the products of the model are of f16, which
    `halves` says; else wgpu-native."""
    base = libraries.base().name
    if not MATRIX_KERNELS:
        return LibraryChoice(base, "auto takes no other library yet")
    if importlib.util.find_spec(dawn.PACKAGE) is None:
        return LibraryChoice(base, f"{dawn.PACKAGE} is not installed")
    try:
        units = adapter.through("", dawn.NAME).matrices
    except WgpuEpError as error:
        return LibraryChoice(base, str(error))
    if not any((it.operand, it.result) == ("f16", "f32") for it in units):
        return LibraryChoice(base, "the adapter has no matrix units for f16")
    if not halves():
        return LibraryChoice(base, "the model has no products of f16")
    return LibraryChoice(dawn.NAME, "the adapter has matrix units and the model has products of f16")
