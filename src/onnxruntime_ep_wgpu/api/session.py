"""`session()`. The modules that make sessions are imported while the driver works.

The driver first enumerates its adapters. If the cache has a compiled model, the driver then opens the device."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Unpack

from ..device.adapters import enumerated_in_background
from ..lazily import DeferredModule
from ..options.types import ProviderOptions
from ..runtime.progress import Progress as Progress

if TYPE_CHECKING:
    import onnxruntime as ort
else:
    ort = DeferredModule(lambda: import_module("onnxruntime"))


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
    """Creates an InferenceSession on WebGPU: `session("model.onnx", device="llvmpipe", validationMode="full")`.

    - `model`: the path of a model's file, or its bytes.
    - `device`: an `OrtEpDevice`, an index into `devices()`, a part of a device's name, or `"software"`. By default, the option
      adapterIndex selects the device, else it is the first one.
    - `wgpu_device`: the caller's `wgpu.GPUDevice` to run on. Kernels are compiled for its limits and features.
    - `sess_options`: used as it is, with the device and the free dimensions added. Later sessions may reuse it with the same
      device and dimensions, and any provider options.
    - `free_dimensions`: fixes input dimensions by name or denotation, {"batch": 1}, or by input and axis,
      {"x.shape[0]": 1}. This makes better kernels.
    - `on_progress`: called on this thread with a `Progress` for each part of the work and each step within one. An exception
      from it stops the work and is raised here.
    - `allow_cpu_only`: accept a model with no node on WebGPU.
    - All other arguments are provider options, as text or as Python values.

    Nodes that cannot run here run on the CPU. ONNX Runtime logs one warning with their number and the reasons, and `report()`
    lists them all. If no node can run here, UnsupportedError is raised with the reasons, unless `allow_cpu_only` is true or
    forceCpuNodeNames names all nodes. To refuse any node on the CPU, set ONNX Runtime's session configuration
    `session.disable_cpu_ep_fallback` in `sess_options`.

    Raises OptionError for a wrong option, DeviceError if there is no such device, and the error of the provider or of ONNX
    Runtime if the session cannot be created."""
    with enumerated_in_background():
        from .ahead import begun_ahead
    owned = wgpu_device is not None or sess_options is not None
    with begun_ahead(model, device, free_dimensions, options, owned) as ahead:
        from ..plugin import provider as provider  # imported now, as ONNX Runtime will call it
        from .sessions import make

        return make(
            model, device, wgpu_device, sess_options, free_dimensions, allow_cpu_only, on_progress, options, ahead
        )
