"""The device layer: the only code that touches wgpu.

In the order data flows: `native` (the wgpu-native library, its errors and callbacks), `adapters` (which chips are there),
`buffers` (memory), `pipelines` (compiled kernels and their bindings), `device` (upload, submit, download).
"""

from __future__ import annotations

from .adapters import Adapter, adapters, adapters_problem
from .buffers import Buffer
from .device import Device, open_device
from .pipelines import BindGroup, Pipeline

__all__ = ["Adapter", "BindGroup", "Buffer", "Device", "Pipeline", "adapters", "adapters_problem", "open_device"]
