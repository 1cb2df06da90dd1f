"""Which chips can run WebGPU here: one `Adapter` per physical chip, the one to use first.

In: what wgpu-native enumerates. Out: `adapters()` and, when that is empty, the reason in `adapters_problem()`.
Invariant: a chip that several graphics APIs show counts once, under its best API; enumeration prints nothing.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from ..errors import OptionError
from ..program.target import COMPONENT_STORES, F16, INT64, INTEGER_DOTS, SUBGROUP, TIMESTAMPS, Target
from .native import (
    BACKEND_OPENGL,
    FEATURES,
    LIMITS,
    PRIMARY_BACKENDS,
    ffi,
    instance,
    lib,
    new,
    quiet_display_probe,
    spec_name,
    text_of,
)
from .settings import DEFAULT, Settings

# The features that kernels may use, by their names in `program/target.py`. Requested wherever they exist.
USED_FEATURES = (F16, INT64, SUBGROUP, TIMESTAMPS)
BACKEND_ORDER = ("Vulkan", "Metal", "D3D12", "OpenGL")
_AT_MOST = 1024  # adapters, under all graphics APIs together, of the largest machine
TYPE_ORDER = ("DiscreteGPU", "IntegratedGPU", "Unknown", "CPU")


@dataclass(frozen=True)
class Adapter:
    """One physical chip under its best graphics API. Limits have WebGPU's names: `max-buffer-size`, in bytes."""

    index: int
    name: str
    vendor: str
    backend: str
    type: str
    driver: str
    vendor_id: int
    device_id: int
    features: frozenset[str]
    limits: Mapping[str, int] = field(hash=False)
    handle: Any = field(default=None, compare=False, repr=False)
    # The same chip under other graphics APIs.
    others: tuple[Adapter, ...] = field(default=(), compare=False, repr=False)

    def through(self, backend: str) -> Adapter:
        """The chip under the graphics API `backend` ("" is this one). Raises OptionError, naming the APIs there are."""
        views = {self.backend: self, **{other.backend: other for other in self.others}}
        if backend and backend not in views:
            raise OptionError(
                f"option 'dawnBackendType': {backend!r} does not reach the adapter {self.name!r} here;"
                f" it is reached through {' or '.join(views)}"
            )
        return replace(views[backend or self.backend], index=self.index)

    @property
    def software(self) -> bool:
        """Whether the adapter calculates on the CPU."""
        return self.type == "CPU"

    def target(self, settings: Settings = DEFAULT) -> Target:
        """What lowering may rely on: the limits and features that a device with `settings` is opened with."""
        limits = self.limits
        own = limits["max-storage-buffer-binding-size"]
        ours = {COMPONENT_STORES, INTEGER_DOTS} - ({INTEGER_DOTS} if self.software else set())
        return Target(
            name=f"{self.name} ({self.backend})",
            features=self.features.intersection(USED_FEATURES) | (ours if self.backend == "Vulkan" else set()),
            max_storage_buffers=min(limits["max-storage-buffers-per-shader-stage"], settings.storage_buffers),
            max_invocations=limits["max-compute-invocations-per-workgroup"],
            max_workgroup_storage=limits["max-compute-workgroup-storage-size"],
            max_binding_bytes=min(own, settings.binding_bytes or own),
            max_buffer_bytes=limits["max-buffer-size"],
            offset_alignment=max(256, limits["min-storage-buffer-offset-alignment"]),
            software=self.software,
            # Shipped choices alone keep loops within what software adapters run.
            tuning=() if self.software else settings.tuning,
            discrete=self.type == "DiscreteGPU",
        )


def _chip(adapter: Adapter) -> tuple[int, str]:
    """What two views of one chip have in common. Device ids differ between APIs (OpenGL has none), names hardly do."""
    name = re.sub(r"\(.*?\)|/.*$", " ", adapter.name.lower())  # "llvmpipe (LLVM 15.0.6)", "NVIDIA H200/PCIe/SSE2"
    words = re.sub(r"[^a-z0-9]+", " ", name.replace("(r)", "").replace("(tm)", "")).split()
    noise = {"vulkan", "opengl", "angle", "mesa", "direct3d", "metal", "graphics", "corporation"}
    return adapter.vendor_id, " ".join(word for word in words if word not in noise)


def _same_chip(one: Adapter, other: Adapter) -> bool:
    same_ids = one.device_id != 0 and (one.vendor_id, one.device_id) == (other.vendor_id, other.device_id)
    return same_ids or _chip(one) == _chip(other)


