"""The two functions that ONNX Runtime looks up in the provider library, behind the shim (csrc/shim.c).

In: an OrtApiBase, once per registration. Out: two factories, one per provider name. Nothing is shared between
registrations or between copies of ONNX Runtime in one process but the devices and their address space.
"""

from __future__ import annotations

from typing import Any

from .. import __version__
from .._ort import ffi
from ..names import NAMES, registering
from . import forked as forked
from .abi import Logger, Ort, OrtError, address, text
from .callbacks import export, failed, held
from .factory import Factory


def _create(registration: Any, base: Any, logger: Any, out: Any, capacity: int, out_count: Any) -> Any:
    ort: Ort | None = None
    try:
        out_count[0] = 0
        ort = Ort(base)
        if capacity < len(NAMES):
            raise OrtError(f"room for {capacity} factories, {len(NAMES)} are needed")
        registering()
        log = Logger(ort, logger)
        for place, name in enumerate(NAMES):
            Factory(ort, name, __version__, log, text(registration)).hand_out(out, place)
        out_count[0] = len(NAMES)
        return ffi.NULL
    except BaseException as error:
        return failed(ort, error) if ort is not None else _status_of(base, error)


def _status_of(base: Any, error: BaseException) -> Any:
    """A status from an ONNX Runtime that is too old for `Ort`; every version has the first table's CreateStatus."""
    return base.GetApi(1).CreateStatus(6, ffi.new("char[]", str(error).encode()))


def _release(factory: Any) -> Any:
    released = held.get(address(factory))
    if released is not None:
        released.release()
    return ffi.NULL


# The shim reads these addresses.
CREATE_EP_FACTORIES = export("CreateEpFactories", _create)
RELEASE_EP_FACTORY = export("ReleaseEpFactory", _release)
