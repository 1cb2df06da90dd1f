"""A session's provider options as the settings of its device, of its runs, and of the compiler."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from ..compiler.settings import CompileSettings
from ..compiler.tune import check_choices
from ..device.settings import Settings, option_of
from ..errors import OptionError
from ..options import Options
from ..program.tuning import Choices, read_choices
from ..runtime.settings import RunSettings

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
    chosen = {field.name: options[option_of(field)] for field in fields(Settings)}
    if binding == limit:
        chosen["binding_bytes"] = 0  # the same device
    if "dawnBackendType" not in options.given:
        chosen["backend"] = ""  # the adapter's best
    if options["tuningTable"]:
        chosen["tuning"] = _choices(options["tuningTable"], adapter.through(chosen["backend"]).target())
    else:
        chosen["tuning"] = ()
    return Settings(**chosen)


def _choices(path: str, target: Target) -> Choices:
    """Those of a file, for the adapter that has this target. Raises OptionError."""
    try:
        adapter, choices = read_choices(path)
        check_choices(choices)
    except (ValueError, OSError) as error:
        raise OptionError(f"option 'tuningTable': {error}") from error
    if adapter not in ("", target.name):
        raise OptionError(
            f"option 'tuningTable': {path} was measured on {adapter!r}, and the adapter is {target.name!r}"
        )
    return choices


def asked(options: Options) -> frozenset[str]:
    """The fields of the settings that the user set; in the others the session takes its context as it is."""
    return frozenset(field.name for field in fields(Settings) if option_of(field) in options.given)


def run_settings_of(options: Options) -> RunSettings:
    """How the session's groups run."""
    mode = options["validationMode"]
    return RunSettings(
        bounds_checks=mode == "full" or options["enableRobustness"],
        plan_checks=mode in ("basic", "full"),
        stepwise=mode == "full",
        **{field.name: options[option] for field in fields(RunSettings) if (option := option_of(field))},
    )


def compile_settings_of(options: Options) -> CompileSettings:
    """What the session's groups are compiled with."""
    return CompileSettings(
        with_assertions=options["validationMode"] == "full", rotary_switch=options["multiRotaryCacheConcatOffset"]
    )
