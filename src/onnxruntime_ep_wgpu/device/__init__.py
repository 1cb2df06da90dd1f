"""The device layer: the only code that touches wgpu.

In the order data flows: `library` (wgpu-native's file and functions), `native` (its errors and callbacks), `owned` (what it
made and Python owns), `settings` (what a user chooses), `adapters` (the chips that are there), `request` (a device from an
adapter), `sizes`, `buffers` (memory), `cache` (free memory), `pipelines` (compiled kernels and their bindings), `parallel`
(jobs on several threads), `encoding` (dispatch lists as command buffers), `readback` (memory to the host), `clock` and
`timing` (when each dispatch ran), `scopes` (errors of one piece of work), `debugger` (captures for RenderDoc and others),
`queue` (what is submitted, and whether the device is lost), `memory` (buffers, and bytes in and out), `device` (all of it, for
the rest of the package), `contexts` (which sessions share a device).
"""

from __future__ import annotations

from .adapters import Adapter, adapters, adapters_problem
from .buffers import Buffer, BufferBinding, Place
from .cache import BufferCache, CacheCounters
from .contexts import Context, context_of, open_device
from .device import Device
from .encoding import Bound, Copy, Recording
from .library import version as native_version
from .owned import depend, let_go
from .pipelines import BindGroup, Pipeline
from .settings import Settings

__all__ = [
    "Adapter",
    "BindGroup",
    "Bound",
    "Buffer",
    "BufferBinding",
    "BufferCache",
    "CacheCounters",
    "Context",
    "Copy",
    "Device",
    "Pipeline",
    "Place",
    "Recording",
    "Settings",
    "adapters",
    "adapters_problem",
    "context_of",
    "depend",
    "let_go",
    "native_version",
    "open_device",
]
