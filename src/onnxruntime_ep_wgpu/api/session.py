"""Sessions in one line. While a driver looks for its chips, all is imported that makes and runs sessions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Unpack

import onnxruntime as ort

from ..device.adapters import looked_for
from ..options.types import ProviderOptions
from ..runtime.progress import Progress as Progress


def session(
    model: str | os.PathLike[str] | bytes,
    *,
    device: Any = None,
    wgpu_device: Any = None,
    sess_options: Any = None,
    free_dimensions: Mapping[str, int] | None = None,
    allow_cpu_only: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    **options: Unpack[ProviderOptions],
) -> ort.InferenceSession:
    """An InferenceSession on WebGPU: `session("model.onnx", device="llvmpipe", validationMode="full")`.

    `device` is an `OrtEpDevice`, a place in `devices()`, a part of a device's name or `"software"`; by default the one
    that the option adapterIndex names, else the first. `wgpu_device` is a `wgpu.GPUDevice` of the caller to run on; its
    limits and features are what kernels are compiled for. `sess_options` is used as it is, with the device and the free
    dimensions added; later sessions may use it again with the same ones, and any provider options.
    `free_dimensions` fixes dimensions of inputs by name or denotation, {"batch": 1}, or by input and axis,
    {"x.shape[0]": 1}, which makes better kernels. `on_progress` is called on this thread with a `Progress`, for each part of the
    work and each step within one; what it raises ends the work and is raised here. The other arguments are provider options, as
    text or as Python values.

    Nodes that cannot run here run on the CPU: ONNX Runtime's log has one warning, with how many and why, and `report()` has
    them all. When no node can run here, UnsupportedError is raised with the reasons, unless `allow_cpu_only` is true or
    forceCpuNodeNames names them all. (To refuse any node on the CPU, set ONNX Runtime's own session configuration
    `session.disable_cpu_ep_fallback` in `sess_options`.) Raises OptionError for a wrong option, DeviceError when there is no
    such device, and what the provider or ONNX Runtime raised when the session cannot be made.
    """
    with looked_for():
        from ..plugin import provider as provider  # what ONNX Runtime will call
        from .sessions import make
    return make(model, device, wgpu_device, sess_options, free_dimensions, allow_cpu_only, on_progress, options)
