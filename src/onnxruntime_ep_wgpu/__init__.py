"""A WebGPU execution provider for ONNX Runtime, written in Python.

    import onnxruntime as ort, onnxruntime_ep_wgpu as webgpu_ep

    session = webgpu_ep.session("model.onnx")                        # or, in ONNX Runtime's own words:

    ort.register_execution_provider_library("webgpu_ep_registration", webgpu_ep.get_library_path())
    devices = [d for d in ort.get_ep_devices() if d.ep_name == webgpu_ep.get_ep_name()]

Everything is imported when first used: importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .errors import (
        DeviceError,
        DeviceLostError,
        InputError,
        LimitError,
        ModelChangedError,
        NonFiniteError,
        OptionError,
        OutOfMemoryError,
        ProgramError,
        ShaderError,
        UnsupportedError,
        WgpuEpError,
    )
    from .options import set_default_options
    from .sessions import Report, devices, register, report, session
    from .sharing import DeviceBuffer, buffer_of, device_options, ort_value_from, wgpu_device_of

_PLACES = {
    "DeviceBuffer": "sharing",
    "DeviceError": "errors",
    "DeviceLostError": "errors",
    "InputError": "errors",
    "LimitError": "errors",
    "ModelChangedError": "errors",
    "NonFiniteError": "errors",
    "OptionError": "errors",
    "OutOfMemoryError": "errors",
    "ProgramError": "errors",
    "Report": "sessions",
    "ShaderError": "errors",
    "UnsupportedError": "errors",
    "WgpuEpError": "errors",
    "buffer_of": "sharing",
    "device_options": "sharing",
    "devices": "sessions",
    "ort_value_from": "sharing",
    "register": "sessions",
    "report": "sessions",
    "session": "sessions",
    "set_default_options": "options",
    "wgpu_device_of": "sharing",
}
__all__ = [
    "DeviceBuffer",
    "DeviceError",
    "DeviceLostError",
    "InputError",
    "LimitError",
    "ModelChangedError",
    "NonFiniteError",
    "OptionError",
    "OutOfMemoryError",
    "ProgramError",
    "Report",
    "ShaderError",
    "UnsupportedError",
    "WgpuEpError",
    "buffer_of",
    "device_options",
    "devices",
    "get_ep_name",
    "get_ep_names",
    "get_library_path",
    "ort_value_from",
    "register",
    "report",
    "session",
    "set_default_options",
    "wgpu_device_of",
]


def get_library_path() -> str:
    """The provider library, for `onnxruntime.register_execution_provider_library`. An absolute path."""
    from .platform import library_path

    return str(library_path())


def get_ep_name() -> str:
    """The provider's name, as in `OrtEpDevice.ep_name`."""
    return "WebGpuExecutionProvider"


def get_ep_names() -> list[str]:
    """The provider's name, and the alias for `providers=[...]`, where ONNX Runtime keeps the first for itself."""
    return [get_ep_name(), "WgpuExecutionProvider"]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_PLACES[name]}", __name__), name)
