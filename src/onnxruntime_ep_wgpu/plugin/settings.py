"""A session's provider options as the settings of its device: those for which the adapter has to be known."""

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
    """The device settings that these options ask for. Raises OptionError for what the adapter cannot give."""
    binding, limit = options["maxStorageBufferBindingSize"], adapter.limits[_BINDING]
    if binding > limit:
        raise OptionError(
            f"option 'maxStorageBufferBindingSize': {binding} is more than the adapter {adapter.name!r} allows;"
            f" valid: 0, or up to {limit} ({_BINDING})"
        )
    path = options["tuningTable"]
    tuning = _choices(path, adapter.through(options["dawnBackendType"]).target()) if path else ()
    own = 0 if binding == limit else binding  # the largest binding is the same device as none
    return settings_from(Settings, options.values, binding_bytes=own, tuning=tuning)


def _choices(path: str, target: Target) -> Choices:
    """Those of a file, for the adapter that has this target. Raises OptionError."""
    from ..compiler.tune import check_choices  # with the compiler, which a session without a table may do without

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


def asked(options: Options) -> frozenset[str]:
    """The fields of the settings that the user set; in the others the session takes its context as it is."""
    return frozenset(field.name for field in fields(Settings) if options.given.keys() & {*option_names(field)})
