"""The two functions that ONNX Runtime looks up in the provider library. The shim (csrc/shim.c) calls them.

In: an OrtApiBase, once per registration. Out: two factories, one per provider name. Registrations, and copies of ONNX Runtime
in one process, share only the devices and their address space.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from .._ort import ffi
from ..names import NAMES
from ..registration import noted
from ..version import VERSION
from . import forked_sessions as forked_sessions
from .abi import RUNTIME_EXCEPTION, Logger, Ort, OrtError, address, text
from .callbacks import export, failed, held
from .factory import Factory


def _create(registration: Any, base: Any, logger: Any, out: Any, capacity: int, out_count: Any) -> None:
    out_count[0] = 0
    ort = Ort(base)
    if capacity < len(NAMES):
        raise OrtError(f"room for {capacity} factories, {len(NAMES)} are needed")
    noted.start()
    log = Logger(ort, logger)
    made = [Factory(ort, name, VERSION, log, text(registration)) for name in NAMES]
    out_count[0] = len(made)
    Factory.pass_all_to_ort(made, out)


def _not_created(error: BaseException, _registration: Any, arguments: tuple[Any, ...]) -> Any:
    """Returns a status of any ONNX Runtime, even one too old for `Ort`: every version has CreateStatus in its first table."""
    base = arguments[0]
    try:
        return failed(Ort(base), error)
    except OrtError:
        return base.GetApi(1).CreateStatus(RUNTIME_EXCEPTION, ffi.new("char[]", str(error).encode()))


def _release(factory: Any) -> None:
    released = held.get(address(factory))
    if released is not None:
        released.release()


# The shim reads these addresses.
CREATE_EP_FACTORIES = export(
    "CreateEpFactories", lambda registration: partial(_create, registration), _not_created, repeatable=True
)
RELEASE_EP_FACTORY = export("ReleaseEpFactory", lambda factory: partial(_release, factory), repeatable=True)