def unique(found: Iterable[Adapter]) -> tuple[Adapter, ...]:
    """One adapter per chip, hardware before software, discrete before integrated; `index` is the place in the result.

    Two equal cards under one API stay two: only views under different APIs are merged.
    """
    backend = {name: place for place, name in enumerate(BACKEND_ORDER)}
    kind = {name: place for place, name in enumerate(TYPE_ORDER)}
    by_backend = sorted(found, key=lambda adapter: backend.get(adapter.backend, len(backend)))
    kept: list[tuple[Adapter, list[Adapter]]] = []
    for adapter in by_backend:
        for best, views in kept:
            # Of two equal cards each has a view under each API.
            if _same_chip(best, adapter) and adapter.backend not in {best.backend, *(view.backend for view in views)}:
                views.append(adapter)
                break
        else:
            kept.append((adapter, []))
    kept.sort(key=lambda chip: kind.get(chip[0].type, len(kind)))
    return tuple(replace(best, index=index, others=tuple(views)) for index, (best, views) in enumerate(kept))


def _describe(handle: Any) -> Adapter:
    info = new("WGPUAdapterInfo *")
    lib.wgpuAdapterGetInfo(handle, info)
    backends = {
        lib.WGPUBackendType_Vulkan: "Vulkan",
        lib.WGPUBackendType_Metal: "Metal",
        lib.WGPUBackendType_D3D12: "D3D12",
        lib.WGPUBackendType_OpenGL: "OpenGL",
        lib.WGPUBackendType_OpenGLES: "OpenGL",
    }
    types = {
        lib.WGPUAdapterType_DiscreteGPU: "DiscreteGPU",
        lib.WGPUAdapterType_IntegratedGPU: "IntegratedGPU",
        lib.WGPUAdapterType_CPU: "CPU",
    }
    adapter = Adapter(
        index=0,
        name=text_of(info.device),
        vendor=text_of(info.vendor),
        backend=backends.get(info.backendType, "Unknown"),
        type=types.get(info.adapterType, "Unknown"),
        driver=text_of(info.description),
        vendor_id=int(info.vendorID),
        device_id=int(info.deviceID),
        features=_features(handle),
        limits=_limits(handle),
        handle=handle,
    )
    lib.wgpuAdapterInfoFreeMembers(info[0])
    return adapter


def _features(handle: Any) -> frozenset[str]:
    """The features that wgpu-native reports and the header names."""
    found = new("WGPUSupportedFeatures *")
    lib.wgpuAdapterGetFeatures(handle, found)
    known = {number: name for name, number in FEATURES.items()}
    names = frozenset(known[n] for n in ffi.unpack(found.features, found.featureCount) if n in known)
    lib.wgpuSupportedFeaturesFreeMembers(found[0])
    return names


def _limits(handle: Any) -> dict[str, int]:
    limits = new("WGPULimits *")
    lib.wgpuAdapterGetLimits(handle, limits)
    return {spec_name(key): getattr(limits, key) for key in LIMITS}


def _enumerate(backends: int) -> list[Adapter]:
    with quiet_display_probe():
        here = instance(backends)
        # To be told the count first would be to enumerate twice.
        handles = new("WGPUAdapter[]", _AT_MOST)
        count = lib.wgpuInstanceEnumerateAdapters(here, ffi.NULL, handles)
    return [_describe(handles[i]) for i in range(count)]


@cache
def adapters() -> tuple[Adapter, ...]:
    """The chips of this machine, the one to use first; empty when there is none (see `adapters_problem`)."""
    found = unique(_enumerate(PRIMARY_BACKENDS))
    if not found:
        # OpenGL only as a last resort, and only on hardware: where Mesa calculates on the CPU its Vulkan driver is
        # faster and complete, and comes with the same package.
        found = unique(adapter for adapter in _enumerate(BACKEND_OPENGL) if not adapter.software)
    return found


def adapters_problem() -> str | None:
    """Why `adapters()` is empty and what to do about it; None when there is an adapter."""
    if adapters():
        return None
    if sys.platform.startswith("linux"):
        try:
            ctypes.CDLL("libvulkan.so.1")
        except OSError:
            return (
                "no WebGPU adapter: the Vulkan loader libvulkan.so.1 is missing; install it with"
                " `apt-get install libvulkan1` and a driver (the GPU vendor's, or `apt-get install mesa-vulkan-drivers`"
                " for Intel, AMD and software rendering)"
            )
        return (
            "no WebGPU adapter: the Vulkan loader is present but no Vulkan driver answers; install the GPU vendor's"
            " driver, or `apt-get install mesa-vulkan-drivers` for Intel, AMD and software rendering"
        )
    api = "Metal" if sys.platform == "darwin" else "Direct3D 12 or Vulkan"
    return f"no WebGPU adapter: no driver offers {api}; install or update the GPU driver"
