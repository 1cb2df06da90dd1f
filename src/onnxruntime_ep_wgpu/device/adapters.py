"""Which chips can run WebGPU here: one `Adapter` per physical chip, the one to use first.

In: what libraries enumerate. Out: `adapters()` and, when that is empty, the reason in `adapters_problem()`.
Invariant: a chip that several graphics APIs show counts once, under its best API; enumeration prints nothing.
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
from ..threads import begin_ahead
from .display import quiet_display_probe
from .matrix_refusals import recall
from .settings import DEFAULT, Settings
from .webgpu import dawn, libraries
from .webgpu.api import Library
from .webgpu.header import LIMITS, constant, ffi, new, spec_name, text_of

BACKEND_ORDER = ("Vulkan", "Metal", "D3D12", "OpenGL")
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
    # What the driver lists; `choice.checked_matrices` are those that it computes rightly.
    matrices: tuple[MatrixUnit, ...] = ()
    # The library through which it is seen, and its object there.
    library: Library = field(default=None, compare=False, repr=False)  # type: ignore[assignment]
    handle: Any = field(default=None, compare=False, repr=False)
    # The same chip under other graphics APIs.
    others: tuple[Adapter, ...] = field(default=(), compare=False, repr=False)

    def through(self, backend: str, library: str = "") -> Adapter:
        """The chip under the graphics API `backend` ("" is this one), as the library of a name sees it ("" is this one). Raises
        OptionError, naming the APIs there are, and DeviceError when that library does not see it, or cannot be opened."""
        if library and library != self.library.name:
            return replace(self._seen_by(library).through(backend), index=self.index, name=self.name)
        views = {self.backend: self, **{other.backend: other for other in self.others}}
        if backend and backend not in views:
            raise OptionError(
                f"option 'dawnBackendType': {backend!r} does not reach the adapter {self.name!r} here;"
                f" it is reached through {' or '.join(views)}"
            )
        return replace(views[backend or self.backend], index=self.index)

    def _seen_by(self, library: str) -> Adapter:
        """The same chip, of equal ones that at the same place among them."""
        place = [it.index for it in adapters() if _same_chip(it, self)].index(self.index)
        found = [it for it in _seen_through(library) if _same_chip(it, self)]
        if place >= len(found):
            names = ", ".join(repr(it.name) for it in _seen_through(library)) or "none"
            raise DeviceError(
                f"the library {library!r} cannot use the adapter {self.name!r}: its driver ({self.driver or self.backend}) lacks"
                f" what that library needs; it can use {names}. Set webgpuLibrary={libraries.base().name}, or update the driver"
            )
        return found[place]

    @property
    def software(self) -> bool:
        """Whether the adapter calculates on the CPU."""
        return self.type == "CPU"

    @property
    def refused_matrices(self) -> str:
        """The matrix units that gave wrong products, with the reasons; "" where none is known. Probes nothing, loads no library."""
        known = {} if self.software or not dawn.installed() else recall(self.probed_by)
        return "; ".join(f"{unit}: {why}" for unit, why in (known or {}).items())

    @property
    def probed_by(self) -> tuple[str, ...]:
        """What a probe of matrix units depends on: the chip as the usual library sees it, and the libraries."""
        seen = adapters()
        base = seen[self.index] if self.index < len(seen) else self
        chip = (base.name, str(base.vendor_id), str(base.device_id), base.backend, base.driver)
        return (*chip, dawn.NAME, dawn.installed_version(), libraries.base().version)

    def target(self, settings: Settings = DEFAULT, matrices: tuple[MatrixUnit, ...] = ()) -> Target:
        """What lowering may rely on: the limits and features that a device with `settings` is opened with, and `matrices`, those of
        `choice.checked_matrices`."""
        limits = self.limits
        own = limits["max-storage-buffer-binding-size"]
        ours = {COMPONENT_STORES, INTEGER_DOTS} - ({INTEGER_DOTS} if self.software else set())
        return Target(
            name=f"{self.name} ({self.backend}{libraries.beside(self.library)})",
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
    """The features that a library reports and its header names."""
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


_looking = threading.RLock()


def adapters() -> tuple[Adapter, ...]:
    """The chips of this machine, the one to use first; empty when there is none (see `adapters_problem`)."""
    with nullcontext() if process.forked else _looking:  # the thread that had it may not exist here
        return _adapters()


@contextmanager
def looked_for() -> Iterator[None]:
    """A thread looks for the chips during the `with`, whose end waits for it. What fails is raised where they are asked for."""

    def look() -> None:
        with suppress(Exception):
            adapters()

    process.check_not_forked()
    with quiet_display_probe():  # not on the thread: the environment is changed on this one
        begin_ahead(look)
        try:
            yield
        finally:
            look()


@cache
def _adapters() -> tuple[Adapter, ...]:
    found = unique(_enumerate(libraries.base()))
    if not found:
        # OpenGL only as a last resort, and only on hardware: where Mesa calculates on the CPU its Vulkan driver is
        # faster and complete, and comes with the same package.
        found = unique(it for it in _enumerate(libraries.base(), True) if not it.software and has_compute_shaders(it))
    return found


def has_compute_shaders(adapter: Adapter) -> bool:
    """Whether the version of OpenGL of an adapter has compute shaders: 4.3, or 3.1 of OpenGL ES.

    Limits do not say it: a context of 3.3 with an extension has them, and no kernel can be translated for it.
    """
    version = re.match(r"(OpenGL ES )?(\d+)\.(\d+)", adapter.driver)
    if version is None:
        return True
    es, *numbers = version.groups()
    return tuple(map(int, numbers)) >= ((3, 1) if es else (4, 3))


@cache
def _seen_through(name: str) -> tuple[Adapter, ...]:
    """The chips that a library sees, which is opened for that."""
    return unique(_enumerate(libraries.named(name)))


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
