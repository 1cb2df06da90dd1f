"""What a user may choose about a device. In: provider options, by way of `plugin/settings.py`. Out: `Settings`.

Invariant: equal settings mean that sessions can share a device; every field has the default of the provider option that
sets it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Choices about one device. Limits above the adapter's own are lowered to it."""

    # Storage buffers per kernel; eight is what every WebGPU implementation offers.
    storage_buffers: int = 8


DEFAULT = Settings()
