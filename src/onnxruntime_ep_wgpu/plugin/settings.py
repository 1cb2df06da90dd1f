"""A session's provider options as the settings of its device."""

from __future__ import annotations

from dataclasses import fields

from ..device.settings import Settings, option_of
from ..options import Options


def settings_of(options: Options) -> Settings:
    """The device settings that these options ask for."""
    return Settings(
        backend=options["dawnBackendType"] if "dawnBackendType" in options.given else "",
        storage_buffers=options["maxStorageBuffersPerShaderStage"],
    )


def asked(options: Options) -> frozenset[str]:
    """The fields of the settings that the user set; in the others the session takes its context as it is."""
    return frozenset(field.name for field in fields(Settings) if option_of(field) in options.given)
