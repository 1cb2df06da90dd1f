"""The device layer: the only code that calls a WebGPU library.

In the order data flows:

- `webgpu/`: the libraries, behind one protocol.
- `settings`: the user's choices; `display`: drivers that look for a display.
- `adapters`: the chips of the machine; `choice`: the library for their sessions.
- `matrix_refusals` and `matrix_probe`: which matrix units give correct products.
- `request`: a device from an adapter.
- `sizes`; `buffers`: memory; `cache`: free buffers.
- `pipelines`: compiled kernels, layouts and bind groups; `parallel`: jobs on several threads.
- `native`: C code that submits, waits and reads; `encoding`: dispatch lists as command buffers.
- `mapped`: buffers mapped for the host; `readback`: device to host; `uploads`: large transfers from host to device.
- `clock` and `timing`: GPU timestamps of dispatches.
- `scopes`: error scopes; `debugger`: captures for RenderDoc and others.
- `turn`: a lock against interleaved submissions; `queue`: submission and device loss; `work`: submission from C code.
- `chain`: several works and a small readback as one submission.
- `rounds`: iterations in one submission; `stepping`: their copies as dispatches.
- `memory`: buffers, uploads and downloads; `device`: the interface for the rest of the package.
- `contexts`: which sessions share a device; `borrowed` and `wgpu_py`: devices that the caller made through wgpu-py.
- `peak`: the peak performance of an adapter.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .adapters import Adapter, adapters, adapters_problem
from .buffers import Buffer, BufferBinding, Place
from .contexts import Context, context_of, open_device
from .settings import Settings
from .webgpu.libraries import named as library_named
from .webgpu.messages import forget_errors
from .webgpu.owned import depend, release_dead

if TYPE_CHECKING:
    from .cache import BufferCache, CacheCounters
    from .device import Device, Preparing
    from .encoding import BoundRecording, Copy, Recording
    from .pipelines import BindGroup, Pipeline
    from .turn import Turn
    from .work import Submission, Work

# Needs an open device. Programs that only list devices do not import these modules.
_LATER = {
    "BufferCache": "cache",
    "CacheCounters": "cache",
    "Device": "device",
    "Preparing": "device",
    "BoundRecording": "encoding",
    "Copy": "encoding",
    "Recording": "encoding",
    "BindGroup": "pipelines",
    "Pipeline": "pipelines",
    "Turn": "turn",
    "Submission": "work",
    "Work": "work",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f".{_LATER[name]}", __name__), name)
        return value


__all__ = [
    "Adapter",
    "BindGroup",
    "BoundRecording",
    "Buffer",
    "BufferBinding",
    "BufferCache",
    "CacheCounters",
    "Context",
    "Copy",
    "Device",
    "Pipeline",
    "Place",
    "Preparing",
    "Recording",
    "Settings",
    "Submission",
    "Turn",
    "Work",
    "adapters",
    "adapters_problem",
    "context_of",
    "depend",
    "forget_errors",
    "library_named",
    "open_device",
    "release_dead",
]
