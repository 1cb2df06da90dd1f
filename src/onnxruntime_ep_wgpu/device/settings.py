"""What a user may choose about a device. In: provider options, by way of `plugin/settings.py`. Out: `Settings`.

Invariant: equal settings mean that sessions can share a device; every field has the default of the provider option that
sets it.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field
from typing import Any


def _set_by(option: str, default: Any) -> Any:
    """A field that the provider option `option` sets."""
    return field(default=default, metadata={"option": option})


def option_of(setting: Field[Any]) -> str:
    """The provider option that sets a field of `Settings`."""
    return str(setting.metadata["option"])


@dataclass(frozen=True)
class Settings:
    """Choices about one device. Limits above the adapter's own are lowered to it."""

    # The graphics API; "" is the adapter's best.
    backend: str = _set_by("dawnBackendType", "")
    # Storage buffers per kernel; eight is what every WebGPU implementation offers.
    storage_buffers: int = _set_by("maxStorageBuffersPerShaderStage", 8)


DEFAULT = Settings()
