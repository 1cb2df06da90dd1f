"""The chips that can run WebGPU on this machine: one `Adapter` per physical chip, in order of preference.

In: the adapters that libraries enumerate. Out: `adapters()`, and the reason in `adapters_problem()` if there are none.
Invariants: a chip that several graphics APIs show counts once, under its best API. Enumeration prints nothing.
"""

from __future__ import annotations

import ctypes
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import field, replace
from functools import cache
from typing import Any

from .. import process
from ..errors import DeviceError, OptionError
from ..program.target import COMPONENT_STORES, INTEGER_DOTS, SUBGROUP_MATRIX, MatrixUnit, Target
from ..records import dataclass
from ..threads import start_ahead
from .display import quiet_display_probe
from .matrix_refusals import recall
from .settings import DEFAULT, Settings
from .webgpu import libraries
from .webgpu.api import Library
from .webgpu.header import LIMITS, constant, ffi, new, spec_name, text_of

BACKEND_ORDER = ("Vulkan", "Metal", "D3D12", "OpenGL")
TYPE_ORDER = ("DiscreteGPU", "IntegratedGPU", "Unknown", "CPU")


@dataclass(frozen=True)
class Adapter:
    """One physical chip under its best graphics API. Limits have WebGPU's names, such as `max-buffer-size`, in bytes."""

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
    # The units that the driver lists. `choice.checked_matrices` returns those that compute correctly.
    matrices: tuple[MatrixUnit, ...] = ()
    # The library that enumerated the adapter, and the library's handle.
    library: Library = field(default=None, compare=False, repr=False)  # type: ignore[assignment]
    handle: Any = field(default=None, compare=False, repr=False)
    # The same chip under other graphics APIs.
    others: tuple[Adapter, ...] = field(default=(), compare=False, repr=False)

    def through(self, backend: str, library: str = "") -> Adapter:
        """Returns the chip under the graphics API `backend`, as enumerated by `library`. "" means the current one.

        Raises OptionError with the available APIs, and DeviceError if the library does not list the chip or cannot be opened.
        """
        if library and library != self.library.name:
            return replace(self._in_library(library).through(backend), index=self.index, name=self.name)
        views = {self.backend: self, **{other.backend: other for other in self.others}}
        if backend and backend not in views:
            raise OptionError(
                f"option 'dawnBackendType': {backend!r} does not reach the adapter {self.name!r} here;"
                f" it is reached through {' or '.join(views)}"
            )
        return replace(views[backend or self.backend], index=self.index)

    def _in_library(self, library: str) -> Adapter:
        """Returns the same chip as another library lists it. Equal chips are matched by their order."""
        place = [it.index for it in adapters() if _same_chip(it, self)].index(self.index)
        found = [it for it in _adapters_of(library) if _same_chip(it, self)]
        if place >= len(found):
            names = ", ".join(repr(it.name) for it in _adapters_of(library)) or "none"
            raise DeviceError(
                f"the library {library!r} cannot use the adapter {self.name!r}: its driver ({self.driver or self.backend}) lacks"
                f" what that library needs; it can use {names}. Set {libraries.setting(libraries.BASE)}, or update the driver"
            )
        return found[place]

    @property
    def software(self) -> bool:
        """Whether the adapter runs on the CPU."""
        return self.type == "CPU"

    @property
    def refused_matrices(self) -> str:
        """The matrix units that gave wrong products, with reasons; "" if none is known. Probes nothing and loads no library."""
        known = {} if self.software or not libraries.matrix_library_installed() else recall(self.probed_by)
        return "; ".join(f"{unit}: {why}" for unit, why in (known or {}).items())

    @property
    def probed_by(self) -> tuple[str, ...]:
        """The inputs of a probe of matrix units: the chip as the base library lists it, and the versions of the libraries."""
        seen = adapters()
        base = seen[self.index] if self.index < len(seen) else self
        chip = (base.name, str(base.vendor_id), str(base.device_id), base.backend, base.driver)
        return (*chip, libraries.MATRIX_LIBRARY, libraries.matrix_library_version(), libraries.base().version)

    def target(self, settings: Settings = DEFAULT, matrices: tuple[MatrixUnit, ...] = ()) -> Target:
        """Returns what lowering may rely on: the limits and features of a device with `settings`, and `matrices`.

        `matrices` are the units that `choice.checked_matrices` returned."""
        limits = self.limits
        own = limits["max-storage-buffer-binding-size"]
        ours = {COMPONENT_STORES, INTEGER_DOTS} - ({INTEGER_DOTS} if self.software else set())
        return Target(
            name=f"{self.name} ({self.backend}{libraries.name_suffix(self.library)})",
            library=self.library.name,
            features=(self.features & self.library.used) | (ours if self.backend == "Vulkan" else set()),
            max_storage_buffers=min(limits["max-storage-buffers-per-shader-stage"], settings.storage_buffers),
            max_invocations=limits["max-compute-invocations-per-workgroup"],
            max_workgroup_storage=limits["max-compute-workgroup-storage-size"],
            max_binding_bytes=min(own, settings.binding_bytes or own),
            max_buffer_bytes=limits["max-buffer-size"],
            offset_alignment=max(256, limits["min-storage-buffer-offset-alignment"]),
            software=self.software,
            matrices=matrices,
            # Only the shipped choices limit loops to the length that software adapters run.
            tuning=() if self.software else settings.tuning,
            discrete=self.type == "DiscreteGPU",
        )


