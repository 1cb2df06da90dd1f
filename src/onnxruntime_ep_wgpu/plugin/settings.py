"""Converts a session's provider options to settings of its device. Some of them depend on the adapter."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from ..device.settings import Settings
from ..errors import OptionError
from ..fields import option_names, settings_from
from ..options import Options
from ..program.tuning import Choices, read_choices

if TYPE_CHECKING:
    from ..device import Adapter
    from ..program.target import Target

_BINDING = "max-storage-buffer-binding-size"


def settings_of(options: Options, adapter: Adapter) -> Settings:
    """Returns the device settings for these options. Raises OptionError for values that the adapter cannot provide."""
    binding, limit = options["maxStorageBufferBindingSize"], adapter.limits[_BINDING]
    if binding > limit:
        raise OptionError(
            f"option 'maxStorageBufferBindingSize': {binding} is more than the adapter {adapter.name!r} allows;"
            f" valid: 0, or up to {limit} ({_BINDING})"
        )
    path = options["tuningTable"]
    tuning = _choices(path, adapter.through(options["dawnBackendType"]).target()) if path else ()
    own = 0 if binding == limit else binding  # the largest binding gives the same device as 0
    return settings_from(Settings, options.values, binding_bytes=own, tuning=tuning)


def _choices(path: str, target: Target) -> Choices:
    """Returns the choices in a file, for the adapter with this target. Raises OptionError."""
    from ..compiler.tune import check_choices  # imports the compiler, which a session without a table may not need

    try:
        adapter, choices = read_choices(path)
        check_choices(choices)
    except OSError as error:
        raise OptionError(
            f"option 'tuningTable': {path} cannot be read ({error.strerror or error}); wgpu-ep tune --output FILE writes a table"
        ) from error
    except ValueError as error:
        raise OptionError(f"option 'tuningTable': {error}; wgpu-ep tune --output FILE writes a table") from error
    if adapter not in ("", target.name):
        raise OptionError(
            f"option 'tuningTable': {path} was measured on {adapter!r}, and the adapter is {target.name!r}"
        )
    return choices


def fields_set(options: Options) -> frozenset[str]:
    """Returns the fields of the settings that the user set. For the others, the session accepts those of its context."""
    return frozenset(field.name for field in fields(Settings) if options.given.keys() & {*option_names(field)})
