"""Registers the provider library with ONNX Runtime, and lists its devices.

In: nothing. Out: ONNX Runtime's `OrtEpDevice`s of this provider. Invariant: this imports no compiler, no options and no ONNX.
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
    """Registers the provider library with ONNX Runtime under `name`. Does nothing if it is already registered.

    Afterwards InferenceSession accepts `providers=[PROVIDER]`. Raises DeviceError, with installation advice, if there is no
    device.
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
            # It is registered but has no device.
            if "already registered" not in str(error):
                raise


def devices() -> list[Any]:
    """Registers the library and returns its devices as ONNX Runtime's `OrtEpDevice`, hardware first.

    Raises DeviceError, with installation advice, if there is none.
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
    """Returns the devices of this provider that ONNX Runtime lists, without duplicates. The list is empty before `register`."""

    unique: dict[str, Any] = {}
    for device in ort.get_ep_devices():
        if device.ep_name == EP_NAME and device.ep_vendor == VENDOR:
            unique.setdefault(device.ep_metadata["adapter"], device)
    return list(unique.values())
