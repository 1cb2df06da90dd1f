"""The library registered with ONNX Runtime, and the devices that it shows there.

In: nothing. Out: ONNX Runtime's `OrtEpDevice`s of this provider. Invariant: no compiler, no options and no ONNX are loaded for it.
"""

from __future__ import annotations

import threading
from typing import Any

import onnxruntime as ort

from .. import process
from ..errors import DeviceError
from ..names import EP_NAME, REGISTRATION, VENDOR
from ..platform import library_path
from ..registration import noted

_register_lock = threading.Lock()


def register(name: str = REGISTRATION) -> None:
    """Registers the provider library with ONNX Runtime under `name`, unless it is registered.

    Then InferenceSession takes `providers=[PROVIDER]`. Raises DeviceError when there is no device, saying what to install.
    """
    with noted.passing_no_name():
        _require(name)
    noted.start()


def _register(name: str) -> None:
    process.check_not_forked()
    with _register_lock:
        if registered():
            return
        try:
            ort.register_execution_provider_library(name, library_path())
        except Exception as error:
            # Registered, but without a device to show for it.
            if "already registered" not in str(error):
                raise


def devices() -> list[Any]:
    """The devices that sessions can run on, hardware first: ONNX Runtime's `OrtEpDevice`. Registers the library.

    Raises DeviceError when there is none, saying what to install.
    """
    with noted.passing_no_name():
        return _require(REGISTRATION)


def _require(name: str) -> list[Any]:
    _register(name)
    found = registered()
    if not found:
        from ..device import adapters_problem

        raise DeviceError(adapters_problem() or "ONNX Runtime shows no device of this provider")
    return found


def registered() -> list[Any]:
    """The devices of this provider that ONNX Runtime knows, each once."""

    unique: dict[str, Any] = {}
    for device in ort.get_ep_devices():
        if device.ep_name == EP_NAME and device.ep_vendor == VENDOR:
            unique.setdefault(device.ep_metadata["adapter"], device)
    return list(unique.values())
