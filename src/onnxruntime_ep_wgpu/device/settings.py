"""The user's choices about a device. In: provider options, through `plugin/settings.py`. Out: `Settings`.

Invariant: sessions with equal settings can share a device. The default of a field equals the default of its option.
"""

from __future__ import annotations

from ..fields import set_by, set_by_adapter
from ..program.tuning import Choice
from ..records import dataclass


@dataclass(frozen=True)
class Settings:
    """Choices about one device. See `cache` for the modes of its four buffer caches."""

    # The graphics API; "" means the adapter's best.
    backend: str = set_by("dawnBackendType", default="")
    # Storage buffers per kernel. Every WebGPU implementation offers eight. Lowered to the adapter's own limit.
    storage_buffers: int = set_by("maxStorageBuffersPerShaderStage", default=8)
    # The largest binding in bytes, at most the adapter's limit; 0 means that limit.
    binding_bytes: int = set_by_adapter("maxStorageBufferBindingSize", default=0)
    # Tensors and intermediate values.
    storage_cache: str = set_by("storageBufferCacheMode", default="bucket")
    # Sizes and offsets that kernels read; one buffer per plan.
    uniform_cache: str = set_by("uniformBufferCacheMode", default="simple")
    # Staging for resolved timestamps.
    query_resolve_cache: str = set_by("queryResolveBufferCacheMode", default="disabled")
    # All other buffers: those that the host reads.
    default_cache: str = set_by("defaultBufferCacheMode", default="bucket")
    # Tuned choices, which take precedence over the shipped ones.
    tuning: tuple[Choice, ...] = set_by_adapter("tuningTable", default=())


DEFAULT = Settings()