def _chip(adapter: Adapter) -> tuple[int, str]:
    """A key that two views of one chip share. Device ids differ between APIs (OpenGL has none); names rarely do."""
    name = re.sub(r"\(.*?\)|/.*$", " ", adapter.name.lower())  # "llvmpipe (LLVM 15.0.6)", "NVIDIA H200/PCIe/SSE2"
    words = re.sub(r"[^a-z0-9]+", " ", name.replace("(r)", "").replace("(tm)", "")).split()
    noise = {"vulkan", "opengl", "angle", "mesa", "direct3d", "metal", "graphics", "corporation"}
    return adapter.vendor_id, " ".join(word for word in words if word not in noise)


def _same_chip(one: Adapter, other: Adapter) -> bool:
    same_ids = one.device_id != 0 and (one.vendor_id, one.device_id) == (other.vendor_id, other.device_id)
    return same_ids or _chip(one) == _chip(other)


def unique(found: Iterable[Adapter]) -> tuple[Adapter, ...]:
    """Returns one adapter per chip, hardware before software, discrete before integrated. `index` is the position in the result.

    Only views under different APIs are merged, so two equal cards under one API stay two.
    """
    backend = {name: place for place, name in enumerate(BACKEND_ORDER)}
    kind = {name: place for place, name in enumerate(TYPE_ORDER)}
    by_backend = sorted(found, key=lambda adapter: backend.get(adapter.backend, len(backend)))
    kept: list[tuple[Adapter, list[Adapter]]] = []
    for adapter in by_backend:
        for best, views in kept:
            # Each of two equal cards has a view under every API.
            if _same_chip(best, adapter) and adapter.backend not in {best.backend, *(view.backend for view in views)}:
                views.append(adapter)
                break
        else:
            kept.append((adapter, []))
    kept.sort(key=lambda chip: kind.get(chip[0].type, len(kind)))
    return tuple(replace(best, index=index, others=tuple(views)) for index, (best, views) in enumerate(kept))


def _describe(library: Library, handle: Any) -> Adapter:
    info, lib = new("WGPUAdapterInfo *"), library.lib
    lib.wgpuAdapterGetInfo(handle, info)
    backends = {
        constant("WGPUBackendType_Vulkan"): "Vulkan",
        constant("WGPUBackendType_Metal"): "Metal",
        constant("WGPUBackendType_D3D12"): "D3D12",
        constant("WGPUBackendType_OpenGL"): "OpenGL",
        constant("WGPUBackendType_OpenGLES"): "OpenGL",
    }
    types = {
        constant("WGPUAdapterType_DiscreteGPU"): "DiscreteGPU",
        constant("WGPUAdapterType_IntegratedGPU"): "IntegratedGPU",
        constant("WGPUAdapterType_CPU"): "CPU",
    }
    features = _features(library, handle)
    adapter = Adapter(
        index=0,
        name=text_of(info.device),
        vendor=text_of(info.vendor),
        backend=backends.get(info.backendType, "Unknown"),
        type=types.get(info.adapterType, "Unknown"),
        driver=text_of(info.description),
        vendor_id=int(info.vendorID),
        device_id=int(info.deviceID),
        features=features,
        limits=_limits(library, handle),
        matrices=tuple(library.matrices(handle)) if SUBGROUP_MATRIX in features else (),
        library=library,
        handle=handle,
    )
    lib.wgpuAdapterInfoFreeMembers(info[0])
    return adapter


