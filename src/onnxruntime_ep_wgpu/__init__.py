"""A WebGPU execution provider for ONNX Runtime, written in Python.

    import onnxruntime as ort, onnxruntime_ep_wgpu as webgpu_ep

    session = webgpu_ep.session("model.onnx")                        # or, with the API of ONNX Runtime itself:

    ort.register_execution_provider_library("webgpu_ep_registration", webgpu_ep.get_library_path())
    devices = [d for d in ort.get_ep_devices() if d.ep_name == webgpu_ep.get_ep_name()]

To select the provider by name, pass `PROVIDER`, "WgpuExecutionProvider". Before onnxruntime 1.32,
`providers=["WebGpuExecutionProvider"]` does not reach this package and gives a session on the CPU.

All modules are imported on first use, so importing this package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from .api.benchmark import Times as Times
    from .api.benchmark import benchmark as benchmark
    from .api.devices import devices as devices
    from .api.devices import register as register
    from .api.explaining import Explanation as Explanation
    from .api.explaining import explain as explain
    from .api.language.generate import Chat as Chat
    from .api.language.generate import LanguageModel as LanguageModel
    from .api.language.generate import generate as generate
    from .api.language.sampler import Sampling as Sampling
    from .api.precision import Precision as Precision
    from .api.profiling import Profile as Profile
    from .api.profiling import profile as profile
    from .api.reports import PipelineCount as PipelineCount
    from .api.reports import PipelineCounts as PipelineCounts
    from .api.reports import Report as Report
    from .api.reports import check as check
    from .api.reports import report as report
    from .api.session import Progress as Progress
    from .api.session import session as session
    from .api.sharing import DeviceBuffer as DeviceBuffer
    from .api.sharing import buffer_of as buffer_of
    from .api.sharing import device_options as device_options
    from .api.sharing import ort_value_from as ort_value_from
    from .api.sharing import wgpu_device_of as wgpu_device_of
    from .api.transformers_export import ExportedFolder as ExportedFolder
    from .api.transformers_export import export_transformers as export_transformers
    from .api.verify import Verification as Verification
    from .api.verify import verify as verify
    from .api.warmup import warmup as warmup
    from .api.web_export import Exported as Exported
    from .api.web_export import export as export
    from .errors import BatchError as BatchError
    from .errors import DeviceError as DeviceError
    from .errors import DeviceLostError as DeviceLostError
    from .errors import ForkError as ForkError
    from .errors import FreeSizeError as FreeSizeError
    from .errors import InputError as InputError
    from .errors import LimitError as LimitError
    from .errors import ModelChangedError as ModelChangedError
    from .errors import ModelError as ModelError
    from .errors import NonFiniteError as NonFiniteError
    from .errors import OptionError as OptionError
    from .errors import OutOfMemoryError as OutOfMemoryError
    from .errors import OutOfRangeError as OutOfRangeError
    from .errors import PlaceTakenError as PlaceTakenError
    from .errors import PoolClosedError as PoolClosedError
    from .errors import ProgramError as ProgramError
    from .errors import QueueFullError as QueueFullError
    from .errors import ShaderError as ShaderError
    from .errors import UnsupportedError as UnsupportedError
    from .errors import WgpuEpError as WgpuEpError
    from .errors import WriteError as WriteError
    from .names import PROVIDER as PROVIDER
    from .options import set_default_options as set_default_options
    from .options.types import ProviderOptions as ProviderOptions
    from .registration import ProviderNameWarning as ProviderNameWarning

# The same names for lazy imports at run time. A test compares the two lists.
_PLACES = {
    name: module
    for module, names in {
        "errors": "BatchError DeviceError DeviceLostError ForkError FreeSizeError InputError LimitError ModelChangedError"
        " ModelError NonFiniteError OptionError OutOfMemoryError OutOfRangeError PlaceTakenError"
        " PoolClosedError ProgramError QueueFullError ShaderError UnsupportedError WgpuEpError WriteError",
        "names": "PROVIDER",
        "registration": "ProviderNameWarning",
        "options.types": "ProviderOptions",
        "options": "set_default_options",
        "api.benchmark": "Times benchmark",
        "api.devices": "devices register",
        "api.explaining": "Explanation explain",
        "api.language.generate": "Chat LanguageModel generate",
        "api.language.sampler": "Sampling",
        "api.precision": "Precision",
        "api.profiling": "Profile profile",
        "api.reports": "PipelineCount PipelineCounts Report check report",
        "api.session": "Progress session",
        "api.sharing": "DeviceBuffer buffer_of device_options ort_value_from wgpu_device_of",
        "api.transformers_export": "ExportedFolder export_transformers",
        "api.verify": "Verification verify",
        "api.warmup": "warmup",
        "api.web_export": "Exported export",
    }.items()
    for name in names.split()
}
__all__ = sorted([*_PLACES, "get_ep_name", "get_ep_names", "get_library_path"])


def get_library_path() -> str:
    """Returns the absolute path of the provider library, for `onnxruntime.register_execution_provider_library`.

    Raises FileNotFoundError if the library was not built."""
    from .platform import library_path

    return library_path()


def get_ep_name() -> str:
    """Returns the provider's name as in `OrtEpDevice.ep_name`. To select it by name in InferenceSession, pass `PROVIDER`."""
    from .names import EP_NAME

    return EP_NAME


def get_ep_names() -> list[str]:
    """Returns the provider's two names: EP_NAME and `PROVIDER`.

    `PROVIDER` is the one for `providers=[...]`, because ONNX Runtime before 1.32 reserves EP_NAME for its own provider."""
    from .names import NAMES

    return list(NAMES)


if not TYPE_CHECKING:  # type checkers use the imports above, and report any other name

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "PROVIDER":
            from .registration import noted

            noted.knows_the_name = True
        from .platform import is_browser

        if _PLACES[name].startswith("api.") and is_browser():
            raise ImportError(
                f"{__name__}.{name} needs ONNX Runtime, which Pyodide lacks: {__name__}.web runs what was exported, as"
                ' `await InferenceSession.create("model.onnx.wgpu/")`'
            )
        value = globals()[name] = getattr(import_module(f".{_PLACES[name]}", __name__), name)
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
