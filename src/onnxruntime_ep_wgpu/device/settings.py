"""What a user may choose about a device. In: provider options, by way of `plugin/settings.py`. Out: `Settings`.

Invariant: equal settings mean that sessions can share a device; every field's default is what the default of its option means.
"""

from __future__ import annotations

from ..fields import set_by, set_by_adapter
from ..program.tuning import Choice
from ..records import dataclass


@dataclass(frozen=True)
class Settings:
    """Choices about one device; see `cache` for what the modes of its four buffer caches mean."""

    # The graphics API; "" is the adapter's best.
    backend: str = set_by("dawnBackendType", default="")
    # Storage buffers per kernel; eight is what every WebGPU implementation offers. Lowered to the adapter's own limit.
    storage_buffers: int = set_by("maxStorageBuffersPerShaderStage", default=8)
    # The largest binding in bytes, at most the adapter's own; 0 is the adapter's own.
    binding_bytes: int = set_by_adapter("maxStorageBufferBindingSize", default=0)
    # Tensors and intermediate values.
    storage_cache: str = set_by("storageBufferCacheMode", default="bucket")
    # Sizes and offsets that kernels read, one buffer per plan.
    uniform_cache: str = set_by("uniformBufferCacheMode", default="simple")
    # Timestamps on their way from the queries to the host.
    query_resolve_cache: str = set_by("queryResolveBufferCacheMode", default="disabled")
    # Everything else: buffers that the host reads from.
    default_cache: str = set_by("defaultBufferCacheMode", default="bucket")
    # Which kernels are chosen before those that are shipped.
    tuning: tuple[Choice, ...] = set_by_adapter("tuningTable", default=())


DEFAULT = Settings()
