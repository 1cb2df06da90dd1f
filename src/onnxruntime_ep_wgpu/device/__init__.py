"""The device layer: the only code that touches a WebGPU library.

In the order data flows: `webgpu/` (the libraries, behind one protocol), `settings` (what a user chooses), `display`
(drivers that look for one), `adapters` (the chips that are there), `choice` (which library their sessions take),
`matrix_refusals` and `matrix_probe` (which matrix units are right), `request` (a device from an adapter), `sizes`,
`buffers` (memory), `cache` (free memory), `pipelines` (compiled kernels and their bindings), `parallel` (jobs on
several threads), `native` (C code that submits, waits and reads), `encoding` (dispatch lists as command buffers), `mapped` (memory
that the host maps), `readback` (memory to the host), `uploads` (much memory from it), `clock` and `timing` (when each
dispatch ran), `scopes` (errors of one piece of work), `debugger` (captures for RenderDoc and others), `turn` (what
may not be submitted in between), `queue` (what is submitted, and whether the device is lost), `work` (what C code
submits), `chain` (works and a small readback as one submission), `rounds` (iterations that are submitted together),
`stepping` (their copies as dispatches), `memory` (buffers, and bytes in and out), `device` (all of it, for the rest of
the package), `contexts` (which sessions share a device), `borrowed` and `wgpu_py` (devices of the caller, made through
wgpu-py), `peak` (what an adapter can do at best).
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
from .webgpu.owned import depend, let_go

if TYPE_CHECKING:
    from .cache import BufferCache, CacheCounters
    from .device import Device, Preparing
    from .encoding import BoundRecording, Copy, Recording
    from .pipelines import BindGroup, Pipeline
    from .turn import Turn
    from .work import Submission, Work

# What only an open device needs; programs that list devices do without it.
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
    "let_go",
    "library_named",
    "open_device",
]
