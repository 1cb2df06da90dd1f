"""A session's provider options as the settings of its device."""

from __future__ import annotations

from ..device.settings import Settings
from ..options import Options


def settings_of(options: Options) -> Settings:
    """The device settings that these options ask for."""
    return Settings(storage_buffers=options["maxStorageBuffersPerShaderStage"])
