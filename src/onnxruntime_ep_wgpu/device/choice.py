"""The library for sessions on an adapter if the options do not name one.

In: an adapter, and the operand types of a model's products. Out: `LibraryChoice`, a name and the reason. Invariant: no error is
raised; the fallback is the library that is always installed.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import NamedTuple

from ..errors import WgpuEpError
from ..program.target import MatrixUnit
from .adapters import Adapter
from .webgpu import libraries


class LibraryChoice(NamedTuple):
    """The name of a library, and the reason for its choice."""

    name: str
    why: str


_NAMES = {"f16": "f16", "i8": "8 bits"}
_ANY = " or ".join(_NAMES.values())


def automatic(adapter: Adapter, types: Callable[[], Set[str]] | None = None) -> LibraryChoice:
    """Chooses the library with matrix units if it is installed and the adapter has units for the model's products, otherwise the
    base library.

    `types` returns the operand types of these products: f16, i8. The first library is loaded for no other model. Without
    `types`, no model is loaded yet.
    """
    base = libraries.base().name
    if not libraries.matrix_library_installed():
        return LibraryChoice(base, f"{libraries.MATRIX_PACKAGE} is not installed")
    if adapter.software:
        return LibraryChoice(base, "a software adapter has no matrix units")
    if types is None:
        return LibraryChoice(
            base, f"{libraries.MATRIX_LIBRARY} for models of {_ANY}, where the adapter has matrix units"
        )
    if not (wanted := types()):
        return LibraryChoice(base, f"the model has no products of {_ANY}")
    about = " or ".join(name for it, name in _NAMES.items() if it in wanted)
    try:
        view = adapter.through("", libraries.MATRIX_LIBRARY)
        units = [it for it in view.matrices if it.is_used and it.operand in wanted]
        right = [it for it in checked_matrices(view) if it in units] if units else []
    except WgpuEpError as error:
        return LibraryChoice(base, str(error))
    if not units:
        return LibraryChoice(base, f"the adapter has no matrix units for {about}")
    if not right:
        return LibraryChoice(
            base, f"a probe refused the adapter's matrix units for {about}; wgpu-ep info shows the reason"
        )
    return LibraryChoice(
        libraries.MATRIX_LIBRARY, f"the adapter has matrix units and the model has products of {about}"
    )


def checked_matrices(adapter: Adapter) -> tuple[MatrixUnit, ...]:
    """Returns the adapter's matrix units without those that gave wrong products.

    Opens a device to find out, once per driver. Raises DeviceError.
    """
    if not adapter.matrices:
        return ()
    from .matrix_probe import probe  # imports the modules that need a device

    wrong = probe(adapter)
    return tuple(it for it in adapter.matrices if str(it) not in wrong)
