"""Which library the sessions of an adapter take where nobody asks for one.

In: an adapter, and whether a model's products are of f16. Out: `LibraryChoice`, a name and the reason. Invariant: no error; where
anything speaks against another library, it is the one that is always there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..errors import WgpuEpError
from ..program.target import MatrixUnit
from .adapters import Adapter
from .webgpu import dawn, libraries


class LibraryChoice(NamedTuple):
    """The name of a library, and why that one."""

    name: str
    why: str


def automatic(adapter: Adapter, halves: Callable[[], bool] | None = None) -> LibraryChoice:
    """Dawn, where it is installed, the adapter multiplies matrices of f16 into f32, and the products of the model are of f16, which
    `halves` says; else wgpu-native. Dawn is loaded for no other model. Without `halves` no model is known yet."""
    base = libraries.base().name
    if not dawn.installed():
        return LibraryChoice(base, f"{dawn.PACKAGE} is not installed")
    if adapter.software:
        return LibraryChoice(base, "a software adapter has no matrix units")
    if halves is None:
        return LibraryChoice(base, "dawn for models of f16, where the adapter has matrix units")
    if not halves():
        return LibraryChoice(base, "the model has no products of f16")
    try:
        view = adapter.through("", dawn.NAME)
        units = [it for it in view.matrices if it.multiplies_halves]
        right = [it for it in checked_matrices(view) if it.multiplies_halves] if units else []
    except WgpuEpError as error:
        return LibraryChoice(base, str(error))
    if not units:
        return LibraryChoice(base, "the adapter has no matrix units for f16")
    if not right:
        return LibraryChoice(base, "a probe refused the adapter's matrix units for f16; wgpu-ep info says why")
    return LibraryChoice(dawn.NAME, "the adapter has matrix units and the model has products of f16")


def checked_matrices(adapter: Adapter) -> tuple[MatrixUnit, ...]:
    """The adapter's matrix units without those that gave wrong products; opens a device to find out, once per driver. Raises
    DeviceError."""
    if not adapter.matrices:
        return ()
    from .matrix_probe import probe  # with all that works on a device

    wrong = probe(adapter)
    return tuple(it for it in adapter.matrices if str(it) not in wrong)