def _features(library: Library, handle: Any) -> frozenset[str]:
    """The features that the library reports and that its header declares."""
    lib = library.lib
    found = new("WGPUSupportedFeatures *")
    lib.wgpuAdapterGetFeatures(handle, found)
    known = {number: name for name, number in library.features.items()}
    names = frozenset(known[n] for n in ffi.unpack(found.features, found.featureCount) if n in known)
    lib.wgpuSupportedFeaturesFreeMembers(found[0])
    return names


def _limits(library: Library, handle: Any) -> dict[str, int]:
    limits = new("WGPULimits *")
    library.lib.wgpuAdapterGetLimits(handle, limits)
    return {spec_name(key): getattr(limits, key) for key in LIMITS}


def _enumerate(library: Library, last_resort: bool = False) -> list[Adapter]:
    with quiet_display_probe():
        handles = library.last_resort() if last_resort else library.adapters()
    return [_describe(library, handle) for handle in handles]


_enumeration = threading.RLock()


def adapters() -> tuple[Adapter, ...]:
    """Returns the chips of this machine in order of preference; empty if there are none (see `adapters_problem`)."""
    with nullcontext() if process.is_forked else _enumeration:  # the thread that holds the lock may not exist in a fork
        return _adapters()


@contextmanager
def enumerated_in_background() -> Iterator[None]:
    """Enumerates the adapters on a thread during the `with`, which waits for it at its end. `adapters()` raises the errors."""

    def enumerate_all() -> None:
        with suppress(Exception):
            adapters()

    process.check_not_forked()
    with quiet_display_probe():  # here, because it changes the environment of the process
        start_ahead(enumerate_all)
        try:
            yield
        finally:
            enumerate_all()


@cache
def _adapters() -> tuple[Adapter, ...]:
    found = unique(_enumerate(libraries.base()))
    if not found:
        # OpenGL is the last resort, and only on hardware. Where Mesa runs on the CPU, its Vulkan driver is faster and
        # complete, and is part of the same package.
        found = unique(it for it in _enumerate(libraries.base(), True) if not it.software and has_compute_shaders(it))
    return found


def has_compute_shaders(adapter: Adapter) -> bool:
    """Whether the adapter's version of OpenGL has compute shaders: OpenGL 4.3, or OpenGL ES 3.1.

    Limits are not enough: an OpenGL 3.3 context with an extension reports them, but no kernel can be translated for it.
    """
    version = re.match(r"(OpenGL ES )?(\d+)\.(\d+)", adapter.driver)
    if version is None:
        return True
    es, *numbers = version.groups()
    return tuple(map(int, numbers)) >= ((3, 1) if es else (4, 3))


@cache
def _adapters_of(name: str) -> tuple[Adapter, ...]:
    """Returns the chips that a library lists. Opens the library."""
    return unique(_enumerate(libraries.named(name)))


def adapters_problem() -> str | None:
    """Returns why `adapters()` is empty and what to do about it; None if there is an adapter."""
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
            "no WebGPU adapter: the Vulkan loader is present but no Vulkan driver is found; install the GPU vendor's"
            " driver, or `apt-get install mesa-vulkan-drivers` for Intel, AMD and software rendering"
        )
    api = "Metal" if sys.platform == "darwin" else "Direct3D 12 or Vulkan"
    return f"no WebGPU adapter: no driver offers {api}; install or update the GPU driver"
