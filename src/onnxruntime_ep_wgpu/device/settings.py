"""What a user may choose about a device. In: provider options, by way of `plugin/settings.py`. Out: `Settings`.

Invariant: equal settings mean that sessions can share a device; every field has the default of the provider option that
sets it.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field
from typing import Any

from ..program.tuning import Choice


def set_by(option: str, default: Any) -> Any:
    """A field that the provider option `option` sets."""
    return field(default=default, metadata={"option": option})


def option_of(setting: Field[Any]) -> str:
    """The provider option that sets a field; "" for one that several options decide."""
    return str(setting.metadata.get("option", ""))


@dataclass(frozen=True)
class Settings:
    """Choices about one device; see `cache` for what the modes of its four buffer caches mean."""

    # The graphics API; "" is the adapter's best.
    backend: str = set_by("dawnBackendType", "")
    # Storage buffers per kernel; eight is what every WebGPU implementation offers. Lowered to the adapter's own limit.
    storage_buffers: int = set_by("maxStorageBuffersPerShaderStage", 8)
    # The largest binding in bytes, at most the adapter's own; 0 is the adapter's own.
    binding_bytes: int = set_by("maxStorageBufferBindingSize", 0)
    # Tensors and intermediate values.
    storage_cache: str = set_by("storageBufferCacheMode", "bucket")
    # Sizes and offsets that kernels read, one buffer per plan.
    uniform_cache: str = set_by("uniformBufferCacheMode", "simple")
    # Timestamps on their way from the queries to the host.
    query_resolve_cache: str = set_by("queryResolveBufferCacheMode", "disabled")
    # Everything else: buffers that the host reads from.
    default_cache: str = set_by("defaultBufferCacheMode", "bucket")
    # Which kernels are chosen before those that are shipped.
    tuning: tuple[Choice, ...] = set_by("tuningTable", ())


DEFAULT = Settings()
